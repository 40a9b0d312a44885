"""How an index in the lake is searched: how many of its cells, and what recall was measured.

searching-g1.json    the decision of the last probe, and the cells it is valid for
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lakewake.model.recall import Decision, Effort, Probed
from lakewake.store import recall
from lakewake.store.recall import EQUAL, Asking, K, Questions

#: The shares of the cells that are tried, cheapest first.
SHARES = (1 / 64, 1 / 32, 3 / 64, 1 / 16, 1 / 12, 1 / 8, 1 / 4, 1 / 2)

#: A question, and how many cells to search (None: all) → how near the `K` nearest chunks are.
Nearness = Callable[[np.ndarray, int | None], np.ndarray]


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
    def absent(self) -> str:
        return "" if self.partitions > 1 else "it has one cell"

    @property
    def unprobed(self) -> tuple[Effort | None, str]:
        return None, "all cells are searched"


@dataclass(frozen=True)
class Found:
    """The result of a probe.

    Attributes:
        instant: the state of the table that was probed.
    """

    decision: Decision
    instant: str

    def to_bytes(self) -> bytes:
        """The content of its file."""
        value = {"instant": self.instant, "decision": self.decision.to_json()}
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Found | None:
        """The inverse of `to_bytes`; None for any other content: it is only advice."""
        try:
            value = json.loads(content)
            decision = Decision.from_json(value["decision"])
            return cls(decision, value["instant"]) if decision else None
        except (ValueError, KeyError, TypeError):
            return None


def efforts(cells: int) -> Iterator[Effort]:
    """How many cells a search may read, cheapest first."""
    tried = sorted({max(2, round(cells * share)) for share in SHARES})
    return (Effort(n, 1) for n in tried if n < cells)


def decide(
    nearness: Nearness, questions: Questions, cells: int, asking: Asking, chunks: int
) -> Decision:
    """Ask the questions both ways, and take the least cells that keep the promise.

    With a filter all cells are searched: the chunks that pass may be anywhere.
    """
    asked = recall.every(questions)
    exact = [nearness(question, None) for question in asked]

    def measure(effort: Effort) -> Probed:
        shares = [
            _share(nearness(q, effort.probes), whole) for q, whole in zip(asked, exact, strict=True)
        ]
        return recall.judged(questions, shares, effort)

    plain = recall.cheapest(measure, efforts(cells), asking.recall)
    return Decision(plain, None, recall.now(), len(asked), asking.recall, chunks)


def _share(found: np.ndarray, whole: np.ndarray) -> float:
    """What share of the nearest was found, by nearness: among equally near ones, any will do."""
    if not len(whole):
        return 1.0
    return min(1.0, float((found >= whole.min() - EQUAL).sum()) / len(whole))


def nearest_scores(scores: np.ndarray) -> np.ndarray:
    """The `K` best of these scores."""
    finite = scores[np.isfinite(scores)]
    return np.partition(finite, len(finite) - K)[-K:] if len(finite) > K else finite
