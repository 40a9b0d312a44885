"""Cells: groups of near vectors, so that a search reads only the groups near its question. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from lakewake.progress import UNSEEN, Stage

#: How many chunks a cell is meant to hold.
CHUNKS = 500
#: Vectors that k-means is trained on, for each cell.
TRAINED = 64
ROUNDS = 10
#: Vectors that are compared with all centroids at the same time.
AT_ONCE = 8192
#: Cells that one upkeep replaces, and cells around a new one whose vectors are compared with it.
AT_A_TIME, AROUND = 16, 8


@dataclass(frozen=True)
class Cells:
    """The cells of an index.

    Attributes:
        numbers: the number of each cell. A number is never used again for another cell.
        centroids: the middle of each cell, one per row.
        next: the number of the next cell.
    """

    numbers: np.ndarray
    centroids: np.ndarray
    metric: str
    next: int

    def of(self, vectors: np.ndarray) -> np.ndarray:
        """The cell of each vector. Vectors that cannot be compared are in the first cell."""
        vectors = comparable(vectors, self.metric)
        if len(self.numbers) == 1:
            return np.full(len(vectors), self.numbers[0], np.int32)
        found: np.ndarray = self.numbers[nearest(vectors, self.centroids)]
        return found

    def near(self, question: np.ndarray, n: int) -> np.ndarray:
        """The `n` cells to search for a question, nearest first."""
        asked = comparable(question[None], self.metric)[0]
        products = self.centroids @ asked
        if self.metric == "dot":
            distances = -products
        else:
            distances = (self.centroids**2).sum(axis=1) - 2 * products
        found: np.ndarray = self.numbers[np.argsort(distances, kind="stable")[:n]]
        return found

    @property
    def digest(self) -> str:
        """Equal for equal cells."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The text of their note."""
        value = {
            "metric": self.metric,
            "next": self.next,
            "numbers": self.numbers.tolist(),
            "dimension": self.centroids.shape[1],
            "centroids": base64.b64encode(self.centroids.astype("<f4").tobytes()).decode(),
        }
        return json.dumps(value)

    @classmethod
    def from_json(cls, text: str) -> Cells:
        """The inverse of `to_json`; raises `ValueError` or `KeyError` for any other text."""
        value = json.loads(text)
        flat = np.frombuffer(base64.b64decode(value["centroids"]), "<f4").astype(np.float32)
        centroids = flat.reshape(len(value["numbers"]), value["dimension"])
        return cls(np.array(value["numbers"], np.int32), centroids, value["metric"], value["next"])


def comparable(vectors: np.ndarray, metric: str) -> np.ndarray:
    """Vectors as k-means compares them: finite, and for cosine of length 1."""
    vectors = np.nan_to_num(vectors.astype(np.float32), posinf=0.0, neginf=0.0)
    if metric != "cosine":
        return vectors
    with np.errstate(over="ignore"):
        lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    unit: np.ndarray = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The position of the centroid nearest to each vector."""
    half = (centroids**2).sum(axis=1) / 2
    out = np.empty(len(vectors), np.int64)
    for start in range(0, len(vectors), AT_ONCE):
        some = vectors[start : start + AT_ONCE]
        out[start : start + AT_ONCE] = np.argmax(some @ centroids.T - half, axis=1)
    return out


def number_of_cells(chunks: int, per_cell: int = CHUNKS) -> int:
    """How many cells an index of this size gets."""
    return max(1, round(chunks / per_cell))


def trained(sample: np.ndarray, count: int, metric: str, stage: Stage = UNSEEN) -> Cells:
    """Cells for vectors like these, by k-means. Equal samples give equal cells.

    Args:
        stage: counts the rounds.
    """
    vectors = comparable(sample, metric)
    count = max(1, min(count, len(vectors)))
    rng = np.random.default_rng(0)
    if len(vectors) == 0:
        centroids = np.zeros((1, sample.shape[1]), np.float32)
    else:
        centroids = vectors[rng.permutation(len(vectors))[:count]].copy()
    for _ in range(ROUNDS if count > 1 else 0):
        centroids = _moved(vectors, centroids, rng)
        stage.advance(1)
    return Cells(np.arange(count, dtype=np.int32), centroids, metric, count)


def summed(vectors: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum and the number of the vectors nearest to each centroid."""
    of = nearest(vectors, centroids)
    order = np.argsort(of, kind="stable")
    sizes = np.bincount(of, minlength=len(centroids))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.zeros(centroids.shape, np.float64)
    full = np.flatnonzero(sizes)
    if len(full):
        sums[full] = np.add.reduceat(vectors[order], starts[full], axis=0)
    return sums, sizes


def _moved(vectors: np.ndarray, centroids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The middles of the vectors nearest to each centroid; empty ones start again elsewhere."""
    sums, sizes = summed(vectors, centroids)
    out = centroids.copy()
    full = np.flatnonzero(sizes)
    out[full] = sums[full] / sizes[full, None]
    empty = np.flatnonzero(sizes == 0)
    out[empty] = vectors[rng.integers(0, len(vectors), len(empty))]
    return out


def due(sizes: Mapping[int, int], cells: Cells, per_cell: int) -> list[int]:
    """The cells to replace: those that grew to twice their size, and those almost empty."""
    held = {int(n): sizes.get(int(n), 0) for n in cells.numbers}
    large = [n for n, size in held.items() if size > 2 * per_cell]
    small = [n for n, size in held.items() if size * 8 < per_cell]
    # One cell must remain; and few small cells cost nothing.
    spare = small if len(small) * 4 > len(held) else []
    return sorted(large + (spare if len(spare) < len(held) else spare[1:]))[:AT_A_TIME]


def replaced(cells: Cells, gone: Collection[int], vectors: np.ndarray, per_cell: int) -> Cells:
    """Cells in which others take the place of some.

    Args:
        vectors: all vectors of the cells that go.
    """
    kept = ~np.isin(cells.numbers, list(gone))
    # Without a large cell among them, the vectors go to the neighbours.
    count = number_of_cells(len(vectors), per_cell) if len(vectors) > per_cell else 0
    if not count and not kept.any():
        count = 1
    new = trained(vectors, count, cells.metric) if count else None
    added = len(new.numbers) if new else 0
    numbers = np.arange(cells.next, cells.next + added, dtype=np.int32)
    centroids = [cells.centroids[kept], *([new.centroids] if new else [])]
    return Cells(
        np.concatenate([cells.numbers[kept], numbers]),
        np.concatenate(centroids),
        cells.metric,
        cells.next + added,
    )


def neighbours(cells: Cells, of: Collection[int]) -> list[int]:
    """The cells around these, whose vectors may now be nearer to one of these."""
    these = np.isin(cells.numbers, list(of))
    found: set[int] = set()
    others = cells.numbers[~these]
    if len(others):
        for centroid in cells.centroids[these]:
            far = ((cells.centroids[~these] - centroid) ** 2).sum(axis=1)
            found |= set(others[np.argsort(far, kind="stable")[:AROUND]].tolist())
    return sorted(found)
