"""Sessions of our own in the caller's Spark, with our settings instead of the caller's.

A session's settings apply to all that is done in it, and some change what is read or written. For
example, `spark.sql.files.ignoreMissingFiles` leaves out rows without an error. So tables and
indexes have sessions of their own. They keep only those of the caller's settings that concern speed
and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

#: Settings that are taken from the caller: where tables are, speed and memory.
KEPT = (
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.catalog",
    "spark.sql.codegen.",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.extensions",
    "spark.sql.files.max",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.hive.",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.parquet.enableVectorizedReader",
    "spark.sql.shuffle.",
    "spark.sql.sortMergeJoinExec.",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
    "spark.sql.windowExec.",
    # How Hudi reaches its files and where it spills; and the classes that merge rows, without which
    # a table with a custom merger cannot be read.
    "hoodie.aws.",
    "hoodie.common.",
    "hoodie.filesystem.",
    "hoodie.memory.",
    "hoodie.metadata.enable",
    "hoodie.write.record.merge.custom.implementation.classes",
    "hoodie.datasource.write.record.merger.impls",
)
#: Other settings with these prefixes are dropped: they could change what a read returns. All
#: remaining settings belong to the Spark context.
DROPPED = ("spark.sql.", "hoodie.", "parquet.")
#: Settings whose defaults do not work here: Spark fails for dates before 1900 in files that do not
#: record their writer, and uses the machine's time zone. ANSI mode depends on the environment.
PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # 4,096 rows by default: a column with that many long texts may not fit into memory.
    "spark.sql.parquet.columnarReaderBatchSize": "128",
}
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_ARROW_ROWS = 10_000
#: Characters that Spark takes for a pattern in the name of a file, or for an escape.
_PATTERN = re.compile(r"[{}\[\]*?\\]")
#: A setting of Hadoop's that hides files. The configured filter may be Hudi's, which hides all but
#: the newest base files. It cannot be unset, but replaced by one that hides none of them.
FILTER = "mapreduce.input.pathFilter.class"
HIDES_NOTHING = "org.apache.hadoop.mapred.OutputLogFilter"
#: From how many files on executors list them. That filter cannot be sent to executors.
LISTED_HERE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def own_session(given: SparkSession) -> SparkSession:
    """A new session with our settings, in the same context."""
    with _python_kept():
        ours = given.newSession()
    conf, wanted = ours._jsparkSession.conf(), settings_for(_settings(given))
    has = _settings(ours)
    for key in has.keys() - wanted.keys():
        if not key.startswith("spark.") or conf.isModifiable(key):
            conf.unset(key)
    for key, value in wanted.items():
        # Other `spark.` settings belong to the context, which both sessions share.
        if has.get(key) != value and (not key.startswith("spark.") or conf.isModifiable(key)):
            conf.set(key, value)
    return ours


def settings_for(given: dict[str, str]) -> dict[str, str]:
    """The caller's settings that we keep, and the ones that we need."""
    kept = {
        key: value
        for key, value in given.items()
        if key.startswith(KEPT) or not key.startswith(DROPPED)
    }
    if not 0 < int(kept.get(ARROW_ROWS, MOST_ARROW_ROWS)) <= MOST_ARROW_ROWS:
        del kept[ARROW_ROWS]
    return {**kept, **PINNED}


def _settings(spark: SparkSession) -> dict[str, str]:
    """All settings of a session, fetched in one call."""
    end = "\x1e"
    text = spark._jsparkSession.conf().getAll().mkString(end)
    pairs = (entry.partition(" -> ") for entry in text.split(end) if entry)
    return {key: value for key, _, value in pairs}


def literal(path: str) -> str:
    """The name of a file for Spark's readers, escaped so that no character is a pattern.

    Without patterns (`__globPaths__`), Spark 3.5 reads each of several such files several times.
    """
    return _PATTERN.sub(r"\\\g<0>", path)


def plain_reader(spark: SparkSession) -> DataFrameReader:
    """Spark's reader for files that are given by name; it must not leave out any of them.

    Args:
        spark: our own session.
    """
    if spark._jsparkSession.sessionState().newHadoopConf().get(FILTER) is None:
        return spark.read
    spark.conf.set(LISTED_HERE, str(2**31 - 1))
    return spark.read.option(FILTER, HIDES_NOTHING)


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make this the thread's active session while reads are built, and when a stream starts.

    Spark builds and compiles expressions with the settings of the thread's active session, not with
    those of the session that uses them.
    """
    from py4j.protocol import Py4JError

    jvm = spark._jvm
    assert jvm is not None
    sessions = jvm.org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        with _python_kept():
            yield
    finally:
        # If the JVM has ended there is nothing to restore, and the read's own error must be raised.
        with suppress(Py4JError, ConnectionError):
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


@contextmanager
def _python_kept() -> Iterator[None]:
    """Restore the PySpark globals that a new session takes over: callers expect their own there."""
    from pyspark import RDD
    from pyspark.sql import SparkSession

    active, to_frame = SparkSession._activeSession, RDD.toDF
    try:
        yield
    finally:
        SparkSession._activeSession, RDD.toDF = active, to_frame
