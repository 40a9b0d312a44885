"""Writes to the Hudi table of an index, by Spark. One commit applies everything it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakewake.spark.options import WITHOUT_SERVER, is_local
from lakewake.store.hudi.layout import CELL, FRONTIER_KEY
from lakewake.store.hudi.lock import Check
from lakewake.store.hudi.table import completed, moving
from lakewake.store.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: In the error of a write job that finds another commit in the table.
STALE = "lakewake: the index has another commit"
BY_LOGS = "org.apache.hudi.table.action.compact.strategy.LogFileNumBasedCompactionStrategy"
#: Files of earlier states are removed when this many commits were made since the last time.
CLEANED_EVERY = 10
#: How many more commits stay on the timeline than are kept; twice as many before some leave it.
SPARE = 10
TABLE_OPTIONS: Mapping[str, str] = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "_id",
    "hoodie.datasource.write.partitionpath.field": CELL,
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    # A chunk's file follows from its cell, so nothing is looked up when it is written.
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
    # By event time, a chunk that is written again after its deletion could stay deleted.
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    # The usual filter takes 431 KB in every file, however small.
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.compression.codec": "UNCOMPRESSED",
    "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.compact.schedule.inline": "false",
    "hoodie.datasource.write.commitmeta.key.prefix": "lakewake.",
    # KEEP_LATEST_BY_HOURS would remove files that the oldest states of that time need.
    "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
    "hoodie.clean.trigger.strategy": "NUM_COMMITS",
    "hoodie.clean.trigger.max.commits": str(CLEANED_EVERY),
    **WITHOUT_SERVER,
}
#: For a writer that may lose the lock. It rolls back nobody's commit: that may be its successor's.
#: And it gives up its own commit if it was stopped for 20 seconds, by two lost heartbeats.
LOSABLE: Mapping[str, str] = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.client.heartbeat.interval_in_ms": "10000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
#: Options that a compaction takes from the table's own properties.
IN_PROPERTIES = ("hoodie.datasource.", "hoodie.index.type", "hoodie.bucket.")
#: The group that a thread's jobs belong to.
GROUP = "spark.jobGroup.id"
#: Settings of the session that writes: files without Spark's mark are read and written as they are.
SESSION = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
}


def failures() -> tuple[type[Exception], ...]:
    """What a write raises if it fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def on_cluster(spark: SparkSession) -> bool:
    """Whether executors are on other machines, or could be."""
    return not is_local(spark.sparkContext.master)


def writing_session(given: SparkSession) -> SparkSession:
    """A session for writing: the caller's Spark, without the caller's settings."""
    ours = given.newSession()
    for key, value in SESSION.items():
        ours.conf.set(key, value)
    return ours


def cleaning(commits: int, *, clean: bool) -> dict[str, str]:
    """The options that keep the files of the last commits, and these commits on the timeline.

    Without `clean` nothing is removed from either.
    """
    return {
        "hoodie.clean.automatic": str(clean).lower(),
        "hoodie.archive.automatic": str(clean).lower(),
        "hoodie.clean.commits.retained": str(commits),
        "hoodie.keep.min.commits": str(commits + SPARE),
        "hoodie.keep.max.commits": str(commits + 2 * SPARE),
    }


