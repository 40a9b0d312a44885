"""Cells of near vectors: a search compares those of the nearest cells, one by one.

The vectors of a cell are next to each other, so comparing them costs no more than reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lakewake.progress import UNSEEN, Stage
from lakewake.store.hot.rows import HeldRows, products, scored

#: How many cells there are: this many times the square root of the number of vectors.
SHARE = 2.0
#: Vectors of a cell that it is trained with, and how often its centre is moved.
TRAINED_BY, ROUNDS = 64, 6
#: Vectors compared with all centres at the same time.
AT_ONCE = 8_192


@dataclass(frozen=True)
class Cells:
    """The cells of some vectors, which are ordered by cell.

    Attributes:
        centres: one per row; of length 1 if only directions count.
        starts: the position of the first vector of each cell, and the end of the last one.
    """

    metric: str
    centres: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return int(self.centres.nbytes + self.starts.nbytes)

    def nearest(
        self, rows: HeldRows, question: np.ndarray, probes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the vectors in the nearest cells, and how near each is."""
        far = distances(self.metric, self.centres, question)
        # In the order of the vectors, so that memory is read forwards.
        few = probes < len(far)
        chosen = np.sort(np.argpartition(far, probes - 1)[:probes]) if few else slice(None)
        starts, sizes = self.starts[:-1][chosen], np.diff(self.starts)[chosen]
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        positions = np.repeat(starts + sizes - ends, sizes) + np.arange(total)
        near = np.empty(total, np.float32)
        for start, size, end in zip(starts.tolist(), sizes.tolist(), ends.tolist(), strict=True):
            products(rows.vectors[start : start + size], question, near[end - size : end])
        return positions, scored(self.metric, near, rows.lengths[positions])


def distances(metric: str, centres: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """How far a vector is from each centre; smaller is nearer."""
    near = products(centres, vector)
    if metric == "l2":
        out: np.ndarray = np.einsum("ij,ij->i", centres, centres) - 2 * near
        return out
    return -near


def number_of_cells(vectors: int) -> int:
    """How many cells this many vectors get."""
    return max(1, int(SHARE * vectors**0.5))


def compared(vectors: int) -> int:
    """How many vectors `train` compares with all centres; the sample once in each round."""
    return ROUNDS * min(vectors, number_of_cells(vectors) * TRAINED_BY) + vectors


def train(
    metric: str, vectors: np.ndarray, stopped: Callable[[], bool], stage: Stage = UNSEEN
) -> tuple[np.ndarray, np.ndarray] | None:
    """Centres for vectors, and the cell of each vector; None if it was stopped.

    Args:
        stage: counts the vectors that were compared with all centres.
    """
    count, rng = number_of_cells(len(vectors)), np.random.default_rng(len(vectors))
    picked = rng.permutation(len(vectors))[: count * TRAINED_BY]
    sample = _comparable(metric, vectors[np.sort(picked)])
    centres = sample[rng.permutation(len(sample))[:count]].copy()
    for _ in range(ROUNDS):
        if (cells := _assigned(metric, centres, sample, stopped, stage)) is None:
            return None
        centres = _moved(metric, centres, sample, cells)
    found = _assigned(metric, centres, vectors, stopped, stage)
    return None if found is None else (centres, found)


def _comparable(metric: str, vectors: np.ndarray) -> np.ndarray:
    """Finite vectors, of length 1 if only their direction counts."""
    vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    if metric != "cosine":
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    out: np.ndarray = vectors / np.where(lengths > 0, lengths, 1)
    return out


def _assigned(
    metric: str,
    centres: np.ndarray,
    vectors: np.ndarray,
    stopped: Callable[[], bool],
    stage: Stage,
) -> np.ndarray | None:
    cells = np.empty(len(vectors), np.int32)
    # Vectors of any length are grouped by distance: products alone would favour long centres.
    half = 0.0 if metric == "cosine" else np.einsum("ij,ij->i", centres, centres) / 2
    for start in range(0, len(vectors), AT_ONCE):
        if stopped():
            return None
        some = _comparable(metric, vectors[start : start + AT_ONCE])
        cells[start : start + AT_ONCE] = (some @ centres.T - half).argmax(axis=1)
        stage.advance(len(some))
    return cells


def _moved(metric: str, centres: np.ndarray, sample: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Each centre in the middle of its vectors; one without any stays."""
    order = np.argsort(cells, kind="stable")
    there, starts = np.unique(cells[order], return_index=True)
    sums = np.add.reduceat(sample[order], starts, axis=0)
    counts = np.diff([*starts, len(order)])[:, None]
    moved = centres.copy()
    moved[there] = _comparable(metric, (sums / counts).astype(np.float32))
    return moved


def in_order(cells: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The vectors ordered by cell, and where each cell starts."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(cells, minlength=count), out=starts[1:])
    return np.argsort(cells, kind="stable"), starts
