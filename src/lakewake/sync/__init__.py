"""The flow: read → plan → chunk → embed → commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import uuid4

from lakewake.config.settings import MAX_DELETE, ModelSettings
from lakewake.embed import Embedder
from lakewake.embed.cache import VectorCache
from lakewake.errors import (
    HistoryLost,
    OutcomeUnknown,
    RecipeMismatch,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.avro import same_types
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.plan import Action, Plan
from lakewake.model.recipe import Recipe
from lakewake.model.report import PlanReport, SyncReport
from lakewake.model.rows import Changes, RowId
from lakewake.model.timeline import Look
from lakewake.plan import build_plan, check_columns
from lakewake.progress import Reporter, Silent
from lakewake.source import Table, TableMoved, compared
from lakewake.store import Store, StoreReader
from lakewake.sync.deletes import DeleteGuard
from lakewake.sync.distributed import distributed_batch
from lakewake.sync.prepare import Preparation, Tally, VectorSources

#: A lost race is read again; so many in a row mean that something else is wrong.
ATTEMPTS = 5


@dataclass(frozen=True)
class IndexParts:
    """One index and all that it is made from.

    Attributes:
        model: what `embedder` was made from, so that executors can make it too; None: they cannot.
        max_delete: the share of the index's rows that a sync may remove without being asked to.
    """

    name: str
    table: Table
    store: Store
    recipe: Recipe
    embedder: Embedder
    vector_cache: VectorCache
    reporter: Reporter = field(default_factory=Silent)
    model: ModelSettings | None = None
    max_delete: float = MAX_DELETE


@dataclass(frozen=True)
class SyncOptions:
    """What a person may ask of a sync besides its ordinary work.

    Attributes:
        rebuild: build the index anew from the whole table.
        reconcile: compare the whole table with the index even where history can be followed
            (True), or refuse to where it cannot (False).
        retry_quarantined: try the rows again that the embedder refused.
        why: the reason for a reconcile that was not known when the plan was made.
        tried: rows in quarantine that the same sync has tried already.
        allow_deletes: remove rows however many they are.
        alone: a rebuild takes nothing from the index that it replaces.
    """

    rebuild: bool = False
    reconcile: bool | None = None
    retry_quarantined: bool = False
    why: str = ""
    tried: frozenset[RowId] = frozenset()
    allow_deletes: bool = False
    alone: bool = False


NO_OPTIONS = SyncOptions()


def sync(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> SyncReport:
    """Bring an index to its table's latest commit.

    Raises:
        HistoryLost: history cannot be followed, and the wish forbids to reconcile.
        RecipeMismatch: the index was built by another recipe.
        TooManyDeletes: more of the index's rows would go than may without being asked.
    """
    attempts = list[Attempt]()
    with _noting_what_landed(parts, attempts):
        return _sync(parts, options, attempts)


def _sync(parts: IndexParts, options: SyncOptions, attempts: list[Attempt]) -> SyncReport:
    clock, token = Clock(), uuid4().hex
    for _ in range(ATTEMPTS):
        with clock.stage("plan"):
            situation = assess_to_sync(parts, options)
        if landed := _landed(attempts, situation):
            return _done(parts, options, landed, attempts, clock)
        guard = None if options.allow_deletes else situation.guard(parts)
        attempt = Attempt(situation, situation.preparation(parts, guard))
        attempts.append(attempt)
        try:
            if situation.moves:
                _carry_out(parts, attempt, token, clock)
        except StaleFrontier:
            options = _overtaken(options)
            continue
        except (OutcomeUnknown, TableMoved):
            continue
        except StoreError as error:
            if not _moved_on(parts, situation):
                options = _alone(options, situation, error)
            continue
        except HistoryLost as lost:
            if options.reconcile is False or situation.plan.action is Action.RECONCILE:
                raise
            options = replace(options, reconcile=True, why=lost.fact)
            continue
        return _done(parts, options, attempt, attempts, clock)
    raise StoreError(
        f"{ATTEMPTS} times in a row another commit or another sync of '{parts.name}' came first",
        hint="try again; if it goes on, look who else syncs this index",
    )


def _overtaken(options: SyncOptions) -> SyncOptions:
    """What is still wanted after another writer was faster: damage was mended by its build."""
    return replace(options, rebuild=False) if options.rebuild and options.why else options


def _alone(options: SyncOptions, situation: Situation, error: StoreError) -> SyncOptions:
    """The same rebuild without the index that it replaces: that may be what cannot be read."""
    copies = options.rebuild and situation.index is not None
    if not copies or isinstance(error, StoreUnreachable):
        raise error
    return replace(options, alone=True)


@contextmanager
def _noting_what_landed(parts: IndexParts, attempts: list[Attempt]) -> Iterator[None]:
    """Note on the exception that stops a sync whether its commit landed."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        if not getattr(stopped, "__notes__", None):
            stopped.add_note(_what_landed(parts, attempts))
        raise


