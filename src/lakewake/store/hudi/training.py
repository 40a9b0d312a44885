"""Trains the cells of a new index by k-means: here, or on executors, where its vectors are.

On executors every round sends the centroids to the vectors, and only sums come back. So what passes
through the driver has the size of the centroids, however many vectors there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakewake.progress import UNSEEN, Stage
from lakewake.store.hudi import cells as rules
from lakewake.store.hudi.cells import Cells
from lakewake.store.hudi.staging import opened_part, vectors_of
from lakewake.store.location import Location

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

#: Vectors for cells that end up empty, as a multiple of the cells.
SPARE = 1


@dataclass(frozen=True)
class Sampled:
    """Staged files, and what share of their vectors cells are trained on. It can be pickled."""

    location: Location
    parts: tuple[str, ...]
    share: float
    dimension: int

    def read(self, number: int) -> np.ndarray:
        """Some of the vectors of one file, picked at random."""
        rng = np.random.default_rng(number)
        found = [np.empty((0, self.dimension), np.float32)]
        with opened_part(self.location, self.parts[number]) as file:
            for batch in file.iter_batches(columns=["_vector"]):
                picked = np.flatnonzero(rng.random(batch.num_rows) < self.share)
                column = batch["_vector"].take(pa.array(picked.tolist(), pa.int64())).drop_null()
                found.append(vectors_of(column, self.dimension))
        return np.concatenate(found)

    def read_all(self) -> np.ndarray:
        """Some of the vectors of all files."""
        return np.concatenate([self.read(number) for number in range(len(self.parts))])


def train_on_executors(
    context: SparkContext, sampled: Sampled, count: int, metric: str, stage: Stage = UNSEEN
) -> Cells:
    """Cells for the vectors of staged files. Equal files give equal cells.

    Args:
        stage: counts the rounds.
    """
    numbers = context.parallelize(range(len(sampled.parts)), len(sampled.parts))
    vectors = numbers.map(lambda n: rules.comparable(sampled.read(n), metric)).cache()
    try:
        chosen = _chosen(vectors, (1 + SPARE) * count)
        count = max(1, min(count, len(chosen)))
        centroids, spare = chosen[:count], chosen[count:]
        for _ in range(rules.ROUNDS if count > 1 else 0):
            centroids, spare = _moved(context, vectors, centroids, spare)
            stage.advance(1)
    finally:
        vectors.unpersist()
    if not len(centroids):
        centroids = np.zeros((1, sampled.dimension), np.float32)
    return Cells(np.arange(count, dtype=np.int32), centroids, metric, count)


def _chosen(vectors: RDD[Any], count: int) -> np.ndarray:
    """This many of the vectors, picked at random; all if there are fewer."""
    sizes = vectors.map(len).collect()
    ends = np.cumsum(sizes)
    picked = np.random.default_rng(0).permutation(int(ends[-1]))[:count]
    of = np.searchsorted(ends, picked, side="right")
    wanted = {n: picked[of == n] - (ends[n] - sizes[n]) for n in range(len(sizes))}
    found = vectors.zipWithIndex().map(lambda pair: pair[0][wanted[pair[1]]]).collect()
    every = np.concatenate(found)
    # Back to the random order: the first ones are where cells begin.
    order = np.concatenate([np.flatnonzero(of == n) for n in range(len(sizes))])
    out = np.empty_like(every)
    out[order] = every
    return out


def _moved(
    context: SparkContext, vectors: RDD[Any], centroids: np.ndarray, spare: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The middles of the vectors nearest to each centroid; empty cells take a spare vector."""
    sent = context.broadcast(centroids)
    sums, sizes = vectors.map(lambda some: rules.summed(some, sent.value)).treeReduce(
        lambda one, other: (one[0] + other[0], one[1] + other[1])
    )
    sent.unpersist()
    out = centroids.copy()
    full = sizes > 0
    out[full] = (sums[full] / sizes[full, None]).astype(np.float32)
    empty = np.flatnonzero(~full)[: len(spare)]
    out[empty] = spare[: len(empty)]
    return out, spare[len(empty) :]
