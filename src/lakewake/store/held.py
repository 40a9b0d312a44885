"""Stored chunks, grouped by row; their vectors, by text hash. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.chunks import StoredChunk
from lakewake.model.rows import RowId
from lakewake.store.ranking import as_matrix

#: The columns that `chunks_by_row` expects, in this order.
STORED = (
    *("_partition", "_key", "_id", "_hash", "_source_hash", "_payload_hash", "_instant", "_chunk"),
)

IDENTITY = ("_partition", "_key")


def with_identity(columns: Sequence[str]) -> list[str]:
    """The columns that `of_rows` needs in order to return `columns`."""
    return list(dict.fromkeys([*columns, *IDENTITY]))


def of_rows(
    batches: Iterable[pa.RecordBatch], rows: Collection[RowId], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The chunks of these rows, with only these columns."""
    wanted = set(rows)
    for batch in batches:
        identities = zip(*(batch[name].to_pylist() for name in IDENTITY), strict=True)
        is_wanted = pa.array([RowId(*row) in wanted for row in identities], pa.bool_())
        yield batch.filter(is_wanted).select(list(columns))


def chunks_by_row(
    batches: Iterable[pa.RecordBatch], wanted: Collection[RowId]
) -> dict[RowId, tuple[StoredChunk, ...]]:
    """The chunks of the wanted rows, from batches with the columns `STORED`."""
    out: dict[RowId, list[StoredChunk]] = {}
    for batch in batches:
        for partition, key, *stored in zip(*(c.to_pylist() for c in batch), strict=True):
            row = RowId(partition, key)
            if row in wanted:
                out.setdefault(row, []).append(StoredChunk(*stored))
    return {row: tuple(chunks) for row, chunks in out.items()}


def vectors_by_hash(batches: Iterable[pa.RecordBatch], dimension: int) -> dict[str, np.ndarray]:
    """Text hash → a vector of that text, from batches with `_hash` and `_vector`."""
    out: dict[str, np.ndarray] = {}
    for batch in batches:
        held = batch.filter(pc.is_valid(batch["_vector"]))
        matrix = as_matrix(held["_vector"], dimension)
        out.update(zip(held["_hash"].to_pylist(), matrix, strict=True))
    return out
