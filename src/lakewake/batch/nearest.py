"""The nearest rows of many questions at once, block by block. Pure.

A block of chunks is compared with a block of questions by one matrix product in single precision.
The few chunks that may be among the nearest are compared again in double precision, as a search
does, so the answers are those of an exact search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Chunks in one matrix product, and the most questions.
CHUNKS, QUESTIONS = 16_384, 1024
#: Candidates that are added at a time.
ADDED = 1_000_000
#: How far a product in single precision may be from the true value, for vectors of length 1.
ROUNDING = 1e-5
#: Bytes of the vectors that are compared again at a time.
COMPARED = 32 * 1024 * 1024


@dataclass(frozen=True)
class Block:
    """Some chunks of an index.

    Attributes:
        vectors: one per row, comparable by the metric.
        lengths: of the vectors.
        weights: the factor for the score of each chunk.
        rows: a number for the row that the chunk is of.
        ids: `_id`s.
        places: where the chunk is in its scan parts.
    """

    vectors: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    ids: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        """Its size in memory, without the texts of the ids."""
        return sum(part.nbytes for part in (self.vectors, self.lengths, self.rows, self.places))

    def unit(self, metric: str) -> np.ndarray:
        """Vectors whose products rank by the metric."""
        return scaled(self.vectors, self.lengths, metric)


class Found(NamedTuple):
    """Candidates, in equally long arrays: question, score, row, `_id` and place of each."""

    question: np.ndarray
    score: np.ndarray
    row: np.ndarray
    id: np.ndarray
    place: np.ndarray

    def take(self, positions: np.ndarray) -> Found:
        """The candidates at these positions."""
        return Found(*(part[positions] for part in self))

    def plus(self, other: Found) -> Found:
        """These and the others."""
        return Found(*(np.concatenate(both) for both in zip(self, other, strict=True)))


NOTHING = Found(
    np.empty(0, np.int64),
    np.empty(0, np.float64),
    np.empty(0, np.int64),
    np.empty(0, object),
    np.empty(0, np.int64),
)


class Nearest:
    """The `k` rows nearest to each question, of the blocks seen so far.

    Args:
        questions: vectors, one per row, comparable by the metric.
    """

    def __init__(self, questions: np.ndarray, k: int, metric: str) -> None:
        self._k, self._metric = k, metric
        self._asked = questions
        self._lengths = lengths(questions)
        self._asked_unit = scaled(questions, self._lengths, metric)
        #: How near the last of the `k` rows of each question is.
        self._last = np.full(len(questions), -np.inf)
        self.found = NOTHING

    @property
    def count(self) -> int:
        """How many questions there are."""
        return len(self._asked)

    def see(self, block: Block) -> None:
        """Compare a block with all questions."""
        if not len(block) or not len(self._asked):
            return
        scores, margin = self._products(block), self._margin(block)
        least = np.maximum(self._last, self._least(scores, block) - margin) - margin
        flat = np.flatnonzero(scores >= least.astype(np.float32)[:, None])
        for start in range(0, len(flat), ADDED):
            self._add(block, *np.divmod(flat[start : start + ADDED], len(block)))

    def _products(self, block: Block) -> np.ndarray:
        """How near each chunk is to each question, in single precision."""
        scores: np.ndarray = self._asked_unit @ block.unit(self._metric).T
        if self._metric == "l2":
            scores = 2 * scores - (block.lengths**2).astype(np.float32)
            scores -= (self._lengths[:, None] ** 2).astype(np.float32)
        if (block.weights != 1).any():
            scores = weighted(scores, block.weights, self._metric).astype(np.float32)
        return scores

    def _margin(self, block: Block) -> np.ndarray:
        """How much the products of a block may differ from the true values, for each question."""
        heaviest = float(block.weights.max(initial=1.0))
        if self._metric != "cosine":
            heaviest = max(heaviest, float((1 / block.weights).max(initial=1.0)) ** 2)
        if self._metric == "cosine":
            return np.full(len(self._lengths), ROUNDING * heaviest)
        longest = float(block.lengths.max(initial=0.0))
        margin: np.ndarray = ROUNDING * heaviest * (self._lengths + longest) ** 2
        return margin

    def _least(self, scores: np.ndarray, block: Block) -> np.ndarray:
        """A lower bound for the `k`-th best score, from this block; -inf once all have `k` rows."""
        if np.isfinite(self._last).all() or len(block) < self._k:
            return np.full(len(scores), -np.inf)
        order = np.argsort(block.rows, kind="stable")
        ordered = block.rows[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        if len(starts) < self._k:
            return np.full(len(scores), -np.inf)
        if len(starts) < len(block):
            scores = np.maximum.reduceat(scores[:, order], starts, axis=1)
        at = scores.shape[1] - self._k
        least: np.ndarray = np.partition(scores, at, axis=1)[:, at].astype(np.float64)
        return least

    def _add(self, block: Block, question: np.ndarray, chunk: np.ndarray) -> None:
        if not len(question):
            return
        near = np.concatenate(
            [self._exactly(block, question[some], chunk[some]) for some in self._few(len(chunk))]
        )
        new = Found(question, near, block.rows[chunk], block.ids[chunk], block.places[chunk])
        self.found = nearest(self.found.plus(new), self._k)
        ends = np.cumsum(np.bincount(self.found.question, minlength=len(self._asked)))
        full = np.flatnonzero(np.diff(ends, prepend=0) == self._k)
        self._last[full] = self.found.score[ends[full] - 1]

    def _few(self, count: int) -> Iterator[slice]:
        """Slices of candidates whose vectors fit into `COMPARED`."""
        step = max(1, COMPARED // (16 * self._asked.shape[1]))
        return (slice(start, start + step) for start in range(0, count, step))

    def _exactly(self, block: Block, question: np.ndarray, chunk: np.ndarray) -> np.ndarray:
        near = closeness(
            self._metric,
            (block.vectors[chunk], block.lengths[chunk]),
            (self._asked[question], self._lengths[question]),
        )
        return weighted(near, block.weights[chunk], self._metric)


def lengths(vectors: np.ndarray) -> np.ndarray:
    """The length of each row, in double precision."""
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    out: np.ndarray = np.sqrt(squares)
    return out


def scaled(vectors: np.ndarray, lengths: np.ndarray, metric: str) -> np.ndarray:
    """Vectors whose products rank by the metric: for cosine, of length 1."""
    if metric != "cosine" or np.all(np.abs(lengths - 1) < ROUNDING / 10):
        return vectors
    out: np.ndarray = (vectors / lengths[:, None]).astype(np.float32)
    return out


def comparable(vectors: np.ndarray, lengths: np.ndarray, metric: str) -> np.ndarray:
    """Which vectors can be compared: finite and, for cosine, with a direction."""
    out: np.ndarray = np.isfinite(vectors).all(axis=1)
    return out & (lengths > 0) if metric == "cosine" else out


def closeness(
    metric: str, left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """How near each vector on the left is to the one in the same place on the right.

    Args:
        left, right: vectors, and their lengths.
    """
    (these, lengths), (those, others) = left, right
    these, those = these.astype(np.float64), those.astype(np.float64)
    if metric == "l2":
        out: np.ndarray = -((these - those) ** 2).sum(axis=1)
        return out
    products: np.ndarray = (these * those).sum(axis=1)
    return np.clip(products / (lengths * others), -1.0, 1.0) if metric == "cosine" else products


def weighted(near: np.ndarray, weights: np.ndarray, metric: str) -> np.ndarray:
    """Closeness by weight, as a search weights scores: a larger weight moves nothing away."""
    if metric == "l2":
        # A distance is divided by its weight, and so its square is divided by the square.
        out: np.ndarray = near / weights**2
    elif metric == "dot":
        out = np.where(near < 0, near / weights, near * weights)
    else:
        out = near * weights
    return out


def as_score(near: np.ndarray, metric: str) -> np.ndarray:
    """Closeness as the score of a hit: for `l2` the distance instead of its square."""
    out: np.ndarray = -np.sqrt(-near) if metric == "l2" else near
    return out


def nearest(found: Found, k: int) -> Found:
    """The best chunk of each of the `k` best rows, by question and then best first.

    Equally near chunks are ordered by `_id`.
    """
    found = found.take(np.lexsort((-found.score, found.row, found.question)))
    same = (found.question[1:] == found.question[:-1]) & (found.row[1:] == found.row[:-1])
    found = _ties_by_id(found, same)
    found = found.take(np.flatnonzero(np.r_[True, ~same]))
    found = found.take(np.lexsort((-found.score, found.question)))
    found = _ties_by_id(found, found.question[1:] == found.question[:-1])
    starts = np.searchsorted(found.question, found.question, side="left")
    return found.take(np.flatnonzero(np.arange(len(starts)) - starts < k))


def _ties_by_id(found: Found, same: np.ndarray) -> Found:
    """The same order, but neighbours with equal scores are ordered by `_id`.

    Args:
        same: which candidates may be exchanged with the next one if their scores are equal.
    """
    tied = same & (found.score[1:] == found.score[:-1])
    if not tied.any():
        return found
    at = np.flatnonzero(np.r_[tied, False] | np.r_[False, tied])
    run = np.cumsum(~np.r_[False, tied])[at]
    order = np.arange(len(found.score))
    order[at] = at[np.lexsort((found.id[at].astype(str), run))]
    return found.take(order)
