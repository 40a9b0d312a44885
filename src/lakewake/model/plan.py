"""What the next sync will do, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakewake.model.frontier import Frontier
from lakewake.model.rows import RowId
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
        after: the index's frontier once the plan is carried out.
        pending: the instants to absorb, in completion order.
        new_generation: the index is written again from the whole table, beside the old one.
        retried: quarantined rows to try again.
        since: rows enter and leave the selection between this day and that of `after`; '': only
            commits are followed.
    """

    action: Action
    why: str
    after: Frontier
    pending: tuple[Instant, ...] = ()
    new_generation: bool = False
    retried: tuple[RowId, ...] = ()
    since: str = ""

    @property
    def moves(self) -> bool:
        """Whether there is anything to do."""
        return self.action is not Action.NOTHING

    @property
    def follows_commits(self) -> bool:
        """Whether only the rows of new commits are read, and no quarantined row is tried again."""
        return self.action is Action.FOLLOW and not self.retried
