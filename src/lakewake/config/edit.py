"""Adds an index to lakewake.toml, removes or renames one. All other text in the file stays.

The new text is parsed before it is written: it must hold the same settings as before, and differ in
that one index only.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakewake.config.file import parse_config
from lakewake.config.settings import Settings
from lakewake.config.toml import as_lines, quote
from lakewake.errors import ConfigError
from lakewake.files import write_whole
from lakewake.show.plain import spelled_out

_HEADER = re.compile(r"\s*\[\[\s*(?:index|\"index\"|'index')\s*\]\]")
#: A header of another table; those of `[index.…]` are part of an index.
_NEXT = re.compile(r"\s*\[(?!\[?\s*(?:index|\"index\"|'index')\s*\.)")
#: A header of any table.
_TABLE = re.compile(r"\s*\[")
#: A line with one of the two names of an index, up to the end of its value.
_KEY = re.compile(
    r"(?P<before>\s*(?P<key>(?P<q>[\"']?)(?:name|stored_as)(?P=q))\s*=\s*)"
    r"(?!\"\"\"|''')(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')"
)
_BETWEEN = re.compile(r"\s*(?:#.*)?")


def with_index(text: str, values: Mapping[str, Any], comment: str = "") -> str:
    """The text of a configuration, with one more index at its end."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    noted = [f"# {spelled_out(comment)}"] if comment else []
    return "\n".join([f"{text}{gap}[[index]]", *noted, *as_lines(values), ""])


def without_index(text: str, number: int) -> str:
    """The text of a configuration without the index with that number, counted from 0.

    Comments between it and the next table stay.
    """
    lines = text.splitlines(keepends=True)
    headers = [n for n, line in enumerate(lines) if _HEADER.match(line)]
    if number >= len(headers):
        return text
    first = headers[number]
    after = (n for n, line in enumerate(lines) if n > first and _NEXT.match(line))
    last = next(after, len(lines))
    while last < len(lines) and last > first + 1 and _BETWEEN.fullmatch(lines[last - 1].rstrip()):
        last -= 1
    return "".join(lines[:first] + lines[last:])


def add_index(file: Path, values: Mapping[str, Any], comment: str = "") -> Settings:
    """Write one more index to a configuration, which is created if it does not exist.

    Args:
        values: the keys of the index, as in the file.
        comment: a line above them.

    Raises:
        ConfigError: the index cannot be used, or adding it would change another setting.
    """

    def edited(text: str) -> str:
        before = parse_config(text, file, empty=True)
        new = with_index(text, values, comment)
        return _checked(new, file, lambda s: _of_others(s, str(values["name"])), before)

    return _edit(file, edited)


def append_index(file: Path, lines: str, name: str) -> Settings:
    """Write the lines of one more index, with its comments, to the end of a configuration.

    Raises:
        ConfigError: there is an index of this name, the index cannot be used, or adding it would
            change another setting.
    """

    def edited(text: str) -> str:
        before = parse_config(text, file, empty=True)
        if name in [index.name for index in before.indexes]:
            raise ConfigError(
                f"there is an index '{name}' in {file} already",
                hint="choose another name with --name NAME",
            )
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return _checked(f"{text}{gap}{lines}", file, lambda s: _of_others(s, name), before)

    return _edit(file, edited)


def remove_index(file: Path, name: str) -> Settings:
    """Remove an index from a configuration.

    Raises:
        ConfigError: the configuration has no such index, or removing it would change another
            setting.
    """

    def edited(text: str) -> str:
        before = parse_config(text, file, empty=True)
        names = [index.name for index in before.indexes]
        if name not in names:
            raise ConfigError(
                f"there is no index '{name}' in {file}", hint="check the name with `lakewake list`"
            )
        new = without_index(text, names.index(name))
        return _checked(new, file, lambda s: s, _of_others(before, name))

    return _edit(file, edited)


def rename_index(file: Path, old: str, new: str) -> Settings:
    """Give an index another name, and note the one that it has in its store.

    If that has been done already, nothing is changed.

    Raises:
        ConfigError: the configuration has no such index, the name is taken, or renaming the index
            would change another setting.
    """

    def edited(text: str) -> str:
        before = parse_config(text, file, empty=True)
        names = [index.name for index in before.indexes]
        renamed = [i for i in before.indexes if i.name == new]
        if old not in names and renamed and renamed[0].stored_as:
            return text
        _check_rename(file, names, old, new)
        at = names.index(old)
        stored = before.indexes[at].stored_name
        noted = "" if stored == new else stored
        wanted = list(before.indexes)
        wanted[at] = replace(wanted[at], name=new, stored_as=noted)
        changed = with_name(text, at, new, noted)
        return _checked(changed, file, lambda s: s, replace(before, indexes=tuple(wanted)))

    return _edit(file, edited)


def _check_rename(file: Path, names: Sequence[str], old: str, new: str) -> None:
    if old not in names:
        raise ConfigError(
            f"there is no index '{old}' in {file}", hint="check the name with `lakewake list`"
        )
    if new in names:
        raise ConfigError(
            f"there is an index '{new}' in {file} already", hint="choose another name"
        )


def with_name(text: str, number: int, name: str, stored_as: str) -> str:
    """The text of a configuration in which the index with that number has another name.

    Its comments stay.
    """
    lines = text.splitlines(keepends=True)
    headers = [n for n, line in enumerate(lines) if _HEADER.match(line)]
    if number >= len(headers):
        return text
    first = headers[number] + 1
    end = next((n for n in range(first, len(lines)) if _TABLE.match(lines[n])), len(lines))
    out = []
    for line in lines[first:end]:
        found = _KEY.match(line)
        if found is None:
            out.append(line)
        elif found["key"].strip("\"'") == "name":
            out.append(f"{found['before']}{quote(name)}{line[found.end() :]}")
            if stored_as:
                indent = line[: len(line) - len(line.lstrip())]
                newline = "" if line.endswith("\n") else "\n"
                out.append(f"{newline}{indent}stored_as = {quote(stored_as)}\n")
    return "".join(lines[:first] + out + lines[end:])


def _of_others(settings: Settings, name: str) -> Settings:
    kept = tuple(index for index in settings.indexes if index.name != name)
    return replace(settings, indexes=kept)


def _checked(text: str, file: Path, seen: Callable[[Settings], Settings], wanted: Settings) -> str:
    """The text, if nothing but the one index differs.

    Raises:
        ConfigError: it does, or the text does not parse.
    """
    if seen(parse_config(text, file, empty=True)) != wanted:
        raise ConfigError(
            f"{file} cannot be edited without changing another setting",
            hint="edit the file by hand (docs/config.md)",
        )
    return text


def _edit(file: Path, edited: Callable[[str], str]) -> Settings:
    # A link stays a link: the file that it names is replaced.
    file = file.resolve()
    with _alone(file):
        exists = file.exists()
        new = edited(file.read_text(encoding="utf-8-sig") if exists else "")
        private = exists and not file.stat().st_mode & 0o077
        write_whole(file, new.encode(), lasting=True, private=private)
    return parse_config(new, file, empty=True)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Lock out other writers, so that no index is lost between reading and writing."""
    try:
        # Lock the folder: the file itself is replaced, and the new one would not be locked.
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}",
            hint="check that its folder exists and is writable",
        ) from error
