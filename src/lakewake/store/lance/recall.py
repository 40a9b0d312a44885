"""Measures the recall of a Lance index: questions are asked approximately and exactly.

Lance searches the partitions whose centres are nearest to the question, and goes on to others only
while it has too few candidates. If deletes or a filter emptied the nearest partitions, it takes the
first vectors that it meets for the nearest ones. More probes repair that. Training the partitions
again does so only for questions about what the index still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from lance import LanceDataset

from lakewake.model.recall import Decision, Effort, Probed
from lakewake.store import recall
from lakewake.store.ranking import as_matrix
from lakewake.store.recall import EQUAL, PER_KIND, K, Questions

#: The key of the dataset's configuration that holds the decision: each version has its own.
KEY = "lakewake.searching"
#: Another key: how many chunks were added or deleted since the partitions were trained.
CHANGED = "lakewake.trained.changed"
#: Partitions are trained again only if one in this many vectors has changed since.
TRAINING_SHARE = 8
#: The share of the partitions to search, and the least number.
PROBED, PROBES = 1 / 20, 20
#: How many times the wanted number of chunks is ranked by true distance: usually, with many probes,
#: and if that does not suffice.
REFINE, REFINE_MORE, REFINE_MOST = 5, 10, 40
#: The most vectors read at once, and the most bytes; Lance holds a few times as many.
SCAN_ROWS, SCAN_BYTES = 8192, 16 * 1024 * 1024


@dataclass(frozen=True)
class Coverage:
    """What one version of a dataset has for approximate search.

    Attributes:
        partitions: how many the approximate index has; 0 if there is no such index.
        covered: chunks that are in it and were not deleted.
        trained: chunks that changed between its training and the probe; None if unknown.
        kind: the kind of that index; '' if there is none.
    """

    chunks: int
    partitions: int = 0
    covered: int = 0
    decision: Decision | None = None
    trained: int | None = None
    kind: str = ""

    @property
    def absent(self) -> str:
        return "" if self.partitions else "it has no approximate index"

    @property
    def unprobed(self) -> tuple[Effort | None, str]:
        return widest(self.partitions)[0], "all partitions are searched"

    @property
    def may_train(self) -> bool:
        """Whether enough has changed that new partitions could be better."""
        since = recall.changed(self)
        return self.trained is None or (self.trained + since) * TRAINING_SHARE >= self.chunks


def coverage_of(dataset: LanceDataset) -> Coverage:
    """The coverage of a version, read from its manifest and the head of the approximate index."""
    chunks = dataset.count_rows() - 1
    for index in dataset.describe_indices():
        if index.field_names == ["_vector"]:
            segments = dataset.stats.index_stats(index.name)["indices"]
            partitions = max(int(segment["num_partitions"]) for segment in segments)
            kept = dataset.config()
            decision = Decision.from_json(kept.get(KEY))
            trained = int(kept[CHANGED]) if kept.get(CHANGED, "").isdigit() else None
            kind = index.index_type.lower()
            return Coverage(chunks, partitions, index.num_rows_indexed, decision, trained, kind)
    return Coverage(chunks)


def efforts(partitions: int) -> tuple[Effort, ...]:
    """The efforts to try, cheapest first."""
    some = max(PROBES, int(partitions * PROBED))
    tried = ((some, REFINE), (2 * some, REFINE), (4 * some, REFINE_MORE))
    narrow = tuple(Effort(n, refine) for n, refine in tried if n < partitions)
    return (*narrow, *widest(partitions))


def widest(partitions: int) -> tuple[Effort, ...]:
    """Efforts that search all partitions: there, deletes and filters cost no recall."""
    return tuple(Effort(partitions, refine) for refine in (REFINE_MORE, REFINE_MOST))


def asked(nearest: Mapping[str, object], effort: Effort, k: int) -> dict[str, object]:
    """The query to Lance for `k` chunks."""
    return {
        **nearest,
        "k": k,
        "minimum_nprobes": effort.probes,
        "refine_factor": effort.refine,
        "ef": max(128, effort.refine * k),
    }


def stored_vectors(dataset: LanceDataset, rng: np.random.Generator) -> np.ndarray:
    """Some of the stored vectors, to ask for."""
    dimension = dataset.schema.field("_vector").type.list_size
    rows = dataset.count_rows()
    picked = rng.choice(rows, min(3 * PER_KIND + 1, rows), replace=False)
    found = dataset.take(picked.tolist(), columns=["_vector"])
    return as_matrix(found["_vector"].drop_null(), dimension)


@dataclass(frozen=True)
class Probe:
    """Questions with their exact answers, to measure efforts by."""

    dataset: LanceDataset
    metric: str
    questions: Questions
    farthest: np.ndarray

    def measure(self, effort: Effort) -> Probed:
        """Measure what share of the nearest chunks an approximate search finds."""
        return recall.judged(self.questions, self.shares(effort), effort)

    def shares(self, effort: Effort) -> list[float]:
        """What share of the nearest chunks it finds for each question."""
        return [self._share(n, q, effort) for n, q in enumerate(recall.every(self.questions))]

    def _share(self, n: int, question: np.ndarray, effort: Effort) -> float:
        vector = pa.array(question.tolist(), pa.float32())
        nearest = {"column": "_vector", "q": vector, "metric": self.metric}
        found = self.dataset.to_table(columns=["_distance"], nearest=asked(nearest, effort, K))
        # Compared by distance: among equally distant vectors, any will do.
        near = np.array(found["_distance"].to_pylist()) <= self.farthest[n] + EQUAL
        there: int = min(K, self.dataset.count_rows() - 1)
        return min(1.0, float(near.sum()) / there)


def make_probe(dataset: LanceDataset, metric: str, questions: Questions) -> Probe:
    """Answer the questions exactly, in one pass over all vectors."""
    nearest = nearest_distances(dataset, metric, recall.every(questions))
    return Probe(dataset, metric, questions, farthest(nearest))


def nearest_distances(
    dataset: LanceDataset, metric: str, asked: np.ndarray, fragments: Sequence[int] | None = None
) -> np.ndarray:
    """The distances of the `K` nearest vectors of each question, in one pass; infinite if fewer.

    Args:
        fragments: those to read; None: all.
    """
    nearest = np.full((len(asked), K), np.inf, np.float32)
    for vectors in _vectors(dataset, asked.shape[1], fragments):
        both = np.concatenate([nearest, distances(metric, asked, vectors)], axis=1)
        nearest = np.partition(both, K - 1, axis=1)[:, :K]
    return nearest


def farthest(nearest: np.ndarray) -> np.ndarray:
    """The distance of the farthest of the nearest vectors of each question."""
    finite = np.where(np.isfinite(nearest), nearest, -np.inf)
    found: np.ndarray = finite.max(axis=1)
    return found


def _vectors(
    dataset: LanceDataset, dimension: int, fragments: Sequence[int] | None
) -> Iterator[np.ndarray]:
    rows = max(1, min(SCAN_ROWS, SCAN_BYTES // (4 * dimension)))
    chosen = None if fragments is None else [dataset.get_fragment(n) for n in fragments]
    scanner = dataset.scanner(columns=["_vector"], batch_size=rows, fragments=chosen)
    for batch in scanner.to_batches():
        yield as_matrix(batch["_vector"].drop_null(), dimension)


def distances(metric: str, questions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Distances as Lance measures them for questions of length 1; infinite if undefined."""
    products = questions @ vectors.T
    squares = np.einsum("ij,ij->i", vectors, vectors)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "cosine":
            far = 1 - products / np.sqrt(squares)
        elif metric == "dot":
            far = 1 - products
        else:
            far = 1 + squares - 2 * products
    out: np.ndarray = np.where(np.isfinite(far), far, np.inf)
    return out


def decide(
    measure: Callable[[Effort], Probed], partitions: int, *, promised: float, may_train: bool
) -> tuple[Probed | None, Probed | None] | None:
    """How to search without a filter and with one (None: exactly); None alone: train again first.

    Takes the cheapest effort that keeps the promise with half the misses allowed, since a sample
    may be lucky. Training is expensive: it is done only if the partitions do not fit the vectors,
    or if searching all partitions does not find enough.
    """
    *narrow, first, last = efforts(partitions)
    enough = recall.surely(promised)
    fewest, filtered = measure(narrow[0] if narrow else first), measure(first)
    if not filtered.keeps(enough):
        filtered = measure(last)
    found = filtered if filtered.keeps(promised) else None
    if may_train and (found is None or not fewest.fits(promised)):
        return None
    if fewest.keeps(enough):
        return fewest, found
    return recall.cheapest(measure, narrow[1:], promised) or found, found
