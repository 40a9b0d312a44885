"""Whether an approximate index finds what it promises: it is asked both ways, and decides.

Lance searches the partitions whose centres are nearest to the question. It goes on to others only
while it has too few candidates. Where the nearest partitions were emptied by deletes or by a
filter, the first vectors that turn up are taken for the nearest ones. More probes mend that;
partitions trained again do so only for questions about what the index still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from lance import LanceDataset

from lakewake.model.recall import DELETED, Decision, Effort, Probed, Searching
from lakewake.store.ranking import as_matrix

#: The key of the dataset's configuration that holds the decision: each version has its own.
KEY = "lakewake.searching"
#: Another: how many chunks were taken in or deleted since the partitions were trained.
CHANGED = "lakewake.trained.changed"
#: Questions of each kind, those about deleted vectors, and how many hits of each are compared.
PER_KIND, PER_DELETED, K = 12, 36, 10
#: This many vectors deleted since may empty the partitions around a question: 508 of 130,000. The
#: probe is made again then, and when twice as many were deleted or taken in.
MIN_CHANGED, CHANGED_SHARE = 500, 256
#: Partitions are trained again only when this share of the vectors changed since they were.
TRAINING_SHARE = 8
#: Distances of equal vectors differ by so much with the order of summation.
EQUAL = 1e-5
#: The share of the partitions that is searched, and how many at least.
PROBED, PROBES = 1 / 20, 20
#: How many times the wanted chunks are ranked by their true distance: as a rule, with many probes,
#: and where that does not suffice.
REFINE, REFINE_MORE, REFINE_MOST = 5, 10, 40
SCAN_ROWS = 8192


@dataclass(frozen=True)
class Situation:
    """What one version of a dataset has for approximate search.

    Attributes:
        partitions: those of the approximate index; 0 where there is none.
        covered: chunks that are in it and were not deleted.
        trained: chunks that changed between its training and the probe; None: unknown.
    """

    chunks: int
    partitions: int = 0
    covered: int = 0
    decision: Decision | None = None
    trained: int | None = None

    @property
    def changed(self) -> int:
        """Chunks that were deleted or taken in since the probe."""
        last = self.decision
        return last.deleted(self.covered) + last.taken if last else 0

    def is_due(self, recall: float) -> bool:
        """Whether a probe may find something else than the last one."""
        last = self.decision
        if last is None or last.recall != recall or self.thinned:
            return True
        return self.changed > 2 * many(self.chunks)

    @property
    def thinned(self) -> bool:
        """Whether so much was deleted since the probe that it does not count."""
        last = self.decision
        return last is not None and last.deleted(self.covered) > many(self.chunks)

    @property
    def may_train(self) -> bool:
        """Whether the partitions are old enough for others to be better."""
        return self.trained is None or (self.trained + self.changed) * TRAINING_SHARE >= self.chunks


def standing_of(dataset: LanceDataset) -> Situation:
    """Read from the manifest, and from the head of the approximate index."""
    chunks = dataset.count_rows() - 1
    for index in dataset.describe_indices():
        if index.field_names == ["_vector"]:
            told = dataset.stats.index_stats(index.name)["indices"]
            partitions = max(int(segment["num_partitions"]) for segment in told)
            kept = dataset.config()
            decision = Decision.from_json(kept.get(KEY))
            trained = int(kept[CHANGED]) if kept.get(CHANGED, "").isdigit() else None
            return Situation(chunks, partitions, index.num_rows_indexed, decision, trained)
    return Situation(chunks)


def many(chunks: int) -> int:
    """This many deleted chunks may change what a search finds."""
    return max(MIN_CHANGED, chunks // CHANGED_SHARE)


def efforts(partitions: int) -> tuple[Effort, ...]:
    """What is tried, cheapest first."""
    some = max(PROBES, int(partitions * PROBED))
    tried = ((some, REFINE), (2 * some, REFINE), (4 * some, REFINE_MORE))
    narrow = tuple(Effort(n, refine) for n, refine in tried if n < partitions)
    return (*narrow, *widest(partitions))


def widest(partitions: int) -> tuple[Effort, ...]:
    """All partitions: what was deleted, or left out by a filter, costs no recall there."""
    return tuple(Effort(partitions, refine) for refine in (REFINE_MORE, REFINE_MOST))


def choose(
    there: Situation, *, recall: float, least: int, filtered: bool
) -> tuple[Effort | None, str]:
    """How to search a version (None: exactly), and why."""
    decision = there.decision
    if not there.partitions:
        return None, "it has no approximate index"
    if recall >= 1:
        return None, "its recall is 1"
    if there.chunks < least:
        return None, f"it has fewer than {least:,} chunks"
    if decision is None:
        return widest(there.partitions)[0], "not probed yet, so all partitions are searched"
    found = decision.filtered if filtered or there.thinned else decision.plain
    if found is None or not found.keeps(recall):
        return None, "an approximate search did not find what is promised"
    if there.thinned:
        return found.effort, "much was deleted since the probe, so all partitions are searched"
    return found.effort, "a probe found what is promised"


def how_searched(there: Situation, *, recall: float, least: int) -> Searching:
    """How a version is searched, for `status`."""
    effort, why = choose(there, recall=recall, least=least, filtered=False)
    decision = there.decision
    shown = Searching("exact", why, recall, recall_mean=1.0, recall_worst_tenth=1.0)
    if decision:
        shown = replace(shown, probed_at=decision.at, questions=decision.questions)
    if effort is None:
        return shown
    shown = replace(
        shown,
        mode="approximate",
        probes=effort.probes,
        partitions=there.partitions,
        recall_mean=None,
        recall_worst_tenth=None,
    )
    probes = (decision.plain, decision.filtered) if decision else ()
    for found in (p for p in probes if p and p.effort == effort):
        return replace(
            shown,
            recall_mean=found.mean,
            recall_worst_tenth=found.worst_tenth,
            kinds=dict(found.kinds),
        )
    return shown


def asked(nearest: Mapping[str, object], effort: Effort, k: int) -> dict[str, object]:
    """What Lance is asked for `k` chunks."""
    return {
        **nearest,
        "k": k,
        "minimum_nprobes": effort.probes,
        "refine_factor": effort.refine,
        "ef": max(128, effort.refine * k),
    }


Questions = Mapping[str, np.ndarray]


def questions(
    dataset: LanceDataset, deleted: np.ndarray, recent: np.ndarray, rng: np.random.Generator
) -> Questions:
    """What is asked: stored vectors, points between two of them, deleted ones, recent questions."""
    dimension = dataset.schema.field("_vector").type.list_size
    rows = dataset.count_rows()
    picked = rng.choice(rows, min(3 * PER_KIND + 1, rows), replace=False)
    found = dataset.take(picked.tolist(), columns=["_vector"])
    stored = _askable(as_matrix(found["_vector"].drop_null(), dimension))
    third = len(stored) // 3
    first, second = stored[:third], stored[third : 2 * third]
    kinds = {
        "stored": stored[2 * third :][:PER_KIND],
        "midpoints": _askable(first + second),
        DELETED: _some(_askable(deleted), rng),
        "recent": _askable(recent)[-PER_KIND:],
    }
    return {kind: asked for kind, asked in kinds.items() if len(asked)}


def _askable(vectors: np.ndarray) -> np.ndarray:
    """Those with a direction, each of length 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    fine = (np.isfinite(lengths) & (lengths > 0)).ravel()
    unit: np.ndarray = (vectors[fine] / lengths[fine]).astype(np.float32)
    return unit