@contextmanager
def in_group(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Run the jobs of this thread as a group, which the yielded function cancels."""
    context, group = spark.sparkContext, f"lakewake-{uuid4().hex}"
    former = context.getLocalProperty(GROUP)
    context.setLocalProperty(GROUP, group)
    try:
        yield lambda: context.cancelJobGroup(group)
    finally:
        context.setLocalProperty(GROUP, former)


@dataclass(frozen=True)
class Rows:
    """Rows for the table of an index.

    Attributes:
        location: the folder of the index.
        table: the table's folder in it.
        parts: the Parquet files in it that hold the rows.
        frontier: for the metadata of the commit.
    """

    location: Location
    table: str
    parts: Sequence[str]
    dimension: int
    frontier: str

    def save(
        self,
        frame: DataFrame,
        operation: str,
        mode: str,
        *,
        extra: Mapping[str, str] | None = None,
        parallelism: int = 2,
    ) -> None:
        """Write a frame with these rows in one commit."""
        path = self.location.spark(self.table)
        save(frame, path, operation, mode, self.frontier, extra=extra, parallelism=parallelism)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as Spark reads them."""
        parts = [self.location.spark(part) for part in self.parts]
        return frame_of(spark, parts, self.dimension)


def build(spark: SparkSession, rows: Rows) -> None:
    """Write a new table with these rows."""
    parallelism = spark.sparkContext.defaultParallelism
    rows.save(rows.frame(spark), "bulk_insert", "overwrite", parallelism=parallelism)


def upsert(
    spark: SparkSession,
    rows: Rows,
    guard: Guard,
    options: Mapping[str, str],
) -> None:
    """Apply rows in one commit, unless the guard objects while the write job runs."""
    frame = rows.frame(spark)
    none = spark.sparkContext.parallelize([0], 1).mapPartitions(guard)
    frame = frame.union(spark.createDataFrame(none, frame.schema, verifySchema=False))
    rows.save(frame, "upsert", "append", extra=options)


@dataclass(frozen=True)
class Guard:
    """Yields no row. Raises if the table has other commits than those seen, or the lock is lost.

    Attributes:
        seen: the completed instants on which the rows are based.
    """

    location: Location
    table: str
    seen: tuple[str, ...]
    check: Check

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        self.check()
        if moving(completed(self.location, self.table)) != moving(self.seen):
            raise RuntimeError(STALE)
        return iter(())


def save(
    frame: DataFrame,
    path: str,
    operation: str,
    mode: str,
    frontier: str,
    *,
    extra: Mapping[str, str] | None = None,
    parallelism: int = 2,
) -> None:
    """Write rows in one commit, with the options of every index."""
    options = {
        **TABLE_OPTIONS,
        # The same for all: a table that was copied or renamed is still the same index.
        "hoodie.table.name": "lakewake_index",
        "hoodie.datasource.write.operation": operation,
        "hoodie.bulkinsert.shuffle.parallelism": str(parallelism),
        "hoodie.upsert.shuffle.parallelism": str(parallelism),
        FRONTIER_KEY: frontier,
        **(extra or {}),
    }
    frame.write.format("hudi").options(**options).mode(mode).save(path)


def frame_of(spark: SparkSession, parts: Sequence[str], dimension: int) -> DataFrame:
    """The rows of Parquet files, with a column of vectors as Hudi knows them."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

    read = spark.read.parquet(*parts)
    vector = StructField(
        "_vector", ArrayType(FloatType(), False), True, {"hudi_type": f"VECTOR({dimension})"}
    )
    fields = [vector if f.name == "_vector" else f for f in read.schema.fields]
    session = spark._jsparkSession
    schema = session.parseDataType(StructType(fields).json())
    return DataFrame(session.createDataFrame(read._jdf.toJavaRDD(), schema), spark)


def compact(spark: SparkSession, path: str, cleaning: Mapping[str, str], *, logs: int) -> None:
    """Merge logs into base files where a file has at least this many."""
    options = {
        **{k: v for k, v in TABLE_OPTIONS.items() if not k.startswith(IN_PROPERTIES)},
        **cleaning,
        "hoodie.clean.automatic": "false",
        "hoodie.compaction.strategy": BY_LOGS,
        "hoodie.compaction.logfile.num.threshold": str(logs),
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    given = ",".join(f"{key}={value}" for key, value in options.items())
    quoted = path.replace("\\", "\\\\").replace("'", "\\'")
    call = f"run_compaction(op => 'scheduleandexecute', path => '{quoted}', options => '{given}')"
    spark.sql(f"CALL {call}").collect()
