"""`lakewake recommend`: an answer in words, and the rows it is based on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, argument, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import count, moment, one_line, print_json, width
from lakewake.cli.search import hit_lines
from lakewake.model.choices import MODES

if TYPE_CHECKING:
    from lakewake.model.recommendation import Recommendation

EXAMPLE = "lakewake recommend wines 'a red for grilled lamb' --where \"price < 40\""


@argument("name", help="The index.")
@argument("question", help="What you want to know.")
@click.option("-k", type=click.IntRange(min=1), default=5, metavar="N", help="Number of rows.")
@click.option("--where", metavar="FILTER", help="Only rows whose payload matches.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="vector",
    help="Find rows by meaning, by words, or by both.",
)
@click.option(
    "--min-score",
    type=float,
    metavar="SCORE",
    help="Leave out rows with a lower score; if none is left, the answer is that nothing fits.",
)
@click.option(
    "--rerank/--no-rerank",
    default=None,
    help="Re-rank the rows, or do not.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="QUESTION",
    help="An earlier question that this one follows up on; may be given several times.",
)
@click.option("--plain", is_flag=True, help="With --json: success, query, message and products.")
@click.option("--no-model", is_flag=True, help="Ask no language model; quote the rows.")
@config_option
@with_flags
def recommend(
    name: str,
    question: str,
    after: tuple[str, ...],
    plain: bool,
    no_model: bool,
    flags: Flags,
    **asked: Any,
) -> int:
    """Answer a question from the rows nearest to it. Starts no JVM.

    The model in [recommend] phrases the answer; without one the rows are quoted.
    """
    with opened(flags) as lake:
        index = lake[name]
        asked["model"] = not no_model
        asked["conversation"] = [{"role": "user", "content": text} for text in after]
        if flags.json:
            found = index.recommend(question, **asked)
            print_json(found.plain() if plain else found.as_dict())
        else:
            show_recommendation(index.recommend_stream(question, **asked))
    return 0


def show_recommendation(parts: Iterator[str | Recommendation]) -> None:
    """Print the message as it arrives, then why it is as it is, then the rows."""
    shown = ""
    for part in parts:
        if isinstance(part, str):
            shown += part
            click.echo(_printable(part), nl=False)
        else:
            click.echo()
            if part.message.strip() != shown.strip():
                click.secho("The answer broke off. From the rows instead:", bold=True)
                click.echo(_printable(part.message))
            _show_rows(part)


def _show_rows(found: Recommendation) -> None:
    if found.reason:
        click.secho(f"({one_line(found.reason)})", dim=True)
    click.echo()
    rows = f"{count(len(found.hits), 'row')} found, {len(found.used)} named in the answer"
    click.secho(f"{rows}, table at {moment(found.instant)}", bold=True)
    for rank, hit in enumerate(found.hits, start=1):
        for line, dim in zip(hit_lines(rank, hit, width()), (None, None, True), strict=False):
            click.secho(line, dim=dim)


def _printable(text: str) -> str:
    """The text without characters that could control a terminal; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