def _some(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    picked: np.ndarray = vectors[rng.permutation(len(vectors))[:PER_DELETED]]
    return picked


@dataclass(frozen=True)
class Probe:
    """Questions with their exact answers, to measure efforts by."""

    dataset: LanceDataset
    metric: str
    questions: Questions
    farthest: np.ndarray

    def measure(self, effort: Effort) -> Probed:
        """What share of the nearest an approximate search finds."""
        found = [self._share(n, q, effort) for n, q in enumerate(_all(self.questions))]
        worst = sorted(found)[: max(1, len(found) // 10)]
        shares, kinds = iter(found), {}
        for kind, asked in self.questions.items():
            kinds[kind] = round(float(np.mean([next(shares) for _ in asked])), 4)
        return Probed(
            effort, round(float(np.mean(found)), 4), round(float(np.mean(worst)), 4), kinds
        )

    def _share(self, n: int, question: np.ndarray, effort: Effort) -> float:
        vector = pa.array(question.tolist(), pa.float32())
        nearest = {"column": "_vector", "q": vector, "metric": self.metric}
        found = self.dataset.to_table(columns=["_distance"], nearest=asked(nearest, effort, K))
        # By distance: of vectors that are equally far, any will do.
        near = np.array(found["_distance"].to_pylist()) <= self.farthest[n] + EQUAL
        there: int = min(K, self.dataset.count_rows() - 1)
        return min(1.0, float(near.sum()) / there)


def _all(questions: Questions) -> np.ndarray:
    joined: np.ndarray = np.concatenate(list(questions.values()))
    return joined


def make_probe(dataset: LanceDataset, metric: str, questions: Questions) -> Probe:
    """Compares the questions with every vector, in one pass over them."""
    every = _all(questions)
    nearest = np.full((len(every), K), np.inf, np.float32)
    for vectors in _vectors(dataset, every.shape[1]):
        both = np.concatenate([nearest, distances(metric, every, vectors)], axis=1)
        nearest = np.partition(both, K - 1, axis=1)[:, :K]
    finite = np.where(np.isfinite(nearest), nearest, -np.inf)
    return Probe(dataset, metric, questions, finite.max(axis=1))


def _vectors(dataset: LanceDataset, dimension: int) -> Iterator[np.ndarray]:
    for batch in dataset.to_batches(columns=["_vector"], batch_size=SCAN_ROWS):
        yield as_matrix(batch["_vector"].drop_null(), dimension)


def distances(metric: str, questions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """As Lance measures them for questions of length 1; infinite where none can be told."""
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
    measure: Callable[[Effort], Probed], partitions: int, *, recall: float, may_train: bool
) -> tuple[Probed | None, Probed | None] | None:
    """How to search without a filter and with one (None: exactly); None: train again first.

    The cheapest effort is taken that keeps the promise with half as many misses as it allows: a
    sample may have been lucky. Training is dear: it is done only where the partitions do not fit
    what is there, or all of them together do not find it.
    """
    *narrow, first, last = efforts(partitions)
    surely = (1 + recall) / 2
    fewest, filtered = measure(narrow[0] if narrow else first), measure(first)
    if not filtered.keeps(surely):
        filtered = measure(last)
    found = filtered if filtered.keeps(recall) else None
    if may_train and (found is None or not fewest.fits(recall)):
        return None
    if fewest.keeps(surely):
        return fewest, found
    return next((p for p in map(measure, narrow[1:]) if p.keeps(surely)), found), found


def now() -> str:
    """When a probe is made."""
    return datetime.now(UTC).isoformat(timespec="seconds")
