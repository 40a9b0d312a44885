"""`lakewake search`: the rows nearest to a text or a vector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, argument, config_option, with_flags
from lakewake.cli.indexes import index_named, opened, opened_at
from lakewake.cli.screen import count, cut, moment, one_line, print_json, width
from lakewake.config.section import Section
from lakewake.errors import ConfigError, FilterError
from lakewake.model.choices import MODES

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.model.query import Hit, SearchResult

EXAMPLE = "lakewake search wines 'smoky red with leather' -k 5 --where \"price < 40\""


@argument("name", required=False, help="The index; left out with --index.")
@argument("text", required=False, help="What to look for.")
@click.option(
    "--index",
    "address",
    metavar="ADDRESS",
    help="Instead of a name: an index by its address, such as hudi://FOLDER. Needs no "
    "configuration.",
)
@click.option("-k", type=click.IntRange(min=1), default=5, metavar="N", help="Number of rows.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Rows to skip.")
@click.option("--where", metavar="FILTER", help="Only rows whose payload matches; text or JSON.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="vector",
    help="By meaning, by words, or by both.",
)
@click.option("--min-score", type=float, metavar="X", help="Leave out rows with a lower score.")
@click.option(
    "--diversity",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="X",
    help="From 0 to 1: put rows that repeat better rows behind others.",
)
@click.option("--no-rerank", is_flag=True, help="Do not re-rank with the configured model.")
@click.option("--exact", is_flag=True, help="Compare with every vector, not only the likely ones.")
@click.option("--as-of", metavar="INSTANT", help="Search the index as it was at this instant.")
@click.option(
    "--max-age",
    metavar="TIME",
    help="The most that the index may be behind its table: 30s, 5m, 2h.",
)
@click.option("--like", metavar="KEY", help="Instead of a text: find rows like this one.")
@click.option(
    "--partition", default="", metavar="P", help="The partition of the row that --like names."
)
@click.option(
    "--vector", metavar="JSON|FILE", help="Instead of a text: a JSON list, or a file with one."
)
@config_option
@with_flags
def search(
    name: str | None,
    text: str | None,
    address: str | None,
    vector: str | None,
    like: str | None,
    partition: str,
    where: str | None,
    no_rerank: bool,
    max_age: str | None,
    flags: Flags,
    **how: Any,
) -> int:
    """Find the rows nearest to a text. Starts no JVM."""
    if address is not None and text is None:
        name, text = None, name
    if (name is None) == (address is None):
        raise ConfigError("search takes the name of an index, or --index ADDRESS", hint=EXAMPLE)
    if [text, vector, like].count(None) != 2:
        raise ConfigError("search takes exactly one of a text, --vector and --like", hint=EXAMPLE)
    if partition and like is None:
        raise ConfigError(
            "--partition works only with --like", hint="filter: --where \"_partition = '…'\""
        )
    from lakewake.model.rows import RowId

    with opened_at(address, flags) if address else named(name or "", flags) as index:
        result = index.search(
            text,
            vector=None if vector is None else parse_vector(vector),
            like=None if like is None else RowId(partition, like),
            where=None if where is None else parse_filter(where),
            rerank=False if no_rerank else None,
            max_age=None if max_age is None else parse_age(max_age),
            **how,
        )
    if flags.json:
        print_json(result.as_dict())
    else:
        show_result(result)
    return 0


@contextmanager
def named(name: str, flags: Flags) -> Iterator[Index]:
    """Open the index of that name in the configuration."""
    with opened(flags) as lake:
        yield index_named(lake, name)


def parse_filter(given: str) -> str | dict[str, Any]:
    """The filter as it is, or decoded if it is JSON."""
    if not given.lstrip().startswith("{"):
        return given
    try:
        value: dict[str, Any] = json.loads(given)
    except ValueError as error:
        raise FilterError(
            f"--where {cut(given, 40)!r} is not JSON: {error}",
            hint="""quote it for the shell: --where '{"price": {"<": 40}}'""",
        ) from error
    return value


def parse_age(given: str) -> float:
    """A number of seconds, or a duration as in a configuration.

    Raises:
        ConfigError: it is neither.
    """
    if given.strip().isdigit():
        return float(given)
    return Section("--max-age", {"age": given}).seconds("age") or 0.0


def parse_vector(given: str) -> list[float]:
    """The numbers of a JSON list, or of a file that holds one.

    Raises:
        ConfigError: `given` is neither.
    """
    literal = given.lstrip().startswith("[")
    try:
        value: Any = json.loads(given if literal else Path(given).read_text())
        return [float(x) for x in value]
    except (OSError, ValueError, TypeError) as error:
        fact = f"--vector {cut(given, 40)!r} is neither a JSON list of numbers nor a file with one"
        raise ConfigError(fact, hint="--vector '[0.1, 0.2]' or --vector query.json") from error


def show_result(result: SearchResult) -> None:
    """Print the hits, each on at most three lines cut to the screen's width."""
    found = count(len(result.hits), "row")
    click.secho(f"{result.index}: {found}, table at {moment(result.instant)}", bold=True)
    if result.fallback:
        click.secho(f"     the table was scanned: {one_line(result.fallback)}", fg="yellow")
    for rank, hit in enumerate(result.hits, start=result.offset + 1):
        for line, dim in zip(hit_lines(rank, hit, width()), (None, None, True), strict=False):
            click.secho(line, dim=dim)
    if result.more:
        click.secho(f"     more: --offset {result.offset + len(result.hits)}", dim=True)


def hit_lines(rank: int, hit: Hit, width: int) -> list[str]:
    """Rank, score and key; the text; the payload; each cut to the width."""
    where = f"  in {one_line(hit.partition)}" if hit.partition else ""
    lines = [f"{rank:>3}  {hit.score:.4f}  {one_line(hit.key)}{where}"]
    if hit.text is not None:
        lines.append(one_line(hit.text))
    payload = "  ".join(f"{k}={one_line(str(v))}" for k, v in hit.payload.items() if v is not None)
    if payload:
        lines.append(payload)
    return [cut(lines[0], width), *(cut(f"     {line}", width) for line in lines[1:])]
