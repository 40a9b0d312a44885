"""What one attempt of a sync finds: the index, the table, and the plan that joins them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakewake.errors import RecipeMismatch, StoreError, StoreUnreachable
from lakewake.model.frontier import Frontier
from lakewake.model.options import NO_OPTIONS, SyncOptions
from lakewake.model.plan import Action, Plan
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowId
from lakewake.model.timeline import Look
from lakewake.plan import build_plan, check_columns, check_reconcile
from lakewake.source import compared
from lakewake.store import StoreReader
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
        check_recipe(parts, index.recipe())
    situation = assess_version(parts, index, options)
    check_reconcile(parts.name, situation.plan, options)
    return situation


def assess_version(
    parts: IndexParts, index: StoreReader | None, options: SyncOptions = NO_OPTIONS
) -> Situation:
    """Look at the table and decide, for a given version of the index."""
    generation = index.generation if index else parts.store.generation()
    held = index.frontier() if index else None
    frontier = None if options.rebuild else held
    look = parts.table.look(frontier)
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
        # If a column is mistyped, report that instead of another recipe.
        check_columns(parts.table.look(None), parts.recipe)
        changes = "; ".join(f"{k} was {a!r}, is now {b!r}" for k, (a, b) in differs.items())
        raise RecipeMismatch(
            f"index '{parts.name}' was built with another recipe: {changes}",
            hint=f"`lakewake sync {parts.name} --rebuild` builds it again with the new one",
        )


def moved_on(parts: IndexParts, situation: Situation) -> bool:
    """Whether another writer may have removed the files that this attempt was reading.

    A rebuild removes the former generation, and upkeep removes old versions after a while.
    """
    if parts.store.generation() != situation.generation:
        return True
    index = parts.store.open()
    return bool(index and situation.index and index.frontier() != situation.index.frontier())


def read_changes(parts: IndexParts, situation: Situation) -> Changes:
    """The rows that the plan is about."""
    plan, look = situation.plan, situation.look
    if plan.new_generation:
        return parts.table.snapshot(look)
    assert situation.index is not None
    assert situation.frontier is not None
    if plan.action is Action.RECONCILE:
        return parts.table.reconcile(look, situation.index.scan_parts(compared(parts.recipe)))
    if plan.retried:
        return quarantined(parts, look, plan.retried, situation.frontier)
    return parts.table.changes(look, situation.frontier, plan.pending)


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