def _what_landed(parts: IndexParts, attempts: list[Attempt]) -> str:
    asked = {a.then.to_json() for a in attempts if a.then}
    try:
        index = parts.store.open() if asked else None
        stands = index.frontier() if index else None
    except StoreError:
        return f"whether the last commit to '{parts.name}' landed is not known"
    if stands and stands.to_json() in asked:
        return f"the commit to '{parts.name}' landed: it stands at {stands.newest}"
    return f"nothing was written to '{parts.name}'"


def _landed(attempts: list[Attempt], situation: Situation) -> Attempt | None:
    """The attempt by which the index came to where it stands, though an error hid that."""
    if not attempts or situation.index is None:
        return None
    stands = situation.index.frontier().to_json()
    return next((a for a in attempts if a.then and a.then.to_json() == stands), None)


def _done(
    parts: IndexParts, options: SyncOptions, attempt: Attempt, attempts: list[Attempt], clock: Clock
) -> SyncReport:
    """What the attempt that counts did; rows in quarantine are tried after it, where asked for."""
    tally, situation = attempt.work.tally, attempt.situation
    tally.embedded = sum(a.work.tally.embedded for a in attempts)
    report = _report(parts, situation, tally, clock)
    if options.retry_quarantined and situation.follows_commits:
        return report.plus(sync(parts, replace(options, tried=frozenset(tally.refused))))
    return report


def _moved_on(parts: IndexParts, situation: Situation) -> bool:
    """Whether what we were reading may be gone because somebody else wrote.

    A rebuild removes the former generation, and upkeep in time drops former versions.
    """
    if parts.store.generation() != situation.generation:
        return True
    index = parts.store.open()
    return bool(index and situation.index and index.frontier() != situation.index.frontier())


def price(parts: IndexParts) -> PlanReport:
    """What the next sync would do and how many texts it would embed. Writes nothing."""
    options = NO_OPTIONS
    for _ in range(ATTEMPTS):
        situation = assess_to_sync(parts, options)
        guard = situation.guard(parts)
        work = situation.preparation(parts, guard)
        try:
            if situation.moves:
                work.price(situation.changes(parts))
        except TableMoved:
            continue
        except HistoryLost as lost:
            options = replace(options, reconcile=True, why=lost.fact)
            continue
        report = _plan_report(parts, situation, work)
        return replace(report, refused=guard.refusal(work.tally.removed()))
    raise StoreError(
        f"the table of '{parts.name}' commits faster than it can be read",
        hint="run `lakewake plan` again when fewer commits arrive",
    )


