"""How a hybrid search merges its ranking by meaning and that by words."""

from __future__ import annotations

from dataclasses import dataclass

FUSIONS = ("scores", "ranks")
#: How much the ranking by vector counts; settled on the training questions of SciFact (bar 40).
SHARE = 0.5


@dataclass(frozen=True)
class Fusion:
    """How a hybrid search merges its two rankings.

    Attributes:
        by: `scores` adds scores from 0 to 1, from the last to the first of each ranking; `ranks`
            adds 1 / (60 + rank).
        share: how much the ranking by vector counts, from 0 to 1; that by words counts the rest.
    """

    by: str = "scores"
    share: float = SHARE


USUAL = Fusion()
