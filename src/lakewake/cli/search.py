"""`lakewake search`: the rows nearest to a text or a vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import count, cut, moment, one_line, print_json, width
from lakewake.errors import ConfigError

if TYPE_CHECKING:
    from lakewake.model.query import Hit, SearchResult

EXAMPLE = "lakewake search wines 'smoky red with leather' -k 5 --where \"price < 40\""


@click.argument("name", help="The index.")
@click.argument("text", required=False, help="What to look for.")
@click.option("-k", type=click.IntRange(min=1), default=5, metavar="N", help="How many rows.")
@click.option("--where", metavar="FILTER", help="Only rows with these payload values.")
@click.option("--exact", is_flag=True, help="Compare with every vector, not with the likely ones.")
@click.option(
    "--vector", metavar="JSON|FILE", help="Instead of a text: a JSON list, or a file of one."
)
@config_option
@with_flags
def search(
    name: str,
    text: str | None,
    k: int,
    where: str | None,
    exact: bool,
    vector: str | None,
    flags: Flags,
) -> int:
    """Find the rows nearest to a text. Starts no JVM."""
    if (text is None) == (vector is None):
        raise ConfigError("search takes a text or --vector, one of them", hint=EXAMPLE)
    numbers = parse_vector(vector) if vector is not None else None
    with opened(flags) as lake:
        result = lake[name].search(text, vector=numbers, k=k, where=where, exact=exact)
    if flags.json:
        print_json(result.as_dict())
    else:
        show_result(result)
    return 0


def parse_vector(given: str) -> list[float]:
    """The numbers of a JSON list, or of a file that holds one.

    Raises:
        ConfigError: neither of the two.
    """
    literal = given.lstrip().startswith("[")
    try:
        value: Any = json.loads(given if literal else Path(given).read_text())
        return [float(x) for x in value]
    except (OSError, ValueError, TypeError) as error:
        fact = f"--vector {cut(given, 40)!r} is no JSON list of numbers and no file of one"
        raise ConfigError(fact, hint="--vector '[0.1, 0.2]' or --vector query.json") from error


def show_result(result: SearchResult) -> None:
    """The hits for a person, each on at most three lines of the screen's width."""
    found = count(len(result.hits), "row")
    click.secho(f"{result.index}: {found}, table at {moment(result.instant)}", bold=True)
    for rank, hit in enumerate(result.hits, start=1):
        for line, dim in zip(hit_lines(rank, hit, width()), (None, None, True), strict=False):
            click.secho(line, dim=dim)


def hit_lines(rank: int, hit: Hit, width: int) -> list[str]:
    """Rank, score and key; the text; the payload; each cut to the width."""
    where = f"  in {one_line(hit.partition)}" if hit.partition else ""
    lines = [f"{rank:>3}  {hit.score:.4f}  {one_line(hit.key)}{where}", one_line(hit.text)]
    payload = "  ".join(f"{k}={one_line(str(v))}" for k, v in hit.payload.items() if v is not None)
    if payload:
        lines.append(payload)
    return [cut(lines[0], width), *(cut(f"     {line}", width) for line in lines[1:])]
