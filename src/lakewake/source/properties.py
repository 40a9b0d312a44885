"""Reads Java's properties format, as `java.util.Properties` does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakewake.errors import TableError
from lakewake.model.escapes import unescaped

BLANKS = " \t\f"


def parse_properties(content: bytes | str) -> dict[str, str]:
    """A properties file as a mapping. Bytes are Latin-1; other characters are escaped in the file.

    Raises:
        ValueError: a `\\u` without four hexadecimal digits.
    """
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    return dict(_pair(line) for line in _logical_lines(text))


def table_properties(base: str, content: bytes) -> dict[str, str]:
    """The properties of the table at `base`.

    Raises:
        TableError: the file is damaged.
    """
    try:
        return parse_properties(content)
    except ValueError as error:
        raise TableError(
            f"{base}/.hoodie/hoodie.properties cannot be read: {error}",
            hint="restore the file; Hudi keeps hoodie.properties.backup beside it while it writes",
        ) from error


def _pair(line: str) -> tuple[str, str]:
    """Key and value of a logical line, separated by unescaped `=`, `:` or blanks."""
    end = _end_of_key(line)
    rest = line[end:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return unescaped(line[:end]), unescaped(rest)


def _end_of_key(line: str) -> int:
    escaped = False
    for at, letter in enumerate(line):
        if not escaped and letter in "=:" + BLANKS:
            return at
        escaped = letter == "\\" and not escaped
    return len(line)


def _logical_lines(text: str) -> Iterator[str]:
    """The lines without comments and blank lines; a backslash at the end continues a line."""
    begun = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun
