"""What the next sync will do, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakewake.model.frontier import Frontier
from lakewake.model.timeline import Instant


class Action(Enum):
    """The four things a sync can do."""

    BUILD = "build"
    FOLLOW = "follow"
    RECONCILE = "reconcile"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Plan:
    """The decision of one sync.

    Attributes:
        why: one sentence a person can check.
        pending: the instants to absorb, in completion order.
        after: where the index stands once the plan is carried out.
    """

    action: Action
    why: str
    after: Frontier
    pending: tuple[Instant, ...] = ()
