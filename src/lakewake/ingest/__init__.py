"""CSV, JSON lines or Parquet → a Hudi table: read and check every line, then write once.

lines.py     text files, line by line; what is not a row is a bad line
convert.py   typed rows in a Parquet file that Spark reads
table.py     the table's shape, checks of a request against it, the write
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lakewake.errors import ConfigError, LakewakeError, TableError
from lakewake.ingest.convert import (
    FORMATS,
    BadLines,
    Converted,
    Source,
    Wanted,
    convert,
    find_source,
)
from lakewake.ingest.lines import BadLine
from lakewake.ingest.table import (
    TYPES,
    Claims,
    Shape,
    Written,
    check_claims,
    check_column_names,
    existing_shape,
    new_shape,
    table_schema,
    write,
    write_options,
)
from lakewake.net import schemes
from lakewake.net.address import check_address
from lakewake.progress import Reporter, Silent
from lakewake.show.plain import count
from lakewake.spark.scratch import own_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OPERATIONS = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite")


@dataclass(frozen=True)
class IngestRequest:
    """What to write where.

    Attributes:
        source: a file, a folder of files, or a pattern.
        table: path of the table; created if nothing is there.
        format: `csv`, `json` (one object per line) or `parquet`; None: by the file names.
        key, ordering, partition, table_type, name: how to create the table (`table_type` is `cow`
            or `mor`). For an existing table, values that differ from its own are an error.
        strict: write nothing if any line is bad.
        bad_file: where to list all bad lines, as JSON lines.
        staging: a folder that Spark's executors can read too; None: one on this machine.
        options: further Hudi options, which override ours.
        untested_schemes: the table may be on a file system that was never tested.
    """

    source: str
    table: str
    format: str | None = None
    key: tuple[str, ...] = ()
    ordering: str | None = None
    partition: tuple[str, ...] = ()
    table_type: str | None = None
    name: str | None = None
    operation: str = "upsert"
    strict: bool = False
    bad_file: Path | None = None
    staging: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    untested_schemes: bool = False

    @property
    def claims(self) -> Claims:
        """What the request claims about the table's shape."""
        return Claims(self.name, self.key, self.ordering, self.partition, self.table_type)


@dataclass(frozen=True)
class IngestReport:
    """What one ingest did.

    Attributes:
        read: all rows, written or bad.
        duplicates: how many of the rows to write repeat the key of another one.
        inserted, updated, deleted: counts from the commit itself.
        bad_lines: the first few of them.
        new_columns: columns that the table did not have before.
        instant: the commit's instant; empty if there was nothing to write.
    """

    table: str
    operation: str
    created: bool
    read: int
    bad: int
    duplicates: int
    inserted: int
    updated: int
    deleted: int
    instant: str
    bad_lines: tuple[BadLine, ...] = ()
    new_columns: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def written(self) -> int:
        """Rows that the commit inserted, updated or deleted."""
        return self.inserted + self.updated + self.deleted

    def as_dict(self) -> dict[str, Any]:
        """The object that `ingest --json` prints."""
        names = ("table", "operation", "created", "read", "written", "bad", "duplicates")
        return {
            **{name: getattr(self, name) for name in names},
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "instant": self.instant,
            "bad_lines": [b.as_dict() for b in self.bad_lines],
            "new_columns": list(self.new_columns),
            "seconds": round(self.seconds, 3),
        }


def ingest(
    spark: SparkSession, request: IngestRequest, reporter: Reporter | None = None
) -> IngestReport:
    """Write files of rows to a Hudi table, in one commit.

    Raises:
        ConfigError: the request, a file or a column cannot be used; or a line is bad and
            `strict` is set.
        TableError: the table cannot be written to as asked.
    """
    started = time.monotonic()
    reporter = reporter or Silent()
    request = replace(request, table=_absolute(request.table))
    source, shape, found = check_request(request)
    schema = table_schema(spark, request.table) if found else None
    wanted = wanted_columns(request.operation, shape, schema)
    staging = request.staging or own_folder()
    with tempfile.TemporaryDirectory(dir=staging, prefix="lakewake-") as folder:
        converted, bad = _stage(request, source, wanted, Path(folder), reporter)
        new = tuple(n for n in converted.schema.names if n not in wanted.types)
        check_column_names(new)
        frame = _frame(spark, converted, schema)
        duplicates = _count_duplicates(frame, request, shape, converted)
        written = Written("")
        if converted.rows:
            with reporter.stage("write", converted.rows) as progress:
                options = write_options(shape, request.operation, uuid.uuid4().hex)
                written = write(frame, request.table, {**options, **request.options})
                progress.advance(converted.rows)
    return IngestReport(
        table=request.table,
        operation=request.operation,
        created=not found and bool(written.instant),
        read=converted.read,
        bad=bad.count,
        duplicates=duplicates,
        inserted=written.inserted,
        updated=written.updated,
        deleted=written.deleted,
        instant=written.instant,
        bad_lines=tuple(bad.first),
        new_columns=new if found and request.operation != "delete" else (),
        seconds=time.monotonic() - started,
    )


