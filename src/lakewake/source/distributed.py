"""Work on the rows of a Spark DataFrame by its executors, who keep the rows to themselves."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakewake.errors import LakewakeError
from lakewake.model.chunks import ScanParts
from lakewake.model.recipe import Recipe
from lakewake.model.rows import T, Work
from lakewake.source import arrow, columns, view
from lakewake.source.failures import reading
from lakewake.spark import executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: From so many rows on, the way to executors pays.
DISTRIBUTED_ROWS = 10_000
#: Rows in a part: what is lost with an executor, and larger than what upkeep would merge again.
PART_ROWS = 20_000
#: Bytes in a part, about: less than Spark can hand to Python at once.
PART_BYTES = 256 * 1024 * 1024
MOST_PARTS = 10_000


def parts_of(rows: int, size: int, cores: int) -> int:
    """In how many parts rows are worked on: every core has one, and none is too large."""
    return min(max(-(-rows // PART_ROWS), -(-size // PART_BYTES), cores), MOST_PARTS)


@dataclass(frozen=True)
class DistributedRows:
    """The rows of a `row_view`, which stay where they are.

    Attributes:
        total: how many there are, about.
        size: how many bytes they have, about.
        gone: what it means that files of theirs vanished.
    """

    path: str
    frame: DataFrame
    recipe: Recipe
    total: int
    size: int
    appeared: bool
    gone: Callable[[], Exception]

    def __call__(self, work: Work[T], files: Sequence[Path]) -> list[T]:
        """Do the work for each part, on whichever executor has it."""
        spark = self.frame.sparkSession
        with reading(self.path, self.gone):
            executors.equip(spark)
            task = _Task(work, executors.send(spark, files), self.recipe, self.appeared)
            made = arrow.mapped(self._parts(), task, "made binary")
            # A part that is tried again replaces its first try: each answers once.
            return [pickle.loads(one) for b in arrow.collect(made) for one in b["made"].to_pylist()]

    def _parts(self) -> DataFrame:
        cores = self.frame.sparkSession.sparkContext.defaultParallelism
        parts = parts_of(self.total, self.size, cores)
        if not self.recipe.vector:
            # Equal texts come together, so that one of them is embedded.
            return self.frame.repartition(parts, columns.SOURCE_HASH)
        least = max(cores, -(-self.size // PART_BYTES))
        if self.frame._jdf.toArrowBatchRdd().getNumPartitions() >= least:
            return self.frame
        return self.frame.repartition(parts, *columns.ID)


@dataclass(frozen=True)
class _Task:
    """The work on one part, as Spark runs it."""

    work: Work[Any]
    files: Mapping[Path, Path]
    recipe: Recipe
    appeared: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles, TaskContext

        # The model must not take the cores of the tasks beside it.
        running = TaskContext.get()
        os.environ.setdefault("LAKEWAKE_THREADS", str(running.cpus() if running else 1))
        root = Path(SparkFiles.getRootDirectory())
        found = {file: root / place for file, place in self.files.items()}
        made = self.work(view.row_batches(batches, self.recipe, self.appeared), found)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(made)], pa.binary())], ["made"])


def read_scan_parts(spark: SparkSession, index: ScanParts) -> DataFrame:
    """The chunks of an index as a DataFrame that executors read from the store themselves.

    Raises:
        StoreError: executors cannot read it.
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
    """Whether an executor can read a piece. Spark would tell our error as text; this returns it."""

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
    """Turns numbers of pieces into their rows."""

    parts: tuple[Iterable[pa.RecordBatch], ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for n in some["id"].to_pylist():
                for batch in self.parts[n]:
                    yield batch.cast(self.schema)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Spark knows no lists of fixed length."""
    return pa.list_(type_.value_type) if pa.types.is_fixed_size_list(type_) else type_
