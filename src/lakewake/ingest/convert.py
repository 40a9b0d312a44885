"""Files of rows → typed Parquet that Spark can read, and the lines that could not be converted.

Nothing here needs Spark.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakewake.errors import ConfigError
from lakewake.ingest.lines import READERS, TYPE_OF, BadLine, Row, csv_columns, storable, wider

#: How many bad lines are listed; all are counted.
LISTED = 20
FORMATS = ("csv", "json", "parquet")
_ENDINGS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_BLOCK = 5_000


@dataclass
class BadLines:
    """Counts bad lines, keeps the first few, and writes all of them to `sink`, if any."""

    sink: TextIO | None = None
    count: int = 0
    first: list[BadLine] = field(default_factory=list)

    def add(self, bad: BadLine) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(bad)
        if self.sink:
            self.sink.write(json.dumps(bad.as_dict(), ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Source:
    """The files to read, all of one format."""

    files: tuple[Path, ...]
    format: str


@dataclass(frozen=True)
class Wanted:
    """What the rows must become.

    Attributes:
        filled: columns that must have a value in every row.
        present: columns that must exist, but may be empty.
        types: types decided beforehand, such as those of an existing table.
        complete: a file with a fixed set of columns must have every column of `types`.
        only: take these columns and no others; None takes all.
    """

    filled: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    complete: bool = False
    only: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Converted:
    """The result: one Parquet file, how many rows it has, and how many were read."""

    file: Path
    schema: pa.Schema
    read: int
    rows: int


def find_source(source: str, format: str | None = None) -> Source:
    """The files at a path, in a folder or of a pattern, and the format they share.

    Raises:
        ConfigError: there are none, or their names do not imply one format.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        found = [p for p in path.iterdir() if p.suffix.lower() in _ENDINGS]
    else:
        found = [path] if path.is_file() else [Path(p) for p in glob.glob(str(path))]
    files = tuple(sorted(p for p in found if p.is_file()))
    if not files:
        raise ConfigError(
            f"there is no file of rows at {source}",
            hint=f"name a file, a folder or a pattern of {', '.join(_ENDINGS)} files",
        )
    return Source(files, format or _format_by_names(files))


def _format_by_names(files: Sequence[Path]) -> str:
    formats = {_ENDINGS.get(f.suffix.lower(), "") for f in files}
    if len(formats) > 1 or "" in formats:
        names = ", ".join(f.name for f in files[:5])
        raise ConfigError(
            f"the names of {names} do not imply one format",
            hint=f"give --format, one of {', '.join(FORMATS)}",
        )
    return formats.pop()


def convert(
    source: Source, wanted: Wanted, folder: Path, bad: BadLines, advance: Callable[[int], None]
) -> Converted:
    """Read the files, convert what can be, and write it into `folder` as Parquet.

    Args:
        advance: called with the number of rows just converted.

    Raises:
        ConfigError: a file cannot be read at all, or lacks a column.
    """
    found = _parquet_schema(source) if source.format == "parquet" else _text_schema(source)
    target = _target(found, wanted, fixed=source.format != "json")
    file = folder / "rows.parquet"
    rows = 0
    with pq.ParquetWriter(file, target) as writer:
        for block in _blocks(source, bad):
            batch = _take(block, target, wanted.filled, bad)
            writer.write_batch(batch)
            rows += batch.num_rows
            advance(batch.num_rows)
    return Converted(file, target, rows + bad.count, rows)


def _target(found: pa.Schema, wanted: Wanted, *, fixed: bool) -> pa.Schema:
    """The schema to write: the types decided beforehand, then those found."""
    needed = [*wanted.filled, *wanted.present, *(wanted.types if wanted.complete and fixed else ())]
    lacking = dict.fromkeys(c for c in needed if c not in found.names)
    # A JSON file in which no line is a row has no columns; its bad lines say why.
    if lacking and found.names:
        raise ConfigError(
            f"the rows have no column {', '.join(lacking)}",
            hint=f"add it: their columns are {', '.join(found.names)}; an empty field is null",
        )
    types = {**wanted.types}
    for name, kind in [
        *zip(found.names, found.types, strict=True),
        *((n, pa.string()) for n in needed),
    ]:
        types.setdefault(name, kind)
    return pa.schema([(n, types[n]) for n in (types if wanted.only is None else wanted.only)])


@dataclass(frozen=True)
class _Block:
    """Some rows of one file. Columns from text files are text; those from Parquet have a type."""

    file: str
    lines: Sequence[int]
    columns: Mapping[str, pa.Array]


def _blocks(source: Source, bad: BadLines) -> Iterator[_Block]:
    for file in source.files:
        if source.format == "parquet":
            yield from _parquet_blocks(file)
        else:
            yield from _text_blocks(file, source.format, bad)


