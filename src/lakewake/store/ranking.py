"""Ranks chunks exactly against a query, for every store. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from lakewake.errors import ConfigError
from lakewake.model.query import Query
from lakewake.model.recall import Effort

#: Columns that a search does not return: each one would make every search slower.
HIDDEN = ("_vector", "_checkpoint", "_source_hash", "_payload_hash", "_instant")
#: How many chunks an exact search takes from a store beyond those wanted, and how far apart the
#: last one wanted and the last one taken must be: stores compare in single precision.
SPARE, APART = 10, 1e-5


def check_query(query: Query, dimension: int) -> np.ndarray:
    """The query's vector as float32.

    Raises:
        ConfigError: its dimension is not that of the index.
    """
    vector = np.asarray(query.vector, dtype=np.float32)
    if vector.shape != (dimension,):
        raise ConfigError(
            f"the query has {vector.size} dimensions, the index has {dimension}",
            hint="embed the query with the model that the index was built with",
        )
    return vector


def as_matrix(vectors: pa.Array | pa.ChunkedArray, dimension: int) -> np.ndarray:
    """A vector column without nulls as a float32 matrix, one row per vector."""
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    flat = [c.flatten().to_numpy(zero_copy_only=False) for c in chunks]
    joined = np.concatenate(flat) if flat else np.empty(0, np.float32)
    matrix: np.ndarray = joined.astype(np.float32, copy=False).reshape(-1, dimension)
    return matrix


def cosine(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosine of each row with the query, in [-1, 1]; NaN if either has no direction."""
    vectors, query = vectors.astype(np.float64), query.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    with np.errstate(invalid="ignore", divide="ignore"):
        out: np.ndarray = np.clip(_dot(vectors, query) / norms, -1.0, 1.0)
    return out


def _dot(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The dot products, row by row: a matrix product may differ in the last bit for equal rows."""
    out: np.ndarray = (vectors * query).sum(axis=1)
    return out


def closeness(metric: str, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """How near each row is by the metric: larger is nearer, NaN is incomparable."""
    if metric == "cosine":
        return cosine(vectors, query)
    vectors, query = vectors.astype(np.float64), query.astype(np.float64)
    out: np.ndarray = (
        _dot(vectors, query) if metric == "dot" else -((vectors - query) ** 2).sum(axis=1)
    )
    return out


def rank(found: pa.Table, metric: str, query: np.ndarray) -> pa.Table:
    """The chunks best first, with `_similarity` in place of the hidden columns.

    By another metric than the cosine there is `_score` too. A vector without a direction has no
    cosine, so a cosine search cannot find it; other searches find it with a similarity of 0.
    """
    vectors = as_matrix(found["_vector"], len(query))
    near = closeness(metric, vectors, query)
    similarity = np.nan_to_num(near if metric == "cosine" else cosine(vectors, query))
    order = np.lexsort((found["_id"].to_numpy(), -near))
    order = order[~np.isnan(near[order])]
    shown = found.drop_columns([c for c in HIDDEN if c in found.column_names])
    column = pa.array(similarity.tolist(), pa.float64())
    shown = shown.append_column("_similarity", column)
    if metric != "cosine":
        # The distance itself, not its square; negative, so that more is nearer.
        own = near if metric == "dot" else -np.sqrt(-near)
        shown = shown.append_column("_score", pa.array(own.tolist(), pa.float64()))
    return shown.take(pa.array(order.tolist(), pa.int64()))


def settled(found: pa.Table, nearest: pa.Table, metric: str, query: np.ndarray) -> bool:
    """Whether `nearest`, taken from what a store found, are certainly the nearest it holds.

    Apart from rounding, a chunk that the store left out is not nearer than the last one it found.
    Among equally near chunks it may have left out any.
    """
    vectors = as_matrix(found["_vector"], len(query))
    near = closeness(metric, vectors, query)
    if not nearest.num_rows:
        return False
    last = near[found["_id"].to_pylist().index(nearest["_id"][-1].as_py())]
    longest = np.linalg.norm(vectors, axis=1).max() + np.linalg.norm(query)
    scale = 1.0 if metric == "cosine" else float(longest) ** 2
    return bool(last - np.nanmin(near) > APART * scale)


def nearest_rows(
    limit: int,
    effort: Effort | None,
    find: Callable[[int, Effort | None], pa.Table],
    ranked: Callable[[pa.Table], tuple[pa.Table, int]],
    is_settled: Callable[[pa.Table, pa.Table], bool],
) -> pa.Table:
    """The chunks of the `limit` nearest rows: ask a store for more until they are certain.

    Args:
        effort: how thoroughly to search at first; None means exactly.
        find: asks the store for this many chunks, with this effort.
        ranked: the best chunks of those found, and how many rows they have.
        is_settled: whether those are certainly the nearest of an exact search.
    """
    wanted = limit
    while True:
        exact = effort is None
        asked = wanted + SPARE * exact
        found = find(asked, effort)
        nearest, rows = ranked(found)
        exhausted = found.num_rows < asked
        if exact and exhausted:
            return nearest
        if rows == limit and (not exact or is_settled(found, nearest)):
            return nearest
        # An approximate search may have missed some, so search exactly.
        effort = None if exhausted else effort
        wanted = wanted if exhausted else wanted * 4


def best_positions(scores: np.ndarray, wanted: int) -> np.ndarray:
    """The positions of the `wanted` best scores, and of all that tie with the last of them."""
    if len(scores) <= wanted:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
    return np.flatnonzero(scores >= least)


def first_rows(ranked: pa.Table, limit: int) -> tuple[pa.Table, int]:
    """The shortest prefix with `limit` distinct rows, and how many rows it has."""
    seen: set[tuple[str, str]] = set()
    pairs = zip(ranked["_partition"].to_pylist(), ranked["_key"].to_pylist(), strict=True)
    for n, row in enumerate(pairs, start=1):
        seen.add(row)
        if len(seen) == limit:
            return ranked.slice(0, n), limit
    return ranked, len(seen)


def count_rows(identities: pa.Table) -> int:
    """How many distinct rows are in a table of `_partition` and `_key`."""
    return int(identities.group_by(["_partition", "_key"]).aggregate([]).num_rows)
