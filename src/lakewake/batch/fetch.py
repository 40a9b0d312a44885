"""Adds texts and payload to hits: executors read each scan part once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakewake.batch.join import AT, ID, POSITION, RANK, SCORE, parallel
from lakewake.batch.questions import CARRIED
from lakewake.batch.rows import CHECKED, Pinned, Seeker, check_chunks, result_columns, spark_schema
from lakewake.errors import StoreError
from lakewake.model.chunks import ScanParts
from lakewake.source import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_rows(hits: DataFrame, index: ScanParts, instant: str, pin: Pinned) -> DataFrame:
    """Hits with the columns of a result, and the carried columns as one.

    Args:
        index: the same parts that the hits were found in, with the columns of `fetched`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    fetch = Fetch(index.parts, index.schema, instant, pin)
    ordered = hits.repartition(parallel(hits.sparkSession), AT).sortWithinPartitions(AT, POSITION)
    columns = from_arrow_schema(fetch.shape, True)
    carried = StructField(CARRIED, hits.schema[CARRIED].dataType)
    return arrow.mapped(ordered, fetch, StructType([carried, *columns.fields]))


def fetched(payload: list[str]) -> list[str]:
    """The columns of an index that are read of a hit."""
    return [*CHECKED, *payload]


@dataclass(frozen=True)
class Fetch:
    """Reads the texts and payload of hits, on an executor."""

    parts: tuple[Iterable[pa.RecordBatch], ...]
    schema: pa.Schema
    instant: str
    pin: Pinned

    @property
    def shape(self) -> pa.Schema:
        """The columns of a result, without the carried ones."""
        payload = [f for f in self.schema if f.name not in CHECKED]
        own = {
            "_rank": pa.int32(),
            "_score": pa.float64(),
            **dict.fromkeys(("_key", "_partition", "_text", "_instant"), pa.string()),
        }
        names = result_columns([f.name for f in payload])
        types = {**own, **{f.name: f.type for f in payload}}
        return spark_schema(pa.schema([(name, types[name]) for name in names]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hits in the order of their scan parts and positions → rows of the result."""
        seeker, current = None, -1
        with self.pin():
            for batch in batches:
                numbers = np.asarray(batch[AT])
                for number in dict.fromkeys(numbers.tolist()):
                    if seeker is None or number != current:
                        seeker, current = Seeker(self.parts[number]), number
                    yield self._result(batch.filter(pa.array(numbers == number)), seeker)

    def _result(self, hits: pa.RecordBatch, seeker: Seeker) -> pa.RecordBatch:
        positions = np.asarray(hits[POSITION])
        distinct, of = np.unique(positions, return_inverse=True)
        table = pa.Table.from_batches(seeker.take(distinct), self.schema).combine_chunks()
        chunks = table.to_batches()[0]
        check_chunks(chunks, self.pin.index)
        chunks = chunks.take(pa.array(of))
        if not chunks["_id"].equals(hits[ID].cast(chunks["_id"].type)):
            raise StoreError(
                f"index '{self.pin.index}' changed while it was read", hint="search again"
            )
        return pa.RecordBatch.from_arrays(
            [hits[CARRIED], *(self._column(f, hits, chunks) for f in self.shape)],
            [CARRIED, *self.shape.names],
        )

    def _column(self, field: pa.Field, hits: pa.RecordBatch, chunks: pa.RecordBatch) -> pa.Array:
        if field.name == "_rank":
            return hits[RANK]
        if field.name == "_score":
            return hits[SCORE]
        if field.name == "_instant":
            return pa.array([self.instant] * len(hits), pa.string())
        return chunks[field.name].cast(field.type)