def check_request(request: IngestRequest) -> tuple[Source, Shape, bool]:
    """What can be checked without Spark: the files, the table's shape, and whether it exists.

    Raises:
        ConfigError: the request makes no sense, or does not fit these files and this table.
        TableError: the table is missing, or something else is there.
    """
    check_address(request.source, "the file of rows")
    check_address(request.table, "the table")
    choices = [
        ("operation", request.operation, OPERATIONS),
        ("format", request.format, FORMATS),
        ("type", request.table_type, tuple(TYPES)),
    ]
    for name, value, valid in choices:
        if value is not None and value not in valid:
            raise ConfigError(f"--{name} is {value!r}", hint=f"use one of {', '.join(valid)}")
    if not request.untested_schemes:
        hint = f"to try it anyway, pass --config FILE with `{schemes.KEY} = true` in the file"
        schemes.refuse_untested(request.table, hint)
    if request.staging is not None and not request.staging.is_dir():
        raise ConfigError(
            f"there is no folder {request.staging} to stage rows in",
            hint=f"mkdir -p {request.staging}",
        )
    source = find_source(request.source, request.format)
    found = existing_shape(_absolute(request.table))
    return source, _agreed_shape(request, found), found is not None


def _absolute(table: str) -> str:
    return table if "://" in table else os.path.abspath(Path(table).expanduser())


def _agreed_shape(request: IngestRequest, found: Shape | None) -> Shape:
    if found is not None:
        check_claims(request.table, found, request.claims)
        if not found.key and request.operation in ("upsert", "delete"):
            raise ConfigError(
                f"the table at {request.table} has no key, and {request.operation} needs one",
                hint="Hudi generates this table's keys: use --operation insert, bulk_insert or "
                "insert_overwrite",
            )
        return found
    if request.operation == "delete":
        raise TableError(
            f"there is no table at {request.table} to delete from", hint="check the path"
        )
    return new_shape(request.table, request.claims)


def wanted_columns(operation: str, shape: Shape, schema: StructType | None) -> Wanted:
    """What the rows must have, and their types, for this operation on a table of this shape."""
    from pyspark.sql.pandas.types import to_arrow_schema

    types = {f.name: f.type for f in to_arrow_schema(schema)} if schema is not None else {}
    ordering = (shape.ordering,) if shape.ordering else ()
    if operation == "delete":
        columns = (*shape.key, *(p for p in shape.partition if p not in shape.key))
        return Wanted(filled=shape.key, present=shape.partition, types=types, only=columns)
    return Wanted((*shape.key, *ordering), shape.partition, types, complete=True)


def _stage(
    request: IngestRequest, source: Source, wanted: Wanted, folder: Path, reporter: Reporter
) -> tuple[Converted, BadLines]:
    with _opened(request.bad_file) as sink, reporter.stage("read") as progress:
        bad = BadLines(sink)
        try:
            converted = convert(source, wanted, folder, bad, progress.advance)
        except OSError as error:
            raise ConfigError(
                f"rows cannot be converted in {folder}: {error}",
                hint="make sure that the disk has room",
            ) from error
    if request.strict and bad.count:
        raise bad_lines_error(bad)
    return converted, bad


@contextmanager
def _opened(file: Path | None) -> Iterator[TextIO | None]:
    if file is None:
        yield None
        return
    try:
        stream = file.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}",
            hint="check that its folder exists and is writable, or name another file",
        ) from error
    with stream:
        yield stream


def bad_lines_error(bad: BadLines) -> LakewakeError:
    """The error for bad lines under `strict`."""
    named = "; ".join(f"{b.file} line {b.line}: {b.reason}" for b in bad.first)
    more = f"; and {bad.count - len(bad.first)} more" if bad.count > len(bad.first) else ""
    return ConfigError(
        f"{count(bad.count, 'bad line')}: {named}{more}",
        hint="correct them, or leave out --strict to write the other lines",
    )


def _frame(spark: SparkSession, converted: Converted, schema: StructType | None) -> DataFrame:
    """The converted rows; columns that the table has get exactly its types."""
    from pyspark.sql.functions import col

    frame = spark.read.parquet(converted.file.as_uri())
    known = {f.name: f for f in schema.fields} if schema is not None else {}
    return frame.select(
        *(
            col(n).cast(known[n].dataType).alias(n, metadata=known[n].metadata)
            if n in known
            else col(n)
            for n in frame.columns
        )
    )


def _count_duplicates(
    frame: DataFrame, request: IngestRequest, shape: Shape, converted: Converted
) -> int:
    """How many rows share their row id with another row of the files.

    Raises:
        ConfigError: there are some, and nothing decides which of them is the newest.
    """
    if not converted.rows or not shape.key:
        return 0
    ids = dict.fromkeys((*shape.key, *shape.partition))
    duplicates = converted.rows - int(frame.select(*ids).distinct().count())
    if duplicates and request.operation == "upsert" and not shape.ordering:
        repeated = count(duplicates, "row")
        raise ConfigError(
            f"the files hold {repeated} with the key of another row, and the table has no ordering "
            "field",
            hint="remove them, or create the table with --ordering COLUMN: the greatest then wins",
        )
    return duplicates
