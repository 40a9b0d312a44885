"""How an index in the lake is searched: how many of its cells, and what recall was measured.

searching-g1.json    the decision of the last probe, what changed since, and the last retrain
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from lakewake.model.recall import Decision, Effort, Probed, Retrained
from lakewake.store import recall
from lakewake.store.recall import EQUAL, Asking, K, Questions

#: The shares of the cells that are tried, cheapest first.
SHARES = (1 / 64, 1 / 32, 3 / 64, 1 / 16, 1 / 12, 1 / 8, 1 / 4, 1 / 2)
#: Cells are trained again if a search has to read a larger share of them than this.
READ_AT_MOST = 1 / 8
#: Fewer cells than this are not: reading all of them takes a moment.
MIN_CELLS = 64

#: A question, and how many cells to search → how near the `K` nearest chunks are.
Nearness = Callable[[np.ndarray, int], np.ndarray]
#: Questions, one per row → how near the `K` nearest chunks of the whole index are, for each.
Exactly = Callable[[np.ndarray], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Coverage:
    """What one state of an index has for approximate search: all its cells."""

    chunks: int
    partitions: int
    decision: Decision | None = None

    @property
    def covered(self) -> int:
        return self.chunks

    @property
    def kind(self) -> str:
        return "ivf_flat" if self.partitions > 1 else ""

    @property
    def absent(self) -> str:
        return "" if self.partitions > 1 else "it has one cell"

    @property
    def unprobed(self) -> tuple[Effort | None, str]:
        return None, "all cells are searched"


@dataclass(frozen=True)
class Counted:
    """What changed since a probe. Kept, because commits leave the timeline after a while.

    Attributes:
        instant: up to which state it is counted.
        written, deleted: chunks since the probe.
        total: both, since the generation was built.
    """

    instant: str
    written: int = 0
    deleted: int = 0
    total: int = 0

    def plus(self, written: int, deleted: int, instant: str) -> Counted:
        """With what changed up to a later state."""
        more = written + deleted
        return Counted(instant, self.written + written, self.deleted + deleted, self.total + more)


@dataclass(frozen=True)
class Found:
    """The result of a probe.

    Attributes:
        instant: the state of the table that was probed.
        table: the table that was probed; '' in files of earlier versions.
        counted: what changed since.
        retrained: how the last retrain ended; None if there was none.
    """

    decision: Decision
    instant: str
    table: str = ""
    counted: Counted | None = None
    retrained: Retrained | None = None

    @property
    def since(self) -> Counted:
        """What changed since the probe, as far as it was counted."""
        return self.counted or Counted(self.instant)

    def fits(self, table: str, instant: str, completed: Sequence[str]) -> bool:
        """Whether it is valid for a state of a table, with these completed instants.

        A restore takes instants away. Others leave the timeline in the course of time, the oldest
        first.
        """
        there = [name.partition("_")[0] for name in completed]
        is_based = self.instant in there or self.instant < min(there, default="")
        return self.table in ("", table) and self.instant <= instant and is_based

    def to_bytes(self) -> bytes:
        """The content of its file."""
        value = {
            "instant": self.instant,
            "decision": self.decision.to_json(),
            "table": self.table,
            "counted": asdict(self.since),
            "retrained": asdict(self.retrained) if self.retrained else None,
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Found | None:
        """The inverse of `to_bytes`; None for any other content: it is only advice."""
        try:
            value = json.loads(content)
            decision, counted = Decision.from_json(value["decision"]), value.get("counted")
            if decision is None:
                return None
            return cls(
                decision,
                value["instant"],
                value.get("table", ""),
                Counted(**counted) if counted else None,
                Retrained.from_dict(value.get("retrained")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def efforts(cells: int) -> Iterator[Effort]:
    """How many cells a search may read, cheapest first."""
    tried = sorted({max(2, round(cells * share)) for share in SHARES})
    return (Effort(n, 1) for n in tried if n < cells)


@dataclass(frozen=True)
class Asked:
    """Questions, and how near the chunks are that an exact search finds for each."""

    questions: Questions
    exact: Sequence[np.ndarray]

    @classmethod
    def of(cls, exactly: Exactly, questions: Questions) -> Asked:
        """Ask the questions exactly."""
        return cls(questions, exactly(recall.every(questions)))

    def measure(self, nearness: Nearness, effort: Effort) -> Probed:
        """What a search of a few cells finds."""
        pairs = zip(recall.every(self.questions), self.exact, strict=True)
        shares = [_share(nearness(q, effort.probes), whole) for q, whole in pairs]
        return recall.judged(self.questions, shares, effort)

    def cheapest(self, nearness: Nearness, cells: int, promised: float) -> Probed | None:
        """The least cells that surely keep the promise; None if that takes more than half."""
        return recall.cheapest(partial(self.measure, nearness), efforts(cells), promised)


def decided(plain: Probed | None, asked: Asked, asking: Asking, chunks: int) -> Decision:
    """The decision to search as many cells as a probe took.

    With a filter all cells are searched: the chunks that pass may be anywhere.
    """
    return Decision(plain, None, recall.now(), len(asked.exact), asking.recall, chunks)


def reads_too_much(decision: Decision, cells: int) -> bool:
    """Whether other cells might serve better: a search has to read too many of these."""
    if cells < MIN_CELLS:
        return False
    return decision.plain is None or decision.plain.effort.probes > READ_AT_MOST * cells


def retrain_due(found: Found, cells: int, chunks: int) -> bool:
    """Whether upkeep should train other cells.

    After an attempt that was not better, half of the index has to change before the next one.
    """
    if not reads_too_much(found.decision, cells):
        return False
    last = found.retrained
    return last is None or (found.since.total - last.changes) * 2 > chunks


def no_worse(
    new: Callable[[Effort], Probed], cells: int, old: Probed | None, of: int, promised: float
) -> Probed | None:
    """The least cells with which new cells are not worse than old ones; None if they are worse.

    They must keep the promise, find at least as much, and take no larger share of the cells.

    Args:
        new: measures the new cells.
        cells, of: how many new cells there are, and how many old ones.
        old: what the old cells find; None: they do not keep the promise.
    """
    for effort in efforts(cells):
        if old and effort.probes * of > old.effort.probes * cells:
            return None
        probed = new(effort)
        if not probed.keeps(recall.surely(promised)):
            continue
        if old is None or (probed.mean >= old.mean and probed.worst_tenth >= old.worst_tenth):
            return probed
    return None


def _share(found: np.ndarray, whole: np.ndarray) -> float:
    """What share of the nearest was found, by nearness: among equally near ones, any will do."""
    if not len(whole):
        return 1.0
    least = whole.min()
    return min(1.0, float((found >= least - EQUAL * max(1.0, abs(least))).sum()) / len(whole))


def nearest_scores(scores: np.ndarray) -> np.ndarray:
    """The `K` best of these scores."""
    finite = scores[np.isfinite(scores)]
    return np.partition(finite, len(finite) - K)[-K:] if len(finite) > K else finite
