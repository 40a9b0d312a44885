"""How many bytes rows have, and where to cut them so that memory use stays flat. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def weights(batch: pa.RecordBatch) -> np.ndarray:
    """About how many bytes each row has: texts and lists by their own length."""
    out = np.zeros(batch.num_rows, np.float64)
    for column in batch.columns:
        out += _bytes(column)
    return out


def cuts(sizes: np.ndarray, most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows as (start, length): none exceeds either limit, unless it is one row."""
    start, held = 0, 0.0
    for n, size in enumerate(sizes.tolist()):
        if n > start and (n - start == most_rows or held + size > most_bytes):
            yield start, n - start
            start, held = n, 0.0
        held += size
    if len(sizes) > start:
        yield start, len(sizes) - start


def _bytes(column: pa.Array) -> np.ndarray | float:
    kind = column.type
    if any(is_kind(kind) for is_kind in _TEXTS):
        return _counted(pc.binary_length(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = column.flatten()
        return _counted(pc.list_value_length(column)) * float(inner.nbytes / max(len(inner), 1))
    return float(column.nbytes / max(len(column), 1))


_TEXTS = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)


def _counted(lengths: pa.Array) -> np.ndarray:
    counts: np.ndarray = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    return counts.astype(np.float64)
