"""`lakewake recommend`: an answer in words, and the rows it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import count, moment, one_line, print_json, width
from lakewake.cli.search import hit_lines
from lakewake.model.choices import MODES

if TYPE_CHECKING:
    from lakewake.model.recommendation import Recommendation

EXAMPLE = "lakewake recommend wines 'a red for grilled lamb' --where \"price < 40\""


@click.argument("name", help="The index.")
@click.argument("question", help="What is asked.")
@click.option("-k", type=click.IntRange(min=1), default=5, metavar="N", help="How many rows.")
@click.option("--where", metavar="FILTER", help="Only rows with these payload values.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="vector",
    help="How rows are found.",
)
@click.option("--no-model", is_flag=True, help="Ask no language model, quote the rows.")
@config_option
@with_flags
def recommend(
    name: str, question: str, k: int, where: str | None, mode: str, no_model: bool, flags: Flags
) -> int:
    """Answer a question from the rows nearest to it. Starts no JVM.

    The model of [recommend] phrases the answer; without one the rows are quoted.
    """
    with opened(flags) as lake:
        index, ask_model = lake[name], not no_model
        if flags.json:
            found = index.recommend(question, k=k, where=where, mode=mode, model=ask_model)
            print_json(found.as_dict())
        else:
            told = index.recommend_stream(question, k=k, where=where, mode=mode, model=ask_model)
            show_recommendation(told)
    return 0


def show_recommendation(told: Iterator[str | Recommendation]) -> None:
    """The message as it comes, then what is to be said about it, then the rows."""
    said = ""
    for part in told:
        if isinstance(part, str):
            said += part
            click.echo(_printable(part), nl=False)
        else:
            click.echo()
            if part.message.strip() != said.strip():
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
    """Without characters that could steer a terminal; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
