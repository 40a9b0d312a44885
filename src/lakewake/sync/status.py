"""Reports how far an index is behind its table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lakewake.config.settings import IndexSettings
from lakewake.errors import IndexStale
from lakewake.model.history import SyncRecord
from lakewake.model.report import StatusReport
from lakewake.model.timeline import Instant
from lakewake.plan import behind_since, pending_instants
from lakewake.plan.lag import Lag, lag, last_up_to_date, since_day
from lakewake.store import StoreReader
from lakewake.sync.parts import IndexParts
from lakewake.sync.situation import Situation, assess, assess_version


def status_report(
    parts: IndexParts, settings: IndexSettings, last_sync: SyncRecord | None
) -> StatusReport:
    """Look at the index and its table, and report how far the index is behind.

    Raises:
        TableError: the table cannot be read.
        StoreError: the index cannot be searched: it is damaged or out of reach.
    """
    situation = assess(parts)
    index, look, plan = situation.index, situation.look, situation.plan
    # Also if the next sync builds: until then, searches show what the index has absorbed.
    frontier = situation.frontier or (index.frontier() if index else None)
    situation = replace(situation, frontier=frontier)
    if index:
        index.probe()
    pending = pending_instants(look, frontier) if frontier else ()
    rows, chunks = index.counts() if index else (0, 0)
    lagging = frontier is None or plan.moves
    late = _lag(parts, situation, pending)
    return StatusReport(
        index=parts.name,
        built=index is not None,
        table=settings.table,
        store=settings.store,
        instant=frontier.newest if frontier else "",
        newest_instant=look.newest,
        lag_commits=(len(pending) if frontier else len(look.completed)) if lagging else 0,
        lag_seconds=late.seconds,
        ahead_seconds=late.ahead,
        rows=rows,
        chunks=chunks,
        generation=index.generation if index else 0,
        duplicates=len(frontier.duplicates) if frontier else 0,
        quarantined=len(frontier.quarantine) if frontier else 0,
        model=parts.recipe.model.as_dict(),
        would=plan.action,
        why="; ".join(filter(None, [plan.why, late.remark])),
        freshness_limit=settings.freshness,
        last_sync=last_sync,
        searching=index.searching() if index else None,
        where=index.recipe().where if index else parts.recipe.where,
        date=frontier.date if frontier else "",
        limit=frontier.limit if frontier else 0,
    )


def refuse_older(parts: IndexParts, index: StoreReader, max_age: float) -> None:
    """Raise if a version of the index is further behind its table than this many seconds.

    Raises:
        IndexStale: it is.
        TableError: the table cannot be read.
    """
    situation = assess_version(parts, index)
    pending = pending_instants(situation.look, index.frontier())
    behind = _lag(parts, situation, pending).seconds
    if behind > max_age:
        raise IndexStale(
            f"index '{parts.name}' is {behind:.1f} s behind its table, more than {max_age:g} s",
            hint=f"run `lakewake sync {parts.name}`, allow a larger max_age, or set "
            'fallback = "scan"',
        )


def _lag(parts: IndexParts, situation: Situation, pending: Sequence[Instant]) -> Lag:
    look, frontier, now = situation.look, situation.frontier, time.time()
    since = behind_since(situation.plan, look, frontier)
    absorbed = last_up_to_date(frontier.instants.values() if frontier else (), look, now)
    written = partial(parts.table.written, look)
    late = lag(since, pending, look, now=now, written=written, absorbed=absorbed)
    if frontier and frontier.date and frontier.date != look.date:
        return replace(late, seconds=max(late.seconds, since_day(frontier.date, now)))
    return late
