"""The session that tables are read in: the caller's Spark, but not the caller's settings.

A session's settings apply to every read in it, and some change what a read returns. For example,
`spark.sql.files.ignoreMissingFiles` and Hudi's query type leave out rows without an error. So reads
have a session of their own. It keeps only those of the caller's settings that concern speed and
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from lakewake.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
#: record their writer, and uses the machine's time zone.
PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # 4,096 rows by default: a column with that many long texts may not fit into memory.
    "spark.sql.parquet.columnarReaderBatchSize": "128",
}
#: Settings with which queries are interpreted. Their results are the same.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_ARROW_ROWS = 10_000
#: Options with which Hudi's reader reads correctly. They take precedence over hudi-defaults.conf.
READ_OPTIONS = {
    # By default columns are found by name alone: a renamed column reads as null in older files, and
    # a column that was dropped and added again shows its old values.
    "hoodie.schema.on.read.enable": "true",
    "hoodie.datasource.query.type": "snapshot",
    "hoodie.datasource.query.incremental.format": "latest_state",
    "hoodie.datasource.merge.type": "payload_combine",
    "hoodie.datasource.read.extract.partition.values.from.path": "false",
    "hoodie.datasource.read.file.index.listing.mode": "lazy",
    "hoodie.datasource.read.incr.filters": "",
    "hoodie.datasource.read.incr.skip_cluster": "false",
    "hoodie.datasource.read.incr.skip_compact": "false",
    "hoodie.datasource.read.incr.skip_insert_overwrite": "false",
    "hoodie.datasource.read.schema.use.end.instanttime": "false",
    "hoodie.datasource.streaming.startOffset": "latest",
    "hoodie.bootstrap.data.queries.only": "false",
    "hoodie.enable.data.skipping": "false",
    "hoodie.file.group.reader.enabled": "true",
    "hoodie.file.index.enable": "true",
    "hoodie.query.as.ro.table": "false",
    "hoodie.read.timeline.holes.resolution.policy": "FAIL",
}
#: Defaults of Hudi that an option of a read cannot override.
REFUSED = ("as.of.instant", "hoodie.datasource.read.paths")

T = TypeVar("T")

_made: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()


def reading_session(given: SparkSession) -> SparkSession:
    """The session that reads for `given`: the same context with our own settings.

    Raises:
        TableError: hudi-defaults.conf makes every read use another instant or other files.
    """
    if given not in _made:
        _refuse_defaults(given)
        with _python_kept():
            _made[given] = _new_session(given)
    return _made[given]


def _new_session(given: SparkSession) -> SparkSession:
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
    """The caller's settings that reads keep, and the ones that reads need."""
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


def _refuse_defaults(spark: SparkSession) -> None:
    """Raise if Hudi's defaults, which apply in every session, make correct reads impossible."""
    jvm = spark._jvm
    assert jvm is not None
    defaults = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    for key in REFUSED:
        if defaults.containsKey(key):
            raise TableError(
                f"hudi-defaults.conf sets {key}, so reads do not show the table as it is",
                hint="remove it from that file (in /etc/hudi/conf, or the folder in HUDI_CONF_DIR)",
            )


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
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Let Spark interpret queries instead of compiling them, which takes 0.3 s in a new JVM."""
    from py4j.protocol import Py4JError

    before = {key: str(spark.conf.get(key)) for key in INTERPRETED}
    try:
        for key, value in INTERPRETED.items():
            spark.conf.set(key, value)
        yield
    finally:
        # If the JVM has ended there is nothing to restore, and the read's own error must be raised.
        with suppress(Py4JError, ConnectionError):
            for key, value in before.items():
                spark.conf.set(key, value)


@contextmanager
def beside(spark: SparkSession, task: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Run a task in another thread, in the same session; yields a function that awaits its result.

    This needs a JVM thread for each Python thread, which is PySpark's default: otherwise Spark's
    thread-local state would get mixed up. Without that, the task runs when its result is wanted.
    """
    from py4j.clientserver import ClientServer
    from pyspark import inheritable_thread_target

    def within() -> T:
        with active(spark):
            return task()

    if not isinstance(spark.sparkContext._gateway, ClientServer):
        yield task
        return
    with ThreadPoolExecutor(1) as other:
        yield other.submit(inheritable_thread_target(within)).result


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
