"""Exact ranking of chunks against a query: what every store answers with. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakewake.errors import ConfigError
from lakewake.model.query import Query

#: Columns of an index that a search does not return. Each one read costs every search.
HIDDEN = ("_vector", "_checkpoint", "_source_hash", "_payload_hash", "_instant")
#: How many more chunks an exact search takes from a store than are wanted, and how far apart the
#: last that is wanted and the last that was taken must lie: stores compare in single precision.
SPARE, APART = 10, 1e-5


def check_query(query: Query, dimension: int) -> np.ndarray:
    """The query's vector as float32.

    Raises:
        ConfigError: it has another dimension than the index.
    """
    vector = np.asarray(query.vector, dtype=np.float32)
    if vector.shape != (dimension,):
        raise ConfigError(
            f"the query has {vector.size} dimensions, the index has {dimension}",
            hint="embed the query with the model that the index was built by",
        )
    return vector


def as_matrix(vectors: pa.Array | pa.ChunkedArray, dimension: int) -> np.ndarray:
    """A vector column without nulls as one float32 row for each vector."""
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    flat = [c.flatten().to_numpy(zero_copy_only=False) for c in chunks]
    joined = np.concatenate(flat) if flat else np.empty(0, np.float32)
    matrix: np.ndarray = joined.astype(np.float32, copy=False).reshape(-1, dimension)
    return matrix


def cosine(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosine of each row with the query, in [-1, 1]; NaN where either has no direction."""
    vectors, query = vectors.astype(np.float64), query.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    with np.errstate(invalid="ignore", divide="ignore"):
        out: np.ndarray = np.clip(_dot(vectors, query) / norms, -1.0, 1.0)
    return out


def _dot(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Row by row: a product of matrices gives equal rows numbers that differ in the last bit."""
    out: np.ndarray = (vectors * query).sum(axis=1)
    return out


def closeness(metric: str, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """How near each row is by the metric: larger is nearer, NaN is not comparable."""
    if metric == "cosine":
        return cosine(vectors, query)
    vectors, query = vectors.astype(np.float64), query.astype(np.float64)
    out: np.ndarray = (
        _dot(vectors, query) if metric == "dot" else -((vectors - query) ** 2).sum(axis=1)
    )
    return out


def rank(found: pa.Table, metric: str, query: np.ndarray) -> pa.Table:
    """The chunks best first, with `_similarity` in place of the hidden columns.

    A vector without a direction has no cosine, so a cosine search cannot find it.
    """
    vectors = as_matrix(found["_vector"], len(query))
    near = closeness(metric, vectors, query)
    similarity = np.nan_to_num(near if metric == "cosine" else cosine(vectors, query))
    order = np.lexsort((found["_id"].to_numpy(), -near))
    order = order[~np.isnan(near[order])]
    shown = found.drop_columns([c for c in HIDDEN if c in found.column_names])
    told = pa.array(similarity.tolist(), pa.float64())
    return shown.append_column("_similarity", told).take(pa.array(order.tolist(), pa.int64()))


def settled(found: pa.Table, nearest: pa.Table, metric: str, query: np.ndarray) -> bool:
    """Whether `nearest`, of what a store found, are the nearest that it holds.

    What it left out is no nearer than the last it found, but for rounding: of chunks that are as
    near as one another it may have left out any.
    """
    vectors = as_matrix(found["_vector"], len(query))
    near = closeness(metric, vectors, query)
    if not nearest.num_rows:
        return False
    last = near[found["_id"].to_pylist().index(nearest["_id"][-1].as_py())]
    longest = np.linalg.norm(vectors, axis=1).max() + np.linalg.norm(query)
    scale = 1.0 if metric == "cosine" else float(longest) ** 2
    return bool(last - np.nanmin(near) > APART * scale)


def first_rows(ranked: pa.Table, limit: int) -> tuple[pa.Table, int]:
    """The shortest beginning with `limit` distinct rows, and how many rows it has."""
    seen: set[tuple[str, str]] = set()
    pairs = zip(ranked["_partition"].to_pylist(), ranked["_key"].to_pylist(), strict=True)
    for n, row in enumerate(pairs, start=1):
        seen.add(row)
        if len(seen) == limit:
            return ranked.slice(0, n), limit
    return ranked, len(seen)


def count_rows(identities: pa.Table) -> int:
    """How many distinct rows a table of `_partition` and `_key` names."""
    return int(identities.group_by(["_partition", "_key"]).aggregate([]).num_rows)
