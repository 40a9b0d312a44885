"""All rows within a distance, and whole indexes: scan parts read by executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakewake.batch.blocks import Comparing, Group
from lakewake.batch.nearest import ROUNDING, as_score, closeness, lengths, scaled
from lakewake.batch.rows import CHECKED, OWN, Pinned, check_chunks, spark_schema
from lakewake.source import arrow
from lakewake.store.ranking import as_matrix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Columns of a chunk on its way.
SCORE, ID = "_score", "_id"


def rows_within(spark: SparkSession, find: Within, payload: list[str]) -> DataFrame:
    """The rows within a distance, nearest first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_schema

    found = arrow.mapped(
        _numbers(spark, len(find.groups)), find, from_arrow_schema(find.shape, True)
    )
    best = [sf.desc(SCORE), sf.col(ID)]
    by_row = Window.partitionBy("_partition", "_key")
    # In one partition: a rank counts all rows. Spark sorts on disk what does not fit into memory.
    ranked = (
        found.repartition(1)
        .withColumn("best", sf.row_number().over(by_row.orderBy(*best)))
        .where("best = 1")
        .withColumn("_rank", sf.row_number().over(Window.orderBy(*best)))
        .withColumn("_instant", sf.lit(find.instant))
    )
    return ranked.orderBy("_rank").select(*OWN, *(f"`{name}`" for name in payload))


def chunks_of(spark: SparkSession, read: Read) -> DataFrame:
    """The chunks of an index."""
    from pyspark.sql.pandas.types import from_arrow_schema

    shape = from_arrow_schema(read.shape, True)
    return arrow.mapped(_numbers(spark, len(read.groups)), read, shape)


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, max(count, 1))


@dataclass(frozen=True)
class Read:
    """Reads groups of scan parts, on an executor."""

    groups: tuple[Group, ...]
    schema: pa.Schema
    instant: str
    pin: Pinned

    @property
    def shape(self) -> pa.Schema:
        """The columns that were asked for, and the instant."""
        return spark_schema(self.schema).append(pa.field("_instant", pa.string()))

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of groups → their chunks."""
        plain = spark_schema(self.schema)
        with self.pin():
            for number in (n for some in numbers for n in some["id"].to_pylist()):
                for batch in (batch for part in self.groups[number].parts for batch in part):
                    instant = pa.array([self.instant] * batch.num_rows, pa.string())
                    columns = batch.select(plain.names).cast(plain).columns
                    yield pa.RecordBatch.from_arrays([*columns, instant], schema=self.shape)


@dataclass(frozen=True)
class Within:
    """Finds the chunks within a distance of a question, on an executor.

    Attributes:
        schema: the columns that are read.
        vector: the question.
        least: how near a chunk must be, by the metric.
    """

    groups: tuple[Group, ...]
    schema: pa.Schema
    how: Comparing
    vector: tuple[float, ...]
    least: float
    instant: str
    pin: Pinned

    @property
    def shape(self) -> pa.Schema:
        """The columns of a result that a chunk has, its score and its id."""
        dropped = {*CHECKED, "_vector"} - {"_id", "_key", "_partition", "_text"}
        shown = [f for f in self.schema if f.name not in dropped]
        return spark_schema(pa.schema([*shown, pa.field(SCORE, pa.float64())]))

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of groups → the chunks within the distance."""
        with self.pin():
            for number in (n for some in numbers for n in some["id"].to_pylist()):
                for part in self.groups[number].parts:
                    yield from map(self._found, part)

    def _found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = self.how.passing(batch)
        near = self._near(as_matrix(batch["_vector"].take(pa.array(at)), self.how.dimension))
        score = as_score(near, self.how.metric)
        inside = score >= self.least
        chunks = batch.take(pa.array(at[inside]))
        check_chunks(chunks, self.pin.index)
        scores = pa.array(score[inside], pa.float64())
        columns = [
            scores if field.name == SCORE else chunks[field.name].cast(field.type)
            for field in self.shape
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.shape)

    def _near(self, vectors: np.ndarray) -> np.ndarray:
        """How near each vector is; exact only if it may be near enough."""
        metric, asked = self.how.metric, np.array([self.vector], np.float32)
        sizes, length = lengths(vectors), lengths(asked)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if metric == "cosine":
                roughly = (vectors @ scaled(asked, length, metric)[0]) / sizes
                maybe = np.flatnonzero(roughly >= self.least - ROUNDING)
            else:
                maybe = np.arange(len(vectors))
            out = np.full(len(vectors), -np.inf)
            same = np.zeros(len(maybe), np.int64)
            exact = closeness(metric, (vectors[maybe], sizes[maybe]), (asked[same], length[same]))
        out[maybe] = np.nan_to_num(exact, nan=-np.inf)
        return out