@dataclass(frozen=True)
class Situation:
    """What one attempt found: the index, the table, and what is to be done.

    Attributes:
        retried: rows in quarantine that are to be tried again.
    """

    generation: int
    index: StoreReader | None
    frontier: Frontier | None
    look: Look
    plan: Plan
    retried: tuple[RowId, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether there is anything to do."""
        return self.plan.action is not Action.NOTHING

    @property
    def follows_commits(self) -> bool:
        """Whether rows in quarantine may be left untried; a build and a reconcile try them all."""
        return self.plan.action is Action.FOLLOW and not self.retried

    @property
    def builds(self) -> bool:
        """Whether a new generation is written: also where a used column changed its type."""
        if self.plan.action is Action.RECONCILE and self.frontier is not None:
            # A truncated table tells no columns; the index keeps its own until there are some.
            schema = self.plan.after.schema
            return bool(schema) and not same_types(self.frontier.schema, schema)
        return self.plan.action is Action.BUILD

    def changes(self, parts: IndexParts) -> Changes:
        """The rows that the plan is about."""
        if self.builds:
            return parts.table.snapshot(self.look)
        assert self.index is not None
        assert self.frontier is not None
        if self.plan.action is Action.RECONCILE:
            return parts.table.reconcile(self.look, self.index.scan_parts(compared(parts.recipe)))
        if self.retried:
            return retried(parts, self.look, self.retried, self.frontier)
        return parts.table.changes(self.look, self.frontier, self.plan.pending)

    def guard(self, parts: IndexParts) -> DeleteGuard:
        """What keeps a sync from removing most of the index unasked."""
        return DeleteGuard(
            parts.name, self.index, parts.max_delete, self.plan.why, builds=self.builds
        )

    def preparation(self, parts: IndexParts, guard: DeleteGuard | None = None) -> Preparation:
        """A fresh way from rows to a batch; a build takes only vectors from an older index."""
        index = None if self.builds else self.index
        copied = self.index
        if copied and copied.recipe().model != parts.recipe.model:
            copied = None
        trusted = self.plan.action is not Action.RECONCILE
        known = VectorSources(copied, parts.vector_cache, trusted=trusted, replaced=self.builds)
        quarantine = self.frontier.quarantine.keys() if self.frontier else frozenset()
        return Preparation(parts.recipe, parts.embedder, index, known, quarantine, guard)


@dataclass
class Attempt:
    """One way through the flow.

    Attributes:
        then: where it leaves the index, from when the store was asked for it. Such an attempt may
            have landed, whatever became of it.
    """

    situation: Situation
    work: Preparation
    then: Frontier | None = None


def retried(parts: IndexParts, look: Look, rows: tuple[RowId, ...], frontier: Frontier) -> Changes:
    """Rows in quarantine as they are now; those that are gone are deleted."""
    return replace(parts.table.rows(look, rows), duplicates=frontier.duplicates)


def stand(
    parts: IndexParts, index: StoreReader | None, options: SyncOptions = NO_OPTIONS
) -> Situation:
    """Look at the table from where an index stands, and decide."""
    generation = index.generation if index else parts.store.generation()
    frontier = index.frontier() if index and not options.rebuild else None
    look = parts.table.look(frontier)
    check_columns(look, parts.recipe)
    plan = build_plan(look, frontier, parts.recipe)
    if options.rebuild and (index or options.why):
        # Counted on, so that no two generations ever stand at equal frontiers.
        after = replace(plan.after, sync=index.frontier().sync + 1) if index else plan.after
        plan = replace(plan, why=options.why or "a rebuild was asked for", after=after)
    return Situation(generation, index, frontier, look, plan)


def assess_to_sync(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> Situation:
    """The same for an index that is to be written: it must be of our recipe, and wishes count.

    Raises:
        HistoryLost: history cannot be followed, and the wish forbids to reconcile.
    """
    if options.rebuild:
        return stand(parts, None if options.alone else _readable(parts), options)
    index = parts.store.open()
    if index:
        check_recipe(parts, index.recipe())
    situation = stand(parts, index)
    action, frontier = situation.plan.action, situation.frontier
    if action is Action.RECONCILE and options.reconcile is False:
        raise HistoryLost(
            f"index '{parts.name}' cannot follow its table: {situation.plan.why}",
            hint=f"`lakewake sync {parts.name}` compares and repairs; known text is not embedded",
        )
    if options.reconcile and action in (Action.FOLLOW, Action.NOTHING):
        why = options.why or "a reconcile was asked for"
        return replace(situation, plan=replace(situation.plan, action=Action.RECONCILE, why=why))
    if options.retry_quarantined and action is Action.NOTHING and frontier:
        rows = tuple(sorted(frontier.quarantine.keys() - options.tried))
        if rows:
            why = f"{len(rows)} rows in quarantine are tried again"
            plan = replace(situation.plan, action=Action.FOLLOW, why=why)
            return replace(situation, plan=plan, retried=rows)
    return situation


def _readable(parts: IndexParts) -> StoreReader | None:
    """The index that is to be replaced; a damaged one is no reason not to."""
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
    """Refuse to follow with another recipe than the one an index was built by.

    Raises:
        ConfigError: the table has no such column.
        RecipeMismatch: it says what differs.
    """
    differs = built_by.differs_from(parts.recipe)
    if differs:
        # A mistyped column is no wish for another recipe.
        check_columns(parts.table.look(None), parts.recipe)
        said = "; ".join(f"{k} was {a!r}, is now {b!r}" for k, (a, b) in differs.items())
        raise RecipeMismatch(
            f"index '{parts.name}' was built by another recipe: {said}",
            hint=f"`lakewake sync {parts.name} --rebuild` builds it anew by the new one",
        )


def _carry_out(parts: IndexParts, attempt: Attempt, token: str, clock: Clock) -> None:
    situation, work = attempt.situation, attempt.work
    with clock.stage("read"):
        changes = situation.changes(parts)
    with clock.stage("embed"), _batch(parts, situation, work, changes) as batch:
        work.check_deletes()
        then = replace(frontier_then(situation, changes, work.tally), token=token)
        attempt.then = then
        with clock.stage("write"), parts.reporter.stage("write", work.tally.chunks_upserted):
            _commit(parts, situation, batch, then)
    with clock.stage("maintain"):
        _keep_house(parts)


@contextmanager
def _batch(
    parts: IndexParts, situation: Situation, work: Preparation, changes: Changes
) -> Iterator[Batch]:
    """The batch, made where the rows are when they are many, else here."""
    if changes.distributed is None or parts.model is None:
        with work.batch(changes, parts.reporter) as batch:
            yield batch
        return
    after = situation.generation if situation.builds else None
    with (
        parts.store.staging(after) as staging,
        distributed_batch(work, changes, staging, parts.model, parts.reporter) as batch,
    ):
        yield batch


def _keep_house(parts: IndexParts) -> None:
    """Upkeep after a commit that has landed: its failure is not the sync's."""
    try:
        parts.store.maintain()
    except StoreError as error:
        parts.reporter.say(f"upkeep of '{parts.name}' is left for the next time: {error.fact}")


def frontier_then(situation: Situation, changes: Changes, tally: Tally) -> Frontier:
    """Where the index stands after the batch, with what the batch itself told."""
    # What did not change stays the same value: it may be read from a store page by page.
    twice = changes.duplicates
    return replace(
        situation.plan.after,
        duplicates=frozenset(twice | tally.stored_twice) if tally.stored_twice else twice,
        quarantine=_quarantine_then(situation, tally),
    )


def _quarantine_then(situation: Situation, tally: Tally) -> Mapping[RowId, Refusal]:
    former: Mapping[RowId, Refusal] = situation.frontier.quarantine if situation.frontier else {}
    # A build and a reconcile see every row; following sees those that changed.
    follows = situation.plan.action is Action.FOLLOW
    if follows and not tally.seen_again and not tally.refused:
        return former
    kept = {r: why for r, why in former.items() if follows and r not in tally.seen_again}
    refused = {
        row: replace(why, attempts=former[row].attempts + 1 if row in former else 1)
        for row, why in tally.refused.items()
    }
    return {**kept, **refused}


def _commit(parts: IndexParts, situation: Situation, batch: Batch, then: Frontier) -> None:
    """Rows, deletes and frontier: one commit."""
    if situation.builds:
        parts.store.create(parts.recipe, batch, then, after=situation.generation)
    else:
        assert situation.frontier is not None
        parts.store.commit(batch, expect=situation.frontier, then=then)


def _plan_report(parts: IndexParts, situation: Situation, work: Preparation) -> PlanReport:
    return PlanReport(
        index=parts.name,
        action=situation.plan.action,
        why=situation.plan.why,
        pending=tuple(i.requested for i in situation.plan.pending),
        rows_changed=work.tally.rows_changed,
        rows_deleted=work.tally.rows_deleted,
        to_embed=work.tally.to_embed,
        reused=work.tally.reused,
        from_instant=situation.frontier.newest if situation.frontier else "",
        to_instant=situation.plan.after.newest,
    )


def _report(parts: IndexParts, situation: Situation, tally: Tally, clock: Clock) -> SyncReport:
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
        quarantined=len(tally.refused),
        from_instant=situation.frontier.newest if situation.frontier else "",
        to_instant=situation.plan.after.newest,
        seconds=clock.seconds(),
        instants=_absorbed(situation),
    )


def _absorbed(situation: Situation) -> dict[str, str]:
    """The commits that came by this sync: a rebuild brings none that the index had before."""
    held = situation.index.frontier().instants if situation.index else {}
    after = situation.plan.after.instants
    return {requested: c for requested, c in after.items() if held.get(requested) != c}


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
