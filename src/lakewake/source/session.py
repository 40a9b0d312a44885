"""The session that tables are read in: the caller's Spark, but not the caller's settings.

A setting of a session reaches every read in it, and some change what a read returns: without an
error `spark.sql.files.ignoreMissingFiles` leaves rows out, and so does Hudi's query type. So reads
have a session of their own, which keeps of the caller's settings those about speed and memory.
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

#: Settings of Spark SQL that stay the caller's: where tables are, how fast and in how much memory.
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
    # How Hudi gets at its files and where it spills; and the classes by which a table says that
    # its rows are merged, without which such a table cannot be read.
    "hoodie.aws.",
    "hoodie.common.",
    "hoodie.filesystem.",
    "hoodie.memory.",
    "hoodie.metadata.enable",
    "hoodie.write.record.merge.custom.implementation.classes",
    "hoodie.datasource.write.record.merger.impls",
)
#: What could change what a read returns; of anything else Spark knows nothing but its context's.
DROPPED = ("spark.sql.", "hoodie.", "parquet.")
#: Where Spark's own default is not what we need: it fails for dates before 1900 of files that do
#: not say who wrote them, and follows the machine's time zone.
PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # 4,096 rows by default, of which a column of long texts may not fit into memory.
    "spark.sql.parquet.columnarReaderBatchSize": "128",
}
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_ARROW_ROWS = 10_000
#: Hudi's own reader, as it reads right, whatever hudi-defaults.conf says: options of a read win.
READ_OPTIONS = {
    # By default columns are found by name alone: one that was renamed reads as null in older files,
    # and one that was dropped and added again shows its old values.
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
#: What cannot be taken back by an option of a read.
REFUSED = ("as.of.instant", "hoodie.datasource.read.paths")

T = TypeVar("T")

_made: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()


def reading_session(given: SparkSession) -> SparkSession:
    """The session that reads for `given`: the same context, settings of our own.

    Raises:
        TableError: hudi-defaults.conf has every read made at another instant or of other files.
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
        # What is not of SQL is the context's, the same for both.
        if has.get(key) != value and (not key.startswith("spark.") or conf.isModifiable(key)):
            conf.set(key, value)
    return ours


def settings_for(given: dict[str, str]) -> dict[str, str]:
    """Of a caller's settings those that reads keep, and those that they need."""
    kept = {
        key: value
        for key, value in given.items()
        if key.startswith(KEPT) or not key.startswith(DROPPED)
    }
    if not 0 < int(kept.get(ARROW_ROWS, MOST_ARROW_ROWS)) <= MOST_ARROW_ROWS:
        del kept[ARROW_ROWS]
    return {**kept, **PINNED}


def _settings(spark: SparkSession) -> dict[str, str]:
    """All that is set in a session, fetched at once."""
    end = "\x1e"
    text = spark._jsparkSession.conf().getAll().mkString(end)
    pairs = (entry.partition(" -> ") for entry in text.split(end) if entry)
    return {key: value for key, _, value in pairs}


def _refuse_defaults(spark: SparkSession) -> None:
    """Hudi's own defaults reach reads from under a session."""
    jvm = spark._jvm
    assert jvm is not None
    defaults = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    for key in REFUSED:
        if defaults.containsKey(key):
            raise TableError(
                f"hudi-defaults.conf sets {key}, so that no read shows the table as it is",
                hint="take it out of that file (/etc/hudi/conf, or the folder HUDI_CONF_DIR names)",
            )


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Take what Spark keeps by thread from this session while reads are put together.

    Expressions are made by the settings of the thread's active session, not of the one that uses
    them.
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
        # A JVM that has ended keeps nothing, and must not hide how the read ended.
        with suppress(Py4JError, ConnectionError):
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


@contextmanager
def beside(spark: SparkSession, task: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Do a task in another thread meanwhile, in the same session; gives what waits for its result.

    Only if each thread of Python has one of the JVM to itself, as is PySpark's default: what Spark
    keeps by thread would otherwise get mixed up. Else the task is done when its result is wanted.
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
    """Undo what a new session takes for itself in PySpark: callers expect it to be of theirs."""
    from pyspark import RDD
    from pyspark.sql import SparkSession

    active, to_frame = SparkSession._activeSession, RDD.toDF
    try:
        yield
    finally:
        SparkSession._activeSession, RDD.toDF = active, to_frame
