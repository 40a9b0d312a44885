"""Runs tasks of a store on the executors of a Spark cluster."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lakewake.errors import LakewakeError, StoreError
from lakewake.progress import Reporter, Silent
from lakewake.spark.executors import equip
from lakewake.spark.options import is_local
from lakewake.spark.showing import showing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
#: How many threads Lance computes with.
THREADS = "LANCE_CPU_THREADS"


class SparkExecutors:
    """The executors of a session.

    Args:
        reporter: shows how many tasks are done.
    """

    def __init__(self, spark: SparkSession, reporter: Reporter | None = None) -> None:
        self._spark, self._reporter = spark, reporter or Silent()

    @classmethod
    def of(cls, spark: SparkSession, reporter: Reporter | None = None) -> SparkExecutors | None:
        """The executors of a cluster; None in local mode."""
        return None if is_local(spark.sparkContext.master) else cls(spark, reporter)

    @property
    def parallel(self) -> int:
        """The number of cores of all executors."""
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """The result of each task, in the order of the tasks.

        Raises:
            StoreError: a task failed, or executors cannot run it.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        context = self._spark.sparkContext
        pickled = [pickle.dumps(task) for task in tasks]
        try:
            equip(self._spark)
            with showing(context, self._reporter):
                found = context.parallelize(pickled, max(1, len(pickled))).map(_done).collect()
        except (Py4JError, PySparkException, ConnectionError, LakewakeError) as error:
            raise _failed(error) from error
        return [_result(one) for one in map(pickle.loads, found)]


def _done(task: bytes) -> bytes:
    """Run a task on an executor. Our errors are returned: Spark would report only text."""
    from pyspark import TaskContext

    # Read when Lance is imported, by unpickling: other tasks need the other cores.
    running = TaskContext.get()
    os.environ.setdefault(THREADS, str(running.cpus() if running else 1))
    try:
        return pickle.dumps(pickle.loads(task)())
    except LakewakeError as error:
        return pickle.dumps(error)


def _result(found: Any) -> Any:
    if isinstance(found, LakewakeError):
        raise _failed(found) from found
    return found


def _failed(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, LakewakeError):
        return StoreError(error.fact, hint=error.hint)
    lines = str(error).splitlines() or [type(error).__name__]
    return StoreError(
        f"executors could not do the upkeep: {lines[0]}",
        hint="run it with -v to see Spark's output",
    )
