"""Puts rows that repeat what better rows say behind others: maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakewake.model.chunks import chunk_id
from lakewake.search.fuse import scaled

if TYPE_CHECKING:
    from lakewake.model.query import Hit
    from lakewake.store import StoreReader

#: How many of the best rows are reordered. The same for every page, so that pages fit together.
POOL = 200


def diversified(reader: StoreReader, hits: Sequence[Hit], diversity: float) -> list[Hit]:
    """The best rows in another order, and then the others as they were.

    The next row is always the one with the highest (1 - diversity) × its score, scaled to 0 to 1,
    minus diversity × its largest cosine with a row before it.
    """
    pool, rest = hits[:POOL], hits[POOL:]
    if len(pool) < 2:
        return list(hits)
    order = reordered(np.array(scaled(pool)), vectors_of(reader, pool), diversity)
    return [*(pool[n] for n in order), *rest]


def reordered(scores: np.ndarray, vectors: Sequence[np.ndarray], diversity: float) -> list[int]:
    """The positions in their new order; ties keep the old one."""
    matrix = np.array(vectors, np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix /= np.where(lengths > 0, lengths, 1)
    nearest, left, order = np.zeros(len(scores)), np.ones(len(scores), bool), []
    for _ in scores:
        # Rounded: near-equal values must not depend on how a processor adds.
        value = np.round((1 - diversity) * scores - diversity * nearest, 9)
        best = int(np.argmax(np.where(left, value, -np.inf)))
        left[best] = False
        order.append(best)
        nearest = np.maximum(nearest, (matrix * matrix[best]).sum(axis=1))
    return order


def vectors_of(reader: StoreReader, hits: Sequence[Hit]) -> list[np.ndarray]:
    """The vector of each hit's chunk."""
    batches = reader.chunks({hit.row for hit in hits}, ["_id", "_vector"])
    held = {c["_id"]: c["_vector"] for batch in batches for c in batch.to_pylist()}
    ids = (chunk_id(hit.row, hit.field, hit.chunk) for hit in hits)
    return [np.asarray(held[id], np.float32) for id in ids]
