"""The flow: assess → decide → read → prepare → commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lakewake.errors import HistoryLost, OutcomeUnknown, StoreError
from lakewake.model.options import NO_OPTIONS, SyncOptions
from lakewake.model.report import SyncReport
from lakewake.plan.after import frontier_after_batch
from lakewake.plan.retry import options_after
from lakewake.source import TableMoved
from lakewake.sync.attempts import ATTEMPTS, Attempt, Attempts
from lakewake.sync.parts import IndexParts
from lakewake.sync.preview import plan_next
from lakewake.sync.reports import sync_report
from lakewake.sync.situation import (
    assess,
    check_moved,
    days_are_left,
    moved_on,
    read_changes,
)
from lakewake.sync.write import commit, maintain, prepared_batch, retrainable

__all__ = ["ATTEMPTS", "NO_OPTIONS", "IndexParts", "SyncOptions", "plan_next", "sync"]


def sync(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> SyncReport:
    """Bring an index to its table's latest commit.

    Raises:
        HistoryLost: history cannot be followed and `reconcile=False` was passed.
        RecipeMismatch: the index was built with another recipe.
        TooManyDeletes: the sync would remove more of the index's rows than `max_delete` allows.
        ConfigError: `retrain=True` was passed, and the index is not in the lake.
    """
    attempts = Attempts(parts)
    store = retrainable(parts) if options.retrain else None
    with attempts.noting_what_landed():
        report = _sync(attempts, options)
        return replace(report, retrained=store.retrain()) if store else report


def _sync(attempts: Attempts, options: SyncOptions) -> SyncReport:
    parts = attempts.parts
    for _ in range(ATTEMPTS):
        with attempts.clock.stage("plan"):
            situation = assess(parts, options)
        if landed := attempts.landed(situation):
            return _done(attempts, landed, options)
        attempt = attempts.begin(situation, options)
        try:
            if situation.plan.moves:
                _carry_out(attempts, attempt)
        except (OutcomeUnknown, TableMoved):
            continue
        except (StoreError, HistoryLost) as error:
            copied = situation.index is not None
            moved = partial(moved_on, parts, situation)
            options = options_after(error, options, situation.plan, copied=copied, moved_on=moved)
            continue
        return _done(attempts, attempt, options)
    raise StoreError(
        f"{ATTEMPTS} times in a row another commit or another sync of '{parts.name}' came first",
        landed=attempts.what_landed(),
        hint=f"run `lakewake sync {parts.name}` again; if that fails too, stop the other syncs",
    )


def _carry_out(attempts: Attempts, attempt: Attempt) -> None:
    parts, clock = attempts.parts, attempts.clock
    situation, work = attempt.situation, attempt.work
    with clock.stage("read"):
        changes = read_changes(parts, situation)
    attempt.reads = changes.reads
    with clock.stage("embed"), prepared_batch(parts, situation, work, changes) as batch:
        work.check_deletes()
        outcome = work.tally.outcome(changes)
        check_moved(situation.plan, outcome)
        then = frontier_after_batch(situation.plan, situation.frontier, outcome)
        attempt.then = replace(then, token=attempts.token)
        with clock.stage("write"):
            commit(parts, situation, batch, attempt.then, work.tally.chunks_upserted)
    with clock.stage("maintain"), parts.reporter.stage("upkeep"):
        maintain(parts)


def _done(attempts: Attempts, attempt: Attempt, options: SyncOptions) -> SyncReport:
    """Report the attempt that counts; then select rows on another day, and try refused ones."""
    tally, situation = attempt.work.tally, attempt.situation
    tally.embedded, tally.tokens = attempts.embedded(), attempts.tokens()
    report = sync_report(attempts.parts, situation, tally, attempts.clock)
    report = replace(report, reads=attempt.reads)
    moving = not options.moving and days_are_left(situation, attempts.parts.recipe)
    retries = options.retry_quarantined and situation.plan.follows_commits
    if moving or retries:
        refused = frozenset(tally.refused)
        later = replace(options, tried=refused, retrain=False, moving=moving or options.moving)
        return report.plus(sync(attempts.parts, later))
    return report
