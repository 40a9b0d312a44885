"""What a command prints: one JSON object, or words for a person."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import click

from lakewake.model.plain import json_value as json_value


def print_json(value: Mapping[str, Any]) -> None:
    """The one object of a `--json` run, on one line."""
    print(json.dumps(json_value(value), ensure_ascii=False, allow_nan=False), flush=True)


def width() -> int:
    """How many characters a line of the screen holds."""
    return shutil.get_terminal_size().columns


def print_block(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """A heading and aligned lines of `name  value`."""
    click.secho(title, bold=True)
    facts = list(facts)
    indent = 4 + max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        lines = textwrap.wrap(value, max(width() - indent, 20), break_on_hyphens=False) or [""]
        click.echo(click.style(f"  {name}".ljust(indent), dim=True) + lines[0])
        for line in lines[1:]:
            click.echo(" " * indent + line)


def one_line(text: str) -> str:
    """The text without line breaks and without characters that could steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str, width: int) -> str:
    """At most `width` characters, with a mark where something was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def count(n: int, one: str, many: str = "") -> str:
    """`1 row`, `2,000 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def moment(instant: str) -> str:
    """An instant of the timeline, readable: `2025-03-01 12:00:00.123`, or as it is."""
    if len(instant) < 14 or not instant.isdigit():
        return instant or "none"
    day = f"{instant[:4]}-{instant[4:6]}-{instant[6:8]}"
    clock = f"{instant[8:10]}:{instant[10:12]}:{instant[12:14]}"
    return f"{day} {clock}" + (f".{instant[14:]}" if instant[14:] else "")


def duration(seconds: float) -> str:
    """`320 ms`, `4.2 s`, `3 min`, `2.5 h`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
