"""Runs work on the rows of a Spark DataFrame in its executors; the rows never leave them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakewake.errors import LakewakeError
from lakewake.model.chunks import ScanParts
from lakewake.model.recipe import Recipe
from lakewake.model.rows import T, Work
from lakewake.progress import Reporter, Silent
from lakewake.source import arrow, columns, view
from lakewake.source.failures import reading
from lakewake.spark import executors
from lakewake.spark.showing import showing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: From this many rows on, using executors pays off.
DISTRIBUTED_ROWS = 10_000
#: Rows in a part: small, since a lost executor loses its part; large enough that upkeep does not
#: merge the result again.
PART_ROWS = 20_000
#: Approximate bytes in a part: less than Spark can pass to Python at once.
PART_BYTES = 256 * 1024 * 1024
MOST_PARTS = 10_000


def parts_of(rows: int, size: int, cores: int) -> int:
    """The number of parts to work on: at least one per core, and none too large."""
    return min(max(-(-rows // PART_ROWS), -(-size // PART_BYTES), cores), MOST_PARTS)


@dataclass(frozen=True)
class DistributedRows:
    """The rows of a `row_view`, which stay in Spark.

    Attributes:
        total: approximate number of rows.
        size: approximate bytes of all rows.
        gone: makes the error to raise if their files have vanished.
        reporter: shows how far the executors are.
    """

    path: str
    frame: DataFrame
    recipe: Recipe
    total: int
    size: int
    appeared: bool
    gone: Callable[[], Exception]
    reporter: Reporter = field(default_factory=Silent)

    def __call__(self, work: Work[T], files: Sequence[Path]) -> list[T]:
        """Do the work for each part, on the executor that has it."""
        spark = self.frame.sparkSession
        shown = showing(spark.sparkContext, self.reporter)
        with reading(self.path, self.gone), shown:
            executors.equip(spark)
            task = _Task(work, executors.send(spark, files), self.recipe, self.appeared)
            results = arrow.mapped(self._parts(), task, "result binary")
            # A retried part replaces its first try, so each part has one result.
            pickled = (one for b in arrow.collect(results) for one in b["result"].to_pylist())
            return [pickle.loads(one) for one in pickled]

    def _parts(self) -> DataFrame:
        cores = self.frame.sparkSession.sparkContext.defaultParallelism
        parts = parts_of(self.total, self.size, cores)
        if not self.recipe.vector:
            # Rows with equal texts go to the same part, so that each text is embedded once.
            return self.frame.repartition(parts, columns.SOURCE_HASH)
        least = max(cores, -(-self.size // PART_BYTES))
        if self.frame._jdf.toArrowBatchRdd().getNumPartitions() >= least:
            return self.frame
        return self.frame.repartition(parts, *columns.ID)


@dataclass(frozen=True)
class _Task:
    """The work on one part, in the form that Spark runs."""

    work: Work[Any]
    files: Mapping[Path, Path]
    recipe: Recipe
    appeared: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles, TaskContext

        # The model must not use the cores of other tasks on this executor.
        running = TaskContext.get()
        os.environ.setdefault("LAKEWAKE_THREADS", str(running.cpus() if running else 1))
        root = Path(SparkFiles.getRootDirectory())
        found = {file: root / sent for file, sent in self.files.items()}
        result = self.work(view.row_batches(batches, self.recipe, self.appeared), found)
        pickled = pa.array([pickle.dumps(result)], pa.binary())
        yield pa.RecordBatch.from_arrays([pickled], ["result"])


def read_scan_parts(spark: SparkSession, index: ScanParts) -> DataFrame:
    """The chunks of an index as a DataFrame. Executors read them from the store themselves.

    Raises:
        StoreError: executors cannot read the index.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    executors.equip(spark)
    for error in executors.ask(spark, _FirstError(index.parts[:1])):
        if error is not None:
            raise error
    schema = pa.schema([pa.field(f.name, _plain_type(f.type)) for f in index.schema])
    numbers = spark.range(len(index.parts), numPartitions=max(len(index.parts), 1))
    return arrow.mapped(numbers, _Read(index.parts, schema), from_arrow_schema(schema, True))


@dataclass(frozen=True)
class _FirstError:
    """Reads the start of scan parts on an executor; returns our error, not Spark's text of it."""

    parts: tuple[Iterable[pa.RecordBatch], ...]

    def __call__(self) -> LakewakeError | None:
        try:
            for part in self.parts:
                next(iter(part), None)
        except LakewakeError as error:
            return error
        return None


@dataclass(frozen=True)
class _Read:
    """Turns the numbers of scan parts into their rows."""

    parts: tuple[Iterable[pa.RecordBatch], ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for n in some["id"].to_pylist():
                for batch in self.parts[n]:
                    yield batch.cast(self.schema)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type without fixed-size lists, which Spark does not have."""
    return pa.list_(type_.value_type) if pa.types.is_fixed_size_list(type_) else type_
