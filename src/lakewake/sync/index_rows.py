"""Chunks as the rows that a store writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import Chunk
from lakewake.model.rows import RowBatch
from lakewake.model.weights import cuts, weights
from lakewake.plan.patch import Patch

#: Chunks that are written at once, and about how many bytes.
WRITE_ROWS, WRITE_BYTES = 10_000, 16 * 1024 * 1024
#: Bytes of a chunk besides its text, vector and payload.
CHUNK_BYTES = 500


def index_rows(
    rows: RowBatch, patch: Patch, vectors: np.ndarray, schema: pa.Schema, dimension: int
) -> Iterator[pa.RecordBatch]:
    """The chunks that a patch writes, with their vectors, as rows of the index."""
    for start, count in cuts(_written_bytes(rows, patch, dimension), WRITE_ROWS, WRITE_BYTES):
        some = slice(start, start + count)
        yield _index_rows(rows, patch.upserts[some], vectors[some], schema)


def _written_bytes(rows: RowBatch, patch: Patch, dimension: int) -> np.ndarray:
    """About how many bytes each chunk takes in the index. Each chunk carries the payload."""
    # A batch without columns does not know how many rows it has.
    payload = weights(rows.payload) if rows.payload.num_columns else np.zeros(len(rows))
    own = [payload[n] + 4 * len(chunk.text) for n, chunk in patch.upserts]
    return np.array(own, np.float64) + CHUNK_BYTES + 4 * dimension


def _index_rows(
    rows: RowBatch, upserts: Sequence[tuple[int, Chunk]], vectors: np.ndarray, schema: pa.Schema
) -> pa.RecordBatch:
    """The chunks as rows of the index."""
    at = [n for n, _ in upserts]
    chunks = [chunk for _, chunk in upserts]
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    payload = rows.payload.take(pa.array(at, pa.int32()))
    columns: dict[str, Collection[object]] = {
        "_id": [c.id for c in chunks],
        "_key": [c.row.key for c in chunks],
        "_partition": [c.row.partition for c in chunks],
        "_field": [c.field for c in chunks],
        "_chunk": [c.n for c in chunks],
        "_hash": [c.hash for c in chunks],
        # In the first chunk only, so that the others stay when text elsewhere in the row changes.
        "_source_hash": ["" if c.n else rows.source_hashes[n] for n, c in upserts],
        "_payload_hash": [rows.payload_hashes[n] for n in at],
        "_instant": [rows.instants[n] for n in at],
        "_text": [None if rows.vectors is not None else c.text for c in chunks],
        "_vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        "_checkpoint": [None] * len(chunks),
        **{name: payload.column(name) for name in payload.schema.names},
    }
    arrays = [_typed(columns[f.name], f) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(values: Collection[object], field: pa.Field) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == field.type else values.cast(field.type)
    return pa.array(values, field.type)
