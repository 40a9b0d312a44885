"""Canaries: a few questions with known answers that are asked after each sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

#: The metric by which a drop is judged.
MAIN = "ndcg@10"
#: How much lower it may be than after an earlier sync.
DROP = 0.05


@dataclass(frozen=True)
class CanarySettings:
    """Which questions are asked after each sync.

    Attributes:
        file: a JSON Lines file, as `lakewake eval` reads it.
        mode: what the searches go by.
        drop: how much lower nDCG@10 may be than before.
    """

    file: str
    mode: str = "hybrid"
    drop: float = DROP


@dataclass(frozen=True)
class Canaries:
    """How well the canaries were answered after a sync.

    Attributes:
        values: metric → mean.
        fingerprint: differs if a question or an answer does.
        before: the best nDCG@10 after the syncs before it, with the same questions.
        dropped: whether it is lower than that by more than is allowed.
        error: why they were not answered; the sync itself landed.
    """

    mode: str = ""
    questions: int = 0
    values: Mapping[str, float] | None = None
    fingerprint: str = ""
    before: float | None = None
    dropped: bool = False
    error: str = ""

    @property
    def main(self) -> float | None:
        """nDCG@10; None if the questions were not answered."""
        return (self.values or {}).get(MAIN)

    def judged(self, earlier: Iterable[Canaries | None], drop: float) -> Canaries:
        """Compared with the best of the earlier ones, so that a slow decline is a drop too.

        A drop stays one until the answers are as good again, the questions change, or those better
        answers are too long ago to be among the earlier ones.
        """
        same = [c.main for c in earlier if c and c.main is not None and self._like(c)]
        before = max(same, default=None)
        if before is None or self.main is None:
            return replace(self, before=before)
        return replace(self, before=before, dropped=self.main < before - drop)

    def _like(self, other: Canaries) -> bool:
        return (self.fingerprint, self.mode) == (other.fingerprint, other.mode)

    @property
    def in_words(self) -> str:
        """For a person."""
        if self.error:
            return f"not answered: {self.error}"
        now = f"{MAIN} {self.main or 0.0:.3f} by {self.questions:,} questions, mode {self.mode}"
        if self.dropped:
            return f"DROPPED: {now}; {self.before or 0.0:.3f} before"
        return now if self.before is None else f"{now}; {self.before:.3f} before"

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return asdict(self)
