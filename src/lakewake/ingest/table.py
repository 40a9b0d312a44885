"""The Hudi table that rows are written to: its shape, what a request may ask of it, the write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakewake.errors import ConfigError, TableError
from lakewake.source.properties import table_properties
from lakewake.source.storage import Storage
from lakewake.source.timeline import META_COLUMNS
from lakewake.spark.options import WITHOUT_SERVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
#: Every ingest writes its own value under this key into the commit, to find the commit afterwards.
MARK = "lakewake.ingest"

#: Hudi's messages can hold a whole stack trace.
_REASON = 400
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Shape:
    """How a table is laid out; fixed when it is created.

    Attributes:
        type: `cow` or `mor`.
        hive_style: partition folders are called `country=Italy` rather than `Italy`.
    """

    name: str
    key: tuple[str, ...]
    ordering: str | None = None
    partition: tuple[str, ...] = ()
    type: str = "cow"
    hive_style: bool = True


@dataclass(frozen=True)
class Claims:
    """What a request claims about the table's shape; None or empty if it claims nothing."""

    name: str | None = None
    key: tuple[str, ...] = ()
    ordering: str | None = None
    partition: tuple[str, ...] = ()
    type: str | None = None


@dataclass(frozen=True)
class Written:
    """What one commit did, as counted by the commit itself."""

    instant: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def existing_shape(path: str) -> Shape | None:
    """The shape of the table at a path, or None if nothing is there.

    Raises:
        TableError: something else is there.
    """
    storage = Storage(path)
    properties = storage.read(".hoodie/hoodie.properties") if storage.exists() else None
    if properties is not None:
        return shape_of(table_properties(storage.base, properties))
    if storage.holds_something():
        raise TableError(
            f"{path} holds something other than a Hudi table", hint="name a new or empty folder"
        )
    return None


def shape_of(properties: Mapping[str, str]) -> Shape:
    """The shape in `hoodie.properties`."""
    ordering = properties.get("hoodie.table.ordering.fields") or properties.get(
        "hoodie.table.precombine.field"
    )
    types = {hudi: ours for ours, hudi in TYPES.items()}
    return Shape(
        name=properties.get("hoodie.table.name", ""),
        key=_columns(properties.get("hoodie.table.recordkey.fields", "")),
        ordering=ordering or None,
        partition=_columns(properties.get("hoodie.table.partition.fields", "")),
        type=types[properties.get("hoodie.table.type", "COPY_ON_WRITE")],
        hive_style=properties.get("hoodie.datasource.write.hive_style_partitioning") == "true",
    )


def _columns(text: str) -> tuple[str, ...]:
    """The columns of a list such as `country:simple,year`."""
    return tuple(part.split(":")[0].strip() for part in text.split(",") if part.strip())


def new_shape(path: str, claims: Claims) -> Shape:
    """The shape of a table to be created.

    Raises:
        ConfigError: no key is named.
    """
    if not claims.key:
        raise ConfigError(
            f"there is no table at {path} yet, and no key to create it with",
            hint="name the column that identifies a row: --key COLUMN",
        )
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return Shape(
        name=claims.name or re.sub(r"\W", "_", last),
        key=claims.key,
        ordering=claims.ordering,
        partition=claims.partition,
        type=claims.type or "cow",
    )


def check_claims(path: str, shape: Shape, claims: Claims) -> None:
    """Check what a request claims about a table.

    Raises:
        ConfigError: a claim is wrong.
    """
    for what in ("name", "key", "ordering", "partition", "type"):
        claimed, true = getattr(claims, what), getattr(shape, what)
        if claimed and claimed != true:
            raise ConfigError(
                f"the table at {path} has {what} {_shown(true)}, not {_shown(claimed)}",
                hint=f"leave out the {what}: an existing table keeps its own",
            )


def _shown(value: str | tuple[str, ...] | None) -> str:
    return (value if isinstance(value, str) else ", ".join(value or ())) or "none"


def check_column_names(names: Iterable[str]) -> None:
    """Check that Hudi can store columns with these names.

    Raises:
        ConfigError: it cannot.
    """
    wrong = [n for n in names if not _COLUMN.fullmatch(n)]
    if wrong:
        raise ConfigError(
            f"Hudi cannot store columns called {', '.join(map(repr, wrong))}",
            hint="use letters, digits and _, not beginning with a digit",
        )


def table_schema(spark: SparkSession, path: str) -> StructType:
    """The table's own columns, as Spark reads them."""
    from pyspark.sql.types import StructType

    schema = spark.read.format("hudi").load(path).schema
    return StructType([f for f in schema.fields if f.name not in META_COLUMNS])


def write_options(shape: Shape, operation: str, mark: str) -> dict[str, str]:
    """Hudi's options for one write."""
    options = {
        "hoodie.table.name": shape.name,
        "hoodie.datasource.write.table.type": TYPES[shape.type],
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.partitionpath.field": ",".join(shape.partition),
        "hoodie.datasource.write.hive_style_partitioning": str(shape.hive_style).lower(),
        "hoodie.datasource.write.commitmeta.key.prefix": MARK,
        MARK: mark,
        **WITHOUT_SERVER,
    }
    if shape.key:
        options["hoodie.datasource.write.recordkey.field"] = ",".join(shape.key)
    if shape.ordering:
        options["hoodie.datasource.write.precombine.field"] = shape.ordering
    return options


def write(frame: DataFrame, path: str, options: Mapping[str, str]) -> Written:
    """Write the rows and return what the commit did.

    Raises:
        TableError: Hudi refused; the error reports whether the commit landed anyway.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    spark = frame.sparkSession
    try:
        frame.write.format("hudi").options(**options).mode("append").save(path)
    except (Py4JError, PySparkException) as error:
        found = _find_commit(spark, path, options[MARK]) if existing_shape(path) else None
        landed = f"commit {found.instant} landed" if found else "nothing was committed"
        fact = f"writing to {path} failed: {_reason(error)}"
        again = "run it again with -v to see Spark's log"
        hint = "check the table before you run it again" if found else again
        raise TableError(fact, landed=landed, hint=hint) from error
    written = _find_commit(spark, path, options[MARK])
    if written is None:
        raise TableError(
            f"the write to {path} ended, but its commit is not on the timeline",
            landed="it may have landed: another writer may have archived it, or rolled it back",
            hint="check the table, and run it again if the changes are not there",
        )
    return written


def _reason(error: Exception) -> str:
    """The message of the innermost cause, which is the most specific."""
    cause: Any = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = str(error) if cause is None else f"{cause.getMessage() or cause.getClass().getName()}"
    return " ".join(text.split())[:_REASON]


def _find_commit(spark: SparkSession, path: str, mark: str) -> Written | None:
    """The completed commit that carries this mark, searched from the newest."""
    for instant, metadata in _commits(spark, path):
        if (metadata.get("extraMetadata") or {}).get(MARK) == mark:
            stats = [s for p in metadata["partitionToWriteStats"].values() for s in p]
            return Written(
                instant,
                sum(s["numInserts"] for s in stats),
                sum(s["numUpdateWrites"] for s in stats),
                sum(s["numDeletes"] for s in stats),
            )
    return None


def _commits(spark: SparkSession, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    jvm: Any = spark._jvm
    hudi = jvm.org.apache.hudi
    conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(spark._jsc.hadoopConfiguration())
    table = hudi.common.table
    client = table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(path).build()
    timeline = client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
    for instant in reversed(list(timeline.getInstants())):
        metadata = table.timeline.TimelineUtils.getCommitMetadata(instant, timeline)
        yield instant.requestedTime(), json.loads(metadata.toJsonString())
