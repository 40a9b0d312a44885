"""What one attempt of a sync finds: the index, the table, and the plan that joins them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakewake.errors import HistoryLost, RecipeMismatch, StoreError, StoreUnreachable
from lakewake.model.chunks import ScanParts
from lakewake.model.frontier import Frontier
from lakewake.model.options import NO_OPTIONS, SyncOptions
from lakewake.model.plan import Action, Plan
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowId
from lakewake.model.timeline import Look
from lakewake.plan import build_plan, check_columns, check_limit, check_reconcile
from lakewake.plan.after import Outcome
from lakewake.source import COMPARE_HINT, compared
from lakewake.store import StoreReader
from lakewake.store.hints import dropped
from lakewake.sync.deletes import DeleteGuard
from lakewake.sync.parts import IndexParts
from lakewake.sync.prepare import Preparation
from lakewake.sync.vectors import VectorSources


@dataclass(frozen=True)
class Situation:
    """Index, table and plan of one attempt.

    Attributes:
        generation: the generation of the index; 0: there is none.
        index: the index as it is now; None: there is none that can be read.
        frontier: the frontier that the plan starts from; None: it builds.
    """

    generation: int
    index: StoreReader | None
    frontier: Frontier | None
    look: Look
    plan: Plan


def assess(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> Situation:
    """Look at the index and the table, and decide what a sync with these options does.

    Raises:
        HistoryLost: history cannot be followed and `reconcile=False` was passed.
        RecipeMismatch: the index was built with another recipe.
    """
    if options.rebuild:
        return assess_version(parts, None if options.alone else _readable(parts), options)
    index = parts.store.open()
    if index:
        why = _written_again(index.recipe(), parts.recipe)
        if why and options.reconcile is not False:
            return assess_version(parts, index, replace(options, rebuild=True, why=why))
        check_recipe(parts, index.recipe())
    check_limit(parts.name, index.frontier() if index else None, options)
    situation = assess_version(parts, index, options)
    check_reconcile(parts.name, situation.plan, options)
    return situation


def _written_again(built_by: Recipe, wanted: Recipe) -> str:
    """Why a sync writes the index again; nothing that it holds is embedded.

    '' if its payload and its selection are the wanted ones, or another part of the recipe differs.
    """
    differs = built_by.differs_from(wanted)
    if not differs.keys() <= {"payload", "where"}:
        return ""
    why = []
    if "payload" in differs:
        more = [f"+{c}" for c in wanted.payload if c not in built_by.payload]
        less = [f"-{c}" for c in built_by.payload if c not in wanted.payload]
        changes = ", ".join([*more, *less]) or "another order"
        why.append(f"the configured payload changed: {changes}")
    if "where" in differs:
        before, now = built_by.where or "all rows", wanted.where or "all rows"
        why.append(f"its rows were selected by {before!r}, and now by {now!r}")
    return "; ".join(why)


def assess_version(
    parts: IndexParts,
    index: StoreReader | None,
    options: SyncOptions = NO_OPTIONS,
    date: str = "",
) -> Situation:
    """Look at the table and decide, for a given version of the index.

    Args:
        date: the day on which rows are selected; '': that of the look.
    """
    generation = index.generation if index else parts.store.generation()
    held = index.frontier() if index else None
    frontier = None if options.rebuild else held
    look = parts.table.look(frontier)
    look = replace(look, date=date) if date else look
    check_columns(look, parts.recipe)
    plan = build_plan(look, held, parts.recipe, options)
    return Situation(generation, index, frontier, look, plan)


def _readable(parts: IndexParts) -> StoreReader | None:
    """The index that a rebuild replaces; None if it is damaged."""
    try:
        if index := parts.store.open():
            index.probe()
        return index
    except StoreUnreachable:
        raise
    except StoreError as error:
        parts.reporter.say(error.fact)
        return None


def check_recipe(parts: IndexParts, built_by: Recipe) -> None:
    """Raise if the index was not built with the configured recipe.

    Raises:
        ConfigError: the table does not have a column that the recipe names.
        RecipeMismatch: the message lists what differs.
    """
    differs = built_by.differs_from(parts.recipe)
    if differs:
        again = "" if differs.keys() <= {"payload", "where"} else " --rebuild"
        # If a column is mistyped, report that instead of another recipe.
        check_columns(parts.table.look(None), parts.recipe)
        changes = "; ".join(f"{k} was {a!r}, is now {b!r}" for k, (a, b) in differs.items())
        raise RecipeMismatch(
            f"index '{parts.name}' was built with another recipe: {changes}",
            hint=f"`lakewake sync {parts.name}{again}` writes it again with the new one",
        )


def days_are_left(situation: Situation, recipe: Recipe) -> bool:
    """Whether commits were followed, and the rows are still selected on an earlier day."""
    plan = situation.plan
    return plan.follows_commits and recipe.dated and plan.after.date != situation.look.date


def check_moved(plan: Plan, outcome: Outcome) -> None:
    """Raise if a row has entered the selection that the index holds already.

    The table then holds it twice, and the copy that has entered may be the older one.

    Raises:
        HistoryLost: compare index and table instead.
    """
    if plan.since and outcome.stored_twice:
        row = min(outcome.stored_twice)
        raise HistoryLost(
            f"the table holds row {row.key!r} twice, and a copy has entered the selection",
            hint=COMPARE_HINT,
        )


def moved_on(parts: IndexParts, situation: Situation) -> bool:
    """Whether another writer may have removed the files that this attempt was reading.

    A rebuild removes the former generation, and upkeep removes old versions after a while.
    """
    if parts.store.generation() != situation.generation:
        return True
    index = parts.store.open()
    return bool(index and situation.index and index.frontier() != situation.index.frontier())


def refuse_dropped(parts: IndexParts, seen: Situation) -> None:
    """Raise if an index that an attempt has seen was dropped: another attempt would build it again.

    An index whose files were lost is built again.

    Raises:
        IndexDropped: it was dropped.
    """
    try:
        gone = seen.index is not None and parts.store.was_dropped()
    except StoreError:
        # It is damaged or out of reach, and so it is still there.
        return
    if gone:
        raise dropped(parts.name)


def read_changes(parts: IndexParts, situation: Situation) -> Changes:
    """The rows that the plan is about."""
    plan, look = situation.plan, situation.look
    if plan.new_generation:
        limit = plan.after.limit
        return parts.table.first(look, limit) if limit else parts.table.snapshot(look)
    assert situation.index is not None
    assert situation.frontier is not None
    if plan.action is Action.RECONCILE:
        return parts.table.reconcile(look, scan_compared(parts, situation.index))
    if plan.retried:
        return quarantined(parts, look, plan.retried, situation.frontier)
    if plan.since:
        return parts.table.moved(look, situation.frontier)
    return parts.table.changes(look, situation.frontier, plan.pending)


def scan_compared(parts: IndexParts, index: StoreReader) -> ScanParts:
    """All chunks of an index, for a comparison with its table. Their number is exact."""
    return replace(index.scan_parts(compared(parts.recipe)), chunks=index.counts()[1])


def quarantined(
    parts: IndexParts, look: Look, rows: tuple[RowId, ...], frontier: Frontier
) -> Changes:
    """Quarantined rows as they are now. Rows that the table no longer has are deletes."""
    return replace(parts.table.rows(look, rows), duplicates=frontier.duplicates)


def delete_guard(parts: IndexParts, situation: Situation) -> DeleteGuard:
    """Keeps a sync from removing most of the index without consent."""
    plan = situation.plan
    return DeleteGuard(
        parts.name, situation.index, parts.max_delete, plan.why, builds=plan.new_generation
    )


def preparation(
    parts: IndexParts, situation: Situation, guard: DeleteGuard | None = None
) -> Preparation:
    """A fresh `Preparation` for this attempt. A build copies only vectors from an older index."""
    builds = situation.plan.new_generation
    index = None if builds else situation.index
    copied = situation.index
    if copied and copied.recipe().model != parts.recipe.model:
        copied = None
    trusted = situation.plan.action is not Action.RECONCILE
    sources = VectorSources(copied, parts.vector_cache, trusted=trusted, replaced=builds)
    quarantine = situation.frontier.quarantine.keys() if situation.frontier else frozenset()
    return Preparation(parts.recipe, parts.embedder, index, sources, quarantine, guard)
