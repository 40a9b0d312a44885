"""What the next sync would do."""

from __future__ import annotations

from dataclasses import replace

from lakewake.errors import HistoryLost, StoreError
from lakewake.model.options import NO_OPTIONS, SyncOptions
from lakewake.model.report import PlanReport
from lakewake.source import TableMoved
from lakewake.sync.attempts import ATTEMPTS
from lakewake.sync.parts import IndexParts
from lakewake.sync.reports import plan_report
from lakewake.sync.situation import assess, delete_guard, preparation, read_changes


def plan_next(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> PlanReport:
    """What a sync with these options would do and how many texts it would embed. Writes nothing."""
    for _ in range(ATTEMPTS):
        situation = assess(parts, options)
        guard = delete_guard(parts, situation)
        work = preparation(parts, situation, guard)
        try:
            if situation.plan.moves:
                work.estimate(read_changes(parts, situation))
        except TableMoved:
            continue
        except HistoryLost as lost:
            options = replace(options, reconcile=True, why=lost.fact)
            continue
        return plan_report(parts, situation, work.tally, guard.refusal(work.tally.removed()))
    raise StoreError(
        f"the table of index '{parts.name}' commits faster than it can be read",
        hint=f"run `lakewake plan {parts.name}` again when the table is less busy",
    )
