"""Judges the recall of an approximate index in any store. Pure.

A store reports its coverage, asks the questions both ways and keeps the decision. This module
defines what is asked, when it is asked again, what counts as found and what follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from lakewake.model.ann import AUTO, FLAT
from lakewake.model.recall import DELETED, RECALL, Decision, Effort, Probed, Searching

#: Questions of each kind, questions about deleted vectors, and hits compared for each question.
#: Recall is lost around deleted vectors: a few dozen questions about them are too often lucky.
PER_KIND, PER_DELETED, K = 12, 128, 10
#: Deleting this many vectors may empty the partitions around a question: 508 of 130,000. The probe
#: is then repeated, and also when twice as many were deleted or added.
MIN_CHANGED, CHANGED_SHARE = 500, 256
#: Distances of equal vectors differ by up to this much, by the order of summation.
EQUAL = 1e-5

#: Kind of question → the vectors to ask for, one per row.
Questions = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Asking:
    """How a process searches the vectors of an index.

    Attributes:
        recall: the promised share of the nearest chunks that a search finds.
        least: an index with fewer chunks is searched exactly.
        kind: which approximate index is wanted; `flat`: none.
        recent: the last questions of this process, which its own upkeep asks again.
    """

    recall: float = RECALL
    least: int = 0
    kind: str = AUTO
    recent: deque[np.ndarray] = field(default_factory=lambda: deque(maxlen=PER_KIND))


class Coverage(Protocol):
    """What one version of an index has for approximate search."""

    @property
    def chunks(self) -> int:
        """How many chunks it holds."""

    @property
    def covered(self) -> int:
        """How many chunks the approximate index covers, without deleted ones."""

    @property
    def decision(self) -> Decision | None:
        """What the last probe found, and how many chunks were added since."""

    @property
    def partitions(self) -> int:
        """How many the approximate index has; 0 if it has no partitions."""

    @property
    def kind(self) -> str:
        """Which kind of approximate index it has; '' if it has none."""

    @property
    def absent(self) -> str:
        """Why there is no approximate index; '' if there is one."""

    @property
    def unprobed(self) -> tuple[Effort | None, str]:
        """How it is searched while no probe is valid (None: exactly), and the same in words."""


def changed(there: Coverage) -> int:
    """How many chunks were deleted or added since the probe."""
    last = there.decision
    return last.deleted(there.covered) + last.taken if last else 0


def thinned(there: Coverage) -> bool:
    """Whether so much was deleted since the probe that it is not valid any more."""
    last = there.decision
    return last is not None and last.deleted(there.covered) > many(there.chunks)


def is_due(there: Coverage, asking: Asking) -> bool:
    """Whether a probe may find something different from the last one."""
    if always_exact(there, asking):
        return False
    last = there.decision
    if last is None or last.recall != asking.recall or thinned(there):
        return True
    return changed(there) > 2 * many(there.chunks)


def always_exact(there: Coverage, asking: Asking) -> str:
    """Why a version is searched exactly, whatever a probe finds; '' if it is not."""
    if there.absent:
        return there.absent
    if asking.kind == FLAT:
        return "its kind is flat"
    if asking.recall >= 1:
        return "its recall is 1"
    if there.chunks < asking.least:
        return f"it has fewer than {asking.least:,} chunks"
    return ""


def many(chunks: int) -> int:
    """How many deleted chunks may change what a search finds."""
    return max(MIN_CHANGED, chunks // CHANGED_SHARE)


def choose(there: Coverage, asking: Asking, *, filtered: bool) -> tuple[Effort | None, str]:
    """How to search a version (None: exactly), and why."""
    decision = there.decision
    if why := always_exact(there, asking):
        return None, why
    cautious, in_words = there.unprobed
    if decision is None:
        return cautious, f"not probed yet, so {in_words}"
    since = f"much was deleted since the probe, so {in_words}" if thinned(there) else ""
    if since and cautious is None:
        return None, since
    found = decision.filtered if filtered or since else decision.plain
    if found is None or not found.keeps(asking.recall):
        return None, "an approximate search did not reach the promised recall"
    return found.effort, since or "a probe reached the promised recall"


def how_searched(there: Coverage, asking: Asking) -> Searching:
    """How a version is searched, for `status`."""
    effort, why = choose(there, asking, filtered=False)
    decision = there.decision
    shown = Searching("exact", why, asking.recall, recall_mean=1.0, recall_worst_tenth=1.0)
    if decision:
        shown = replace(shown, probed_at=decision.at, questions=decision.questions)
    if effort is None:
        return shown
    shown = replace(
        shown,
        mode="approximate",
        kind=there.kind,
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


def questions(
    stored: np.ndarray, deleted: np.ndarray, recent: Iterable[np.ndarray], rng: np.random.Generator
) -> Questions:
    """What is asked: stored vectors, midpoints of two of them, deleted ones, recent questions.

    Args:
        stored: up to three times the questions of one kind, picked at random.
    """
    length = stored.shape[1]
    # Questions from before a rebuild may have another dimension.
    asked = np.array([v for v in [*recent] if len(v) == length], np.float32).reshape(-1, length)
    stored = _askable(stored)
    third = len(stored) // 3
    first, second = stored[:third], stored[third : 2 * third]
    kinds = {
        "stored": stored[2 * third :][:PER_KIND],
        "midpoints": _askable(first + second),
        DELETED: _some(_askable(deleted), rng),
        "recent": _askable(asked)[-PER_KIND:],
    }
    return {kind: asked for kind, asked in kinds.items() if len(asked)}


def _askable(vectors: np.ndarray) -> np.ndarray:
    """The vectors that have a direction, scaled to length 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    fine = (np.isfinite(lengths) & (lengths > 0)).ravel()
    unit: np.ndarray = (vectors[fine] / lengths[fine]).astype(np.float32)
    return unit


def _some(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    picked: np.ndarray = vectors[rng.permutation(len(vectors))[:PER_DELETED]]
    return picked


def number(questions: Questions) -> int:
    """How many questions there are."""
    return sum(map(len, questions.values()))


def every(questions: Questions) -> np.ndarray:
    """All questions, one per row."""
    joined: np.ndarray = np.concatenate(list(questions.values()))
    return joined


def judged(questions: Questions, shares: Sequence[float], effort: Effort) -> Probed:
    """The result of a probe: `shares` is what each question found, in the order of `every`."""
    worst = sorted(shares)[: max(1, len(shares) // 10)]
    left, kinds = iter(shares), {}
    for kind, asked in questions.items():
        kinds[kind] = round(float(np.mean([next(left) for _ in asked])), 4)
    return Probed(effort, round(float(np.mean(shares)), 4), round(float(np.mean(worst)), 4), kinds)


def surely(recall: float) -> float:
    """The recall a sample must reach: with half the misses allowed, since it may be lucky."""
    return (1 + recall) / 2


def cheapest(
    measure: Callable[[Effort], Probed], efforts: Iterable[Effort], recall: float
) -> Probed | None:
    """The first effort that surely keeps the promise; None if none does."""
    return next((p for p in map(measure, efforts) if p.keeps(surely(recall))), None)


def now() -> str:
    """The time of a probe, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