def _parquet_schema(source: Source) -> pa.Schema:
    schemas = [_open_parquet(f).schema_arrow.remove_metadata() for f in source.files]
    for file, schema in zip(source.files, schemas, strict=True):
        _refuse_other_columns(file, schema.names, schemas[0].names)
    return pa.schema([(f.name, storable(f.type)) for f in schemas[0]])


def _open_parquet(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        fact = f"{file} cannot be read as Parquet: {error}"
        raise ConfigError(fact, hint="leave the file out, or name its format: --format") from error


def _refuse_other_columns(file: Path, names: Sequence[str], first: Sequence[str]) -> None:
    if set(names) != set(first):
        raise ConfigError(
            f"{file} has different columns from the files before it",
            hint="give all files the same columns; these differ: "
            f"{', '.join(sorted(set(names) ^ set(first)))}",
        )


def _parquet_blocks(file: Path) -> Iterator[_Block]:
    start = 1
    for batch in _open_parquet(file).iter_batches(_BLOCK):
        lines = range(start, start + batch.num_rows)
        yield _Block(str(file), lines, dict(zip(batch.schema.names, batch.columns, strict=True)))
        start += batch.num_rows


def _text_schema(source: Source) -> pa.Schema:
    """The narrowest types that hold every value of every file, found in one pass."""
    type_of = TYPE_OF[source.format]
    types = dict.fromkeys(_csv_names(source) if source.format == "csv" else (), pa.null())
    for file in source.files:
        for row in READERS[source.format](file):
            for name, value in row.values.items() if isinstance(row, Row) else ():
                known = types.get(name, pa.null())
                # Text holds everything: no need to look further.
                types[name] = known if known == pa.string() else wider(known, type_of(value))
    return pa.schema([(name, storable(found)) for name, found in types.items()])


def _csv_names(source: Source) -> list[str]:
    first = csv_columns(source.files[0])
    for file in source.files[1:]:
        _refuse_other_columns(file, csv_columns(file), first)
    return first


def _text_blocks(file: Path, format: str, bad: BadLines) -> Iterator[_Block]:
    lines = READERS[format](file)
    while part := list(islice(lines, _BLOCK)):
        for line in part:
            if isinstance(line, BadLine):
                bad.add(line)
        rows = [line for line in part if isinstance(line, Row)]
        names = dict.fromkeys(name for row in rows for name in row.values)
        columns = {n: pa.array([_text(r.values.get(n)) for r in rows], pa.string()) for n in names}
        yield _Block(str(file), [r.line for r in rows], columns)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _take(block: _Block, target: pa.Schema, filled: Sequence[str], bad: BadLines) -> pa.RecordBatch:
    """The rows of a block that can be converted. The others are added to `bad`."""
    faults: dict[int, str] = {}
    columns: dict[str, pa.Array] = {}
    for want in target:
        source = block.columns.get(want.name, pa.nulls(len(block.lines), want.type))
        columns[want.name], broken = _convert(source, want.type)
        for row in broken:
            faults.setdefault(row, f"{want.name}: {_shown(source[row])} is not {want.type}")
    for name in filled:
        for row in _blank(columns[name]):
            faults.setdefault(row, f"{name} is empty")
    for row in sorted(faults):
        bad.add(BadLine(block.file, block.lines[row], faults[row]))
    batch = pa.RecordBatch.from_pydict(columns, schema=target)
    return batch.filter(pa.array([n not in faults for n in range(batch.num_rows)], pa.bool_()))


def _shown(value: pa.Scalar) -> str:
    text = str(value.as_py())
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _blank(column: pa.Array) -> list[int]:
    values = column.to_pylist()
    return [n for n, v in enumerate(values) if v is None or (isinstance(v, str) and not v.strip())]


def _convert(column: pa.Array, to: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The column as another type, with null for values that do not fit, and their positions."""
    try:
        return _cast(column, to), []
    except (pa.ArrowException, ValueError, TypeError):
        pass
    values, broken = [], []
    for n in range(len(column)):
        try:
            values.append(_cast(column[n : n + 1], to))
        except (pa.ArrowException, ValueError, TypeError):
            values.append(pa.nulls(1, to))
            broken.append(n)
    return pa.concat_arrays(values), broken


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    is_text = pa.types.is_string(column.type)
    if is_text and pa.types.is_nested(to):
        return pa.array([None if v is None else json.loads(v) for v in column.to_pylist()], to)
    if is_text and pa.types.is_timestamp(to) and to.tz:
        try:
            return column.cast(to)
        except pa.ArrowInvalid:
            # A time without a zone is UTC.
            return column.cast(pa.timestamp(to.unit)).cast(to)
    # Spark has no nanoseconds; they are cut off.
    return column.cast(to, safe=not pa.types.is_timestamp(column.type))
