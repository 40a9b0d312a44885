"""Writes to the Hudi table of an index, by Spark. One commit applies everything it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from lakewake.progress import Reporter
from lakewake.spark.options import WITHOUT_SERVER, is_local
from lakewake.spark.own import active, literal, own_session, plain_reader
from lakewake.spark.showing import showing
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
#: Hudi's own defaults. If hudi-defaults.conf sets others, a write could leave out rows, make files
#: that hudi-rs cannot read, regroup chunks, or take the lock of another table.
AS_USUAL: Mapping[str, str] = {
    "hoodie.clean.async.enabled": "false",
    "hoodie.clean.failed.writes.policy": "EAGER",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.schedule.inline": "false",
    # A compaction with `skip_merge` brings deleted chunks back.
    "hoodie.datasource.merge.type": "payload_combine",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.insert.dup.policy": "none",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.insert.drop.duplicates": "false",
    "hoodie.file.group.reader.enabled": "true",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.log.compaction.inline": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    # There is no value for no lock. This one is within the process.
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    # hudi-rs reads this version.
    "hoodie.write.table.version": "9",
}
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
#: A setting of the session that writes: dates before 1583 are written as they are.
AS_THEY_ARE = {"spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"}

_made: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()


def failures() -> tuple[type[Exception], ...]:
    """What a write raises if it fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def on_cluster(spark: SparkSession) -> bool:
    """Whether executors are on other machines, or could be."""
    return not is_local(spark.sparkContext.master)


@contextmanager
def writing_session(given: SparkSession) -> Iterator[SparkSession]:
    """A session for writing: the caller's Spark, without the caller's settings."""
    if given not in _made:
        ours = own_session(given)
        for key, value in AS_THEY_ARE.items():
            ours.conf.set(key, value)
        _made[given] = ours
    with active(_made[given]):
        yield _made[given]


def as_usual(spark: SparkSession) -> Mapping[str, str]:
    """What keeps hudi-defaults.conf from changing a write; nothing if there is no such file."""
    jvm = spark._jvm
    assert jvm is not None
    defaults = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    return {} if defaults.isEmpty() else AS_USUAL


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


def shown(spark: SparkSession, reporter: Reporter) -> AbstractContextManager[None]:
    """Show the tasks of the jobs that this thread starts, if a person watches."""
    return showing(spark.sparkContext, reporter)


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
        **as_usual(frame.sparkSession),
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

    read = plain_reader(spark).parquet(*map(literal, parts))
    vector = StructField(
        "_vector", ArrayType(FloatType(), False), True, {"hudi_type": f"VECTOR({dimension})"}
    )
    fields = [vector if f.name == "_vector" else f for f in read.schema.fields]
    session = spark._jsparkSession
    schema = session.parseDataType(StructType(fields).json())
    # As Spark holds them: each float of a vector would become an object otherwise.
    rows = read._jdf.queryExecution().toRdd()
    return DataFrame(session.internalCreateDataFrame(rows, schema, False), spark)


def compact(spark: SparkSession, path: str, cleaning: Mapping[str, str], *, logs: int) -> None:
    """Merge logs into base files where a file has at least this many."""
    options = {
        **{k: v for k, v in TABLE_OPTIONS.items() if not k.startswith(IN_PROPERTIES)},
        **as_usual(spark),
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
