"""The flow: read → plan → chunk → embed → commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lakewake.embed import Embedder
from lakewake.errors import HistoryLost, OutcomeUnknown, RecipeMismatch, StaleFrontier, StoreError
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action, Plan
from lakewake.model.recipe import Recipe
from lakewake.model.report import PlanReport, SyncReport
from lakewake.model.rows import Changes
from lakewake.model.timeline import Look
from lakewake.plan import build_plan, check_columns
from lakewake.prepare import Preparation
from lakewake.progress import Reporter, Silent
from lakewake.source import Table, TableMoved
from lakewake.store import Store, StoreReader
from lakewake.store.embeddings import EmbeddingStore

#: A lost race is read again; so many in a row mean that something else is wrong.
ATTEMPTS = 5


@dataclass(frozen=True)
class Parts:
    """One index and all that it is made from."""

    name: str
    table: Table
    store: Store
    recipe: Recipe
    embedder: Embedder
    embeddings: EmbeddingStore
    reporter: Reporter = field(default_factory=Silent)


def sync(parts: Parts, *, rebuild: bool = False) -> SyncReport:
    """Bring an index to its table's latest commit.

    Raises:
        HistoryLost: the table's history cannot be followed from where the index stands.
        RecipeMismatch: the index was built by another recipe.
    """
    clock, embedded = Clock(), 0
    for _ in range(ATTEMPTS):
        with clock.stage("plan"):
            standing = stand_to_sync(parts, rebuild=rebuild)
        work = standing.preparation(parts)
        try:
            if standing.plan.action is not Action.NOTHING:
                _carry_out(parts, standing, work, clock)
        except (StaleFrontier, OutcomeUnknown, TableMoved):
            embedded += work.tally.embedded
            continue
        work.tally.embedded += embedded
        return _report(parts, standing, work, clock)
    raise StoreError(
        f"{ATTEMPTS} times in a row another commit or another sync of '{parts.name}' came first",
        hint="try again; if it goes on, look who else syncs this index",
    )


def price(parts: Parts) -> PlanReport:
    """What the next sync would do and how many texts it would embed. Writes nothing."""
    for _ in range(ATTEMPTS):
        standing = stand_to_sync(parts)
        work = standing.preparation(parts)
        try:
            if standing.plan.action in (Action.BUILD, Action.FOLLOW):
                work.price(standing.changes(parts))
        except TableMoved:
            continue
        return PlanReport(
            index=parts.name,
            action=standing.plan.action,
            why=standing.plan.why,
            pending=tuple(i.requested for i in standing.plan.pending),
            rows_changed=work.tally.rows_changed,
            rows_deleted=work.tally.rows_deleted,
            to_embed=work.tally.to_embed,
            reused=work.tally.reused,
            from_instant=standing.frontier.newest if standing.frontier else "",
            to_instant=standing.plan.after.newest,
        )
    raise StoreError(f"the table of '{parts.name}' commits faster than it can be read")


@dataclass(frozen=True)
class Standing:
    """What one attempt found: the index, the table, and what is to be done."""

    generation: int
    index: StoreReader | None
    frontier: Frontier | None
    look: Look
    plan: Plan

    def changes(self, parts: Parts) -> Changes:
        """The rows that the plan is about."""
        if self.plan.action is Action.RECONCILE:
            raise HistoryLost(
                f"index '{parts.name}' cannot follow its table: {self.plan.why}",
                hint=f"`lakewake sync {parts.name} --rebuild` builds it anew; "
                "texts it knows are not embedded again",
            )
        if self.plan.action is Action.BUILD:
            return parts.table.snapshot(self.look)
        assert self.frontier is not None
        return parts.table.changes(self.look, self.frontier, self.plan.pending)

    def preparation(self, parts: Parts) -> Preparation:
        """A fresh way from rows to a batch; a build takes only vectors from an older index."""
        follows = self.index if self.plan.action is not Action.BUILD else None
        known = self.index
        if known and known.recipe().model != parts.recipe.model:
            known = None
        return Preparation(parts.recipe, parts.embedder, parts.embeddings, follows, known)


def stand(parts: Parts, index: StoreReader | None, *, rebuild: bool = False) -> Standing:
    """Look at the table from where an index stands, and decide."""
    generation = index.generation if index else parts.store.generation()
    frontier = index.frontier() if index and not rebuild else None
    look = parts.table.look(frontier)
    check_columns(look, parts.recipe)
    plan = build_plan(look, frontier, parts.recipe)
    if index and rebuild:
        # Counted on, so that no two generations ever stand at equal frontiers.
        after = replace(plan.after, sync=index.frontier().sync + 1)
        plan = replace(plan, why="a rebuild was asked for", after=after)
    return Standing(generation, index, frontier, look, plan)


def stand_to_sync(parts: Parts, *, rebuild: bool = False) -> Standing:
    """The same for an index that is to be written, which must be of our recipe."""
    if rebuild:
        return stand(parts, _readable(parts), rebuild=True)
    index = parts.store.open()
    if index:
        check_recipe(parts, index.recipe())
    return stand(parts, index)


def _readable(parts: Parts) -> StoreReader | None:
    """The index that is to be replaced; a damaged one is no reason not to."""
    try:
        return parts.store.open()
    except StoreError as error:
        parts.reporter.say(error.fact)
        return None


def check_recipe(parts: Parts, built_by: Recipe) -> None:
    """Refuse to follow with another recipe than the one an index was built by.

    Raises:
        RecipeMismatch: it says what differs.
    """
    differs = built_by.differs_from(parts.recipe)
    if differs:
        said = "; ".join(f"{k} was {a!r}, is now {b!r}" for k, (a, b) in differs.items())
        raise RecipeMismatch(
            f"index '{parts.name}' was built by another recipe: {said}",
            hint=f"`lakewake sync {parts.name} --rebuild` builds it anew by the new one",
        )


def _carry_out(parts: Parts, standing: Standing, work: Preparation, clock: Clock) -> None:
    with clock.stage("read"):
        changes = standing.changes(parts)
    with clock.stage("embed"), work.batch(changes, parts.reporter) as batch:
        duplicates = changes.duplicates | work.tally.stored_twice
        then = replace(standing.plan.after, duplicates=frozenset(duplicates))
        with clock.stage("write"), parts.reporter.stage("write", work.tally.chunks_upserted):
            _commit(parts, standing, batch, then)
    with clock.stage("maintain"):
        parts.store.maintain()


def _commit(parts: Parts, standing: Standing, batch: Batch, then: Frontier) -> None:
    """Rows, deletes and frontier: one commit."""
    if standing.plan.action is Action.BUILD:
        parts.store.create(parts.recipe, batch, then, after=standing.generation)
    else:
        assert standing.frontier is not None
        parts.store.commit(batch, expect=standing.frontier, then=then)


def _report(parts: Parts, standing: Standing, work: Preparation, clock: Clock) -> SyncReport:
    tally = work.tally
    return SyncReport(
        index=parts.name,
        action=standing.plan.action,
        why=standing.plan.why,
        rows_changed=tally.rows_changed,
        rows_deleted=tally.rows_deleted,
        chunks_upserted=tally.chunks_upserted,
        chunks_deleted=tally.chunks_deleted,
        embedded=tally.embedded,
        reused=tally.reused,
        from_instant=standing.frontier.newest if standing.frontier else "",
        to_instant=standing.plan.after.newest,
        seconds=clock.seconds(),
    )


class Clock:
    """Seconds per stage; a stage inside another is taken out of it."""

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
        """So far, with the total."""
        return {**self._spent, "total": time.perf_counter() - self._start}
