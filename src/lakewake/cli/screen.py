"""What a command prints: one JSON object, or text for a person."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import click

from lakewake.show.plain import count as count
from lakewake.show.plain import duration as duration
from lakewake.show.plain import in_bytes as in_bytes
from lakewake.show.plain import json_value as json_value
from lakewake.show.plain import moment as moment
from lakewake.show.plain import spelled_out
from lakewake.show.redact import without_secrets


class Discreet(io.TextIOWrapper):
    """Standard error without secrets: libraries write logs, warnings and tracebacks there too."""

    def write(self, text: str) -> int:
        super().write(without_secrets(text))
        return len(text)


def discreet(stream: io.TextIOWrapper) -> Discreet:
    """A redacting stream to the same file, which stays open for others that write to it."""
    binary = io.BufferedWriter(io.FileIO(stream.fileno(), "wb", closefd=False))
    return Discreet(binary, encoding=stream.encoding, errors="replace", line_buffering=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print the one object of a `--json` run, on one line."""
    text = json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)
    print(_UNSEEN.sub(lambda found: _escaped(found[0]), text), flush=True)


#: Characters that JSON leaves as they are and that a terminal may obey, or hide.
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def width() -> int:
    """The screen's width in characters; unlimited for a file or a pipe."""
    if "COLUMNS" not in os.environ and not sys.stdout.isatty():
        return sys.maxsize
    return shutil.get_terminal_size().columns


def selection_facts(where: str, date: str, limit: int, name: str) -> list[tuple[str, str]]:
    """How the rows of an index were selected, as lines of `name  value`."""
    on = f", on {date}" if date else ""
    facts = [("rows where", f"{one_line(where)}{on}")] if where else []
    if limit:
        rest = f"`lakewake sync {name}` completes it"
        facts.append(("partial", f"only the first {count(limit, 'row')} of a first try; {rest}"))
    return facts


def print_block(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a heading and aligned lines of `name  value`, without secrets."""
    click.secho(spelled_out(without_secrets(title)), bold=True)
    facts = [(name, without_secrets(value)) for name, value in facts]
    indent = 4 + max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        lines = textwrap.wrap(
            spelled_out(value), max(width() - indent, 20), break_on_hyphens=False
        ) or [""]
        click.echo(click.style(f"  {name}".ljust(indent), dim=True) + lines[0])
        for line in lines[1:]:
            click.echo(" " * indent + line)


def one_line(text: str) -> str:
    """The text without line breaks and without characters that could control a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str, width: int) -> str:
    """At most `width` characters, with a mark where something was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
