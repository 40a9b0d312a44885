"""How long an index has been behind its table, even if a writer's clock is wrong. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakewake.model.timeline import Instant, Look

#: A smaller difference between clocks is not mentioned.
WORTH_SAYING = 1.0


@dataclass(frozen=True)
class Lag:
    """How long an index has been behind.

    Attributes:
        ahead: how many seconds the clock of a writer is ahead of ours, as far as it is known.
    """

    seconds: float = 0.0
    ahead: float = 0.0

    @property
    def remark(self) -> str:
        """A remark about the clocks; '' if there is nothing to say."""
        if self.ahead < WORTH_SAYING:
            return ""
        return f"a commit is dated {self.ahead:.0f} s ahead of this machine's clock"


def lag(
    since: str,
    pending: Iterable[Instant],
    look: Look,
    *,
    now: float,
    written: Callable[[Instant], float | None],
    absorbed: float,
) -> Lag:
    """How long the index has been behind, judged by the oldest change that it lacks.

    The time of a commit from the future is useless. The time at which its file was written, by the
    clock of the storage, counts instead; if that is unknown, the time at which the index was last
    up to date.

    Args:
        since: the completion time of the first change that the index lacks; '': it lacks none.
        now: seconds since 1970, as are `written` and `absorbed`.
        absorbed: the newest time, not after `now`, at which the index was up to date.
    """
    if not since:
        return Lag()
    lacking = {*pending, *(i for i in look.instants if i.completed == since)}
    dated = {i: _seconds(i.completed, look) for i in lacking}
    future = {i: t for i, t in dated.items() if t is not None and t > now}
    began = [t for t in (_seconds(since, look),) if t is not None and t <= now]
    for instant in future:
        at = written(instant)
        began.append(at if at is not None and at <= now else absorbed)
    ahead = max((t - now for t in future.values()), default=0.0)
    return Lag(now - min(began, default=now), ahead)


def _seconds(completed: str | None, look: Look) -> float | None:
    when = look.time_of(completed) if completed else None
    return when.timestamp() if when else None


def last_up_to_date(completions: Iterable[str], look: Look, now: float) -> float:
    """The newest of these times that is not in the future; `now` if there is none."""
    times = (_seconds(c, look) for c in completions)
    return max((t for t in times if t is not None and t <= now), default=now)


def since_day(date: str, now: float) -> float:
    """How many seconds ago the day after this one began, in UTC."""
    day = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.UTC)
    return max(0.0, now - (day + datetime.timedelta(days=1)).timestamp())
