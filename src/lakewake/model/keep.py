"""How long an index in the lake keeps what it held. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: How many commits are kept by default.
KEPT_COMMITS = 20


@dataclass(frozen=True)
class Keep:
    """How long earlier versions of an index are kept.

    Attributes:
        commits: at least this many of the last commits.
        seconds: at least what was current during this time; 0: only `commits` counts.
    """

    commits: int = KEPT_COMMITS
    seconds: float = 0

    def wanted(self, instants: Iterable[str], now: datetime) -> int:
        """How many commits to keep.

        Args:
            instants: the requested times of the commits.
            now: the time by the clock that the instants were named by.
        """
        if not self.seconds:
            return self.commits
        began = (now - timedelta(seconds=self.seconds)).strftime("%Y%m%d%H%M%S%f")[:17]
        # One more: what was current when that time began is older than it.
        return max(1, sum(instant >= began for instant in instants)) + 1
