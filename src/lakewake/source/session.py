"""The session that tables are read in: the caller's Spark, but not the caller's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from lakewake.errors import TableError
from lakewake.spark.own import active, own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings with which queries are interpreted. Their results are the same.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
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
        _made[given] = own_session(given)
    return _made[given]


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
