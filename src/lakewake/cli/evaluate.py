"""`lakewake eval`: how good searches are, by questions with known answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, config_option, with_flags
from lakewake.cli.indexes import opened, opened_at
from lakewake.cli.screen import count, cut, moment, one_line, print_json, width
from lakewake.errors import ConfigError
from lakewake.model.choices import MODES

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake
    from lakewake.model.evaluation import Comparison, Evaluation, Mean

EXAMPLE = "lakewake eval wines queries.jsonl --mode hybrid --compare keyword"
WAYS = "a mode, index=NAME, as-of=INSTANT, or a file that `eval --json` wrote"


@click.argument("given", nargs=-1, required=True, metavar="[NAME] QUESTIONS")
@click.option(
    "--index", "address", metavar="ADDRESS", help="Instead of a name: an index by its address."
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="A mode to measure; may be given several times. All unless given.",
)
@click.option("--split", default="test", metavar="S", help="In a folder of BEIR: use qrels/S.tsv.")
@click.option("--as-of", metavar="INSTANT", help="Measure the index as it was at this instant.")
@click.option("--no-rerank", is_flag=True, help="Do not re-rank with the configured model.")
@click.option("--compare", "other", metavar="WHAT", help=f"Compare with {WAYS}.")
@click.option("--plot", type=Path, metavar="FILE", help="Draw the means to this SVG file.")
@config_option
@with_flags
def eval(
    given: tuple[str, ...],
    address: str | None,
    modes: tuple[str, ...],
    other: str | None,
    plot: Path | None,
    no_rerank: bool,
    flags: Flags,
    **how: Any,
) -> int:
    """Measure searches by questions with known answers. Starts no JVM.

    QUESTIONS is a file with {"query": …, "relevant": [KEY, …]} on each line, or a folder of BEIR.
    """
    *names, questions = given
    if len(names) > 1 or (names and address):
        raise ConfigError("eval takes at most one index, and then the questions", hint=EXAMPLE)
    if other in MODES and modes:
        modes = (*modes, other)
    how |= {"rerank": False if no_rerank else None, "modes": modes}
    with at_address(address, flags) if address else configured(names, flags) as (index, others):
        one = index.evaluate(questions, **how)
        compared = other and compare_with(index, others, one, other, questions, how)
    if plot:
        write_plot(one, plot)
    if flags.json:
        more = {"comparison": compared.as_dict()} if compared else {}
        print_json({**one.as_dict(), **more})
    else:
        show_evaluation(one)
        if compared:
            show_comparison(compared)
    return 0


@contextmanager
def at_address(address: str, flags: Flags) -> Iterator[tuple[Index, Lakewake | None]]:
    """The index at an address, and no others."""
    with opened_at(address, flags) as index:
        yield index, None


@contextmanager
def configured(names: list[str], flags: Flags) -> Iterator[tuple[Index, Lakewake | None]]:
    """The named index of the configuration, or its only one; and all of them."""
    with opened(flags) as lake:
        yield lake[names[0] if names else only(lake)], lake


def only(lake: Lakewake) -> str:
    """The name of the only index.

    Raises:
        ConfigError: there are several.
    """
    if len(lake.names) != 1:
        raise ConfigError(
            f"the configuration has {len(lake.names)} indexes: {', '.join(lake.names)}",
            hint=f"name one: {EXAMPLE}",
        )
    return lake.names[0]


def compare_with(
    index: Index,
    others: Lakewake | None,
    one: Evaluation,
    what: str,
    questions: str,
    how: dict[str, Any],
) -> Comparison:
    """Compare an evaluation with what `--compare` names: how much better it is than that."""
    from lakewake.evaluate import compare

    mode = next((m for m in reversed(MODES) if m in one.means and m != what), what)
    if what in MODES:
        return compare(one, what, one, mode)
    kind, _, value = what.partition("=")
    if kind == "index":
        if others is None:
            raise ConfigError("index=NAME needs a configuration", hint="leave out --index")
        return compare(others[value].evaluate(questions, **how), mode, one)
    if kind == "as-of":
        return compare(index.evaluate(questions, **{**how, "as_of": value}), mode, one)
    return compare(read_evaluation(Path(what)), mode, one)


def read_evaluation(path: Path) -> Evaluation:
    """What `eval --json` wrote to a file.

    Raises:
        ConfigError: it is something else.
    """
    from lakewake.model.evaluation import Evaluation

    try:
        return Evaluation.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"--compare cannot use {cut(str(path), 60)!r}",
            hint=f"pass {WAYS}",
        ) from error


def write_plot(one: Evaluation, path: Path) -> None:
    """Write the means as SVG."""
    from lakewake.evaluate.plot import as_svg

    try:
        path.write_text(as_svg(one))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            hint="check that its folder exists and is writable, or name another: --plot FILE.svg",
        ) from error


def show_evaluation(one: Evaluation) -> None:
    """Print a table of the means, one line for each mode."""
    asked = count(len(one.questions), "question")
    click.secho(f"{one.index}: {asked}, table at {moment(one.instant)}", bold=True)
    names = list(next(iter(one.means.values())))
    click.secho("  mode      " + "".join(f"{name:<24}" for name in names), dim=True)
    for mode, means in one.means.items():
        click.echo(f"  {mode:<10}" + "".join(f"{with_interval(means[n]):<24}" for n in names))
    if one.unfound:
        nothing = f"{count(one.unfound, 'question')} found none of the relevant rows in any mode"
        click.secho(f"  {nothing}: do the keys match `lakewake search`'s?", fg="yellow")


def with_interval(mean: Mean) -> str:
    """A mean and the interval it may be in."""
    return f"{mean.value:.3f} ({mean.low:.3f}–{mean.high:.3f})"


def show_comparison(compared: Comparison) -> None:
    """Print how much better the other one is, and the questions that differ most."""
    click.secho(f"{compared.other}, compared with {compared.one}", bold=True)
    for name, mean in compared.differences.items():
        click.echo(f"  {name:<12}{mean.value:+.3f} ({mean.low:+.3f} to {mean.high:+.3f})")
    click.echo(f"  {count(compared.better, 'question')} better, {compared.worse:,} worse")
    for one in compared.most:
        line = f"  {one.one:.3f} → {one.other:.3f}  {one_line(one.text)}"
        click.secho(cut(line, width()), dim=True)
