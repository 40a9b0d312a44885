"""What a sync did, or would do, as reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakewake.model.report import PlanReport, SyncReport
from lakewake.sync.parts import IndexParts
from lakewake.sync.situation import Situation, days_are_left
from lakewake.sync.tally import Tally


def plan_report(parts: IndexParts, situation: Situation, tally: Tally, refused: str) -> PlanReport:
    """What a sync would do. `refused` is the reason it would be refused, or empty."""
    plan, why = situation.plan, situation.plan.why
    if days_are_left(situation, parts.recipe):
        why += f"; afterwards rows are selected on {situation.look.date}, which is not counted"
    return PlanReport(
        index=parts.name,
        action=plan.action,
        why=why,
        pending=tuple(i.requested for i in plan.pending),
        rows_changed=tally.rows_changed,
        rows_deleted=tally.rows_deleted,
        to_embed=tally.to_embed,
        reused=tally.reused,
        from_instant=situation.frontier.newest if situation.frontier else "",
        to_instant=plan.after.newest,
        refused=refused,
        new_generation=plan.new_generation,
    )


def sync_report(parts: IndexParts, situation: Situation, tally: Tally, clock: Clock) -> SyncReport:
    """What a sync did."""
    return SyncReport(
        index=parts.name,
        action=situation.plan.action,
        why=situation.plan.why,
        rows_changed=tally.rows_changed,
        rows_deleted=tally.rows_deleted,
        chunks_upserted=tally.chunks_upserted,
        chunks_deleted=tally.chunks_deleted,
        embedded=tally.embedded,
        reused=tally.reused,
        tokens=tally.tokens,
        quarantined=len(tally.refused),
        from_instant=situation.frontier.newest if situation.frontier else "",
        to_instant=situation.plan.after.newest,
        seconds=clock.seconds(),
        instants=_absorbed(situation),
    )


def _absorbed(situation: Situation) -> dict[str, str]:
    """The commits that this sync absorbed. A rebuild absorbs none that the index had before."""
    held = situation.index.frontier().instants if situation.index else {}
    after = situation.plan.after.instants
    return {requested: c for requested, c in after.items() if held.get(requested) != c}


class Clock:
    """Seconds per stage. The time of an inner stage does not count for the outer one."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        outer, self._inner, begin = self._inner, 0.0, time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - begin
            self._spent[name] = self._spent.get(name, 0.0) + whole - self._inner
            self._inner = outer + whole

    def seconds(self) -> dict[str, float]:
        """The seconds of each stage so far, and the total."""
        return {**self._spent, "total": time.perf_counter() - self._start}
