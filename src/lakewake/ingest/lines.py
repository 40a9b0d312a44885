"""Text files of rows, read line by line in Python.

A refused line is reported with the number that an editor shows for it, even after fields with line
breaks. Nothing is dropped: what is not a `Row` is a `BadLine`.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa

from lakewake.errors import ConfigError

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGS = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Row:
    """One row; its values are strings or None (CSV), or decoded JSON."""

    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BadLine:
    """A line that was refused, and why. In a Parquet file the number is the row's, from 1."""

    file: str
    line: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {"file": self.file, "line": self.line, "reason": self.reason}


Reader = Callable[[Path], Iterator[Row | BadLine]]


class _Lines:
    """A file's lines as text. Counts them, and notes whether one was not UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._undecodable = False
        self.number = 0
        self.ended = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        raw = self._stream.readline()
        if not raw:
            self.ended = True
            raise StopIteration
        self.number += 1
        if self.number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._undecodable = True
            return raw.decode(errors="replace")

    def was_undecodable(self) -> bool:
        """Whether a line since the last call was not UTF-8."""
        was, self._undecodable = self._undecodable, False
        return was


def read_csv(file: Path) -> Iterator[Row | BadLine]:
    """The rows of a CSV file with a header line, each with the number of its first line.

    An empty field is None. A column without a name is called `column_N`.

    Raises:
        ConfigError: the file cannot be opened, or its header cannot be used.
    """
    csv.field_size_limit(sys.maxsize)
    with _open(file) as stream:
        lines = _Lines(stream)
        reader = csv.reader(lines, strict=True)
        header = _header(file, reader, lines)
        while not lines.ended:
            start = lines.number + 1
            fields = _next_record(reader, lines)
            if lines.was_undecodable():
                yield BadLine(str(file), start, "not UTF-8")
            elif isinstance(fields, str):
                yield BadLine(str(file), start, fields)
            elif len(fields) == len(header):
                values = (v or None for v in fields)
                yield Row(start, dict(zip(header, values, strict=True)))
            elif fields:
                yield BadLine(str(file), start, f"{len(fields)} fields, expected {len(header)}")


def csv_columns(file: Path) -> list[str]:
    """The columns in a CSV file's header.

    Raises:
        ConfigError: the file cannot be opened, or its header cannot be used.
    """
    with _open(file) as stream:
        lines = _Lines(stream)
        return _header(file, csv.reader(lines, strict=True), lines)


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        fact = f"{file} cannot be read: {error.strerror}"
        raise ConfigError(fact, hint="check the path and its permissions") from error


def _next_record(reader: Iterator[list[str]], lines: _Lines) -> list[str] | str:
    """The fields of the next record (none at the end of the file), or what is wrong with it."""
    start = lines.number + 1
    try:
        return next(reader, [])
    except csv.Error as error:
        if lines.ended:
            return f"a quote is never closed: lines {start} to {lines.number} were not read"
        return f"not CSV: {error}"


def _header(file: Path, reader: Iterator[list[str]], lines: _Lines) -> list[str]:
    header = _next_record(reader, lines)
    if isinstance(header, str) or lines.was_undecodable():
        raise ConfigError(
            f"{file}: the header line is not CSV in UTF-8",
            hint="save the file as CSV in UTF-8, or name its format with --format",
        )
    if not header:
        raise ConfigError(
            f"{file}: the first line is empty", hint="write the names of the columns there"
        )
    names = [name.strip() or f"column_{n}" for n, name in enumerate(header, 1)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file}: two columns are called {name!r}", hint="rename one of them")
    return names


def read_json(file: Path) -> Iterator[Row | BadLine]:
    """The rows of a file with one JSON object per line; blank lines are skipped.

    Raises:
        ConfigError: the file cannot be opened.
    """
    with _open(file) as stream:
        lines = _Lines(stream)
        for line in lines:
            if lines.was_undecodable():
                yield BadLine(str(file), lines.number, "not UTF-8")
            elif line.strip():
                yield _json_row(file, lines.number, line)


def _json_row(file: Path, number: int, line: str) -> Row | BadLine:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
        if "\\u" in line:
            # Half a surrogate pair is valid JSON but not valid text.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return BadLine(str(file), number, f"not JSON: {error}")
    if not isinstance(value, dict):
        return BadLine(str(file), number, "not a JSON object")
    return Row(number, value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


READERS: Mapping[str, Reader] = {"csv": read_csv, "json": read_json}


def csv_type(text: str | None) -> pa.DataType:
    """The narrowest type that keeps a CSV field exactly as it is written: `007` stays text."""
    if text is None:
        return pa.null()
    if _INTEGER.fullmatch(text):
        return pa.int64() if int(text) in _LONGS else pa.string()
    if _NUMBER.fullmatch(text):
        return pa.float64()
    return pa.bool_() if text in ("true", "false") else pa.string()


def json_type(value: Any) -> pa.DataType:
    """The type of a JSON value."""
    if isinstance(value, dict):
        return pa.struct([(k, json_type(v)) for k, v in value.items()])
    if isinstance(value, list):
        inner = pa.null()
        for item in value:
            inner = wider(inner, json_type(item))
        return pa.list_(inner)
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.int64() if value in _LONGS else pa.string()
    scalars = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}
    return scalars[type(value)]


TYPE_OF: Mapping[str, Callable[[Any], pa.DataType]] = {"csv": csv_type, "json": json_type}


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The narrowest type that holds both; text if nothing else does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in one}
        for f in other:
            fields[f.name] = wider(fields.get(f.name, pa.null()), f.type)
        return pa.struct(list(fields.items()))
    return pa.string()


def storable(found: pa.DataType) -> pa.DataType:
    """A type that Spark and Hudi can store: text if all was null, times as Spark has them."""
    if pa.types.is_null(found) or found == pa.struct([]):
        return pa.string()
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(found):
        return pa.list_(storable(found.value_type))
    if pa.types.is_struct(found):
        return pa.struct([(f.name, storable(f.type)) for f in found])
    return found
