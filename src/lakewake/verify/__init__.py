"""6 · Compares an index with its table at one instant, and repairs exactly what differs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from uuid import uuid4

from lakewake.errors import HistoryLost, IndexMissing, OutcomeUnknown, StaleFrontier, TableError
from lakewake.model.plan import Action
from lakewake.model.report import VerifyReport
from lakewake.model.rows import Changes, RowId
from lakewake.plan.after import frontier_after_batch, frontier_after_repair
from lakewake.progress import Stage
from lakewake.source import TableMoved
from lakewake.store import StoreReader
from lakewake.sync import ATTEMPTS, IndexParts, SyncOptions
from lakewake.sync.prepare import Preparation
from lakewake.sync.situation import (
    Situation,
    assess_version,
    check_recipe,
    read_changes,
    scan_compared,
)
from lakewake.sync.vectors import VectorSources
from lakewake.verify.vectors import SAMPLE, Checked, Vectors, check_vectors


@dataclass(frozen=True)
class Finding:
    """What one comparison found, and what a repair needs."""

    report: VerifyReport
    situation: Situation
    index: StoreReader
    doubted: frozenset[str]


def verify(parts: IndexParts, vectors: Vectors = Vectors.SAMPLE) -> VerifyReport:
    """Compare an index with its table. Read-only.

    Rows that changed since the index's frontier are pending, not faults.

    Raises:
        IndexMissing: there is no index.
        HistoryLost: what changed since the frontier cannot be found out; sync first.
    """
    return _find(parts, vectors).report


def repair(parts: IndexParts, vectors: Vectors = Vectors.SAMPLE) -> VerifyReport:
    """Repair exactly what `verify` finds, in one commit, and verify again."""
    token = uuid4().hex
    # By commit number: how many rows the commit was to repair. Then the commits that landed.
    tried: dict[int, int] = {}
    landed: set[int] = set()
    for _ in range(ATTEMPTS):
        found = _find(parts, vectors)
        report, held = found.report, found.index.frontier()
        if held.token == token:
            landed.add(held.sync)
        faults = {*report.missing, *report.stale, *report.orphaned}
        if not faults or report.wrong_model:
            return replace(report, repaired=sum(tried[n] for n in landed))
        tried[held.sync + 1] = len(faults)
        try:
            _repair_rows(parts, found, token)
            landed.add(held.sync + 1)
        except (StaleFrontier, OutcomeUnknown, TableMoved):
            continue
    repaired = sum(tried[n] for n in landed)
    raise TableError(
        f"other writers change index '{parts.name}' faster than it can be repaired",
        landed=f"{repaired:,} rows were repaired; the last repair may have landed too",
        hint=f"stop the other syncs, then run `lakewake verify {parts.name} --repair` again",
    )


def _find(parts: IndexParts, vectors: Vectors) -> Finding:
    for _ in range(ATTEMPTS):
        index = parts.store.open()
        if index is None:
            raise IndexMissing(
                f"there is no index '{parts.name}' yet", hint=f"run `lakewake sync {parts.name}`"
            )
        wrong_model = _wrong_model(parts, index)
        held = index.frontier()
        # Compared as it was synced: on its own day, and with as many rows.
        options = SyncOptions(limit=held.limit)
        situation = assess_version(parts, index, options, date=held.date)
        try:
            with index.pinned():
                return _compare(parts, situation, index, Vectors.NONE if wrong_model else vectors)
        except TableMoved:
            continue
    raise TableError(
        f"the table of index '{parts.name}' commits faster than it can be compared",
        hint=f"run `lakewake verify {parts.name}` again when the table is less busy",
    )


def _compare(parts: IndexParts, situation: Situation, index: StoreReader, how: Vectors) -> Finding:
    if situation.plan.action in (Action.RECONCILE, Action.BUILD):
        raise HistoryLost(
            f"index '{parts.name}' cannot be compared: {situation.plan.why}",
            hint=f"run `lakewake sync {parts.name}` first",
        )
    pending = _pending(parts, situation)
    with parts.reporter.stage("compare"):
        found = parts.table.compare(situation.look, scan_compared(parts, index))
    rows, chunks = index.counts()
    asked = {Vectors.ALL: chunks, Vectors.SAMPLE: min(SAMPLE, chunks)}.get(how)
    with parts.reporter.stage("check vectors", asked) as stage:
        checked = _checked(parts, index, how, stage)
    quarantine, limit = index.frontier().quarantine, index.frontier().limit
    # The table holds more rows than were asked for.
    missing = () if limit else found.missing
    stale = {*found.stale, *(checked.rows - set(found.orphaned))}
    report = VerifyReport(
        index=parts.name,
        instant=situation.look.newest,
        rows=rows,
        chunks=chunks,
        pending=len(pending),
        quarantined=len(quarantine),
        missing=_without(_without(missing, pending), quarantine.keys()),
        orphaned=_without(found.orphaned, pending),
        stale=_without(tuple(sorted(stale)), pending),
        duplicated=found.duplicated,
        wrong_model=chunks if index.recipe().model != parts.recipe.model else 0,
        vectors_checked=checked.chunks,
        date=index.frontier().date,
        limit=limit,
    )
    return Finding(report, situation, index, frozenset(checked.hashes))


def _checked(parts: IndexParts, index: StoreReader, how: Vectors, stage: Stage) -> Checked:
    # Vectors from a column of the table were already compared, by their hash.
    if parts.recipe.vector:
        return Checked()
    return check_vectors(index, parts.embedder, how, stage)


def _repair_rows(parts: IndexParts, found: Finding, token: str) -> None:
    """Write the faulty rows again in one commit."""
    report, situation = found.report, found.situation
    wanted = parts.table.rows(situation.look, (*report.missing, *report.stale))
    changes = Changes(wanted.rows, report.orphaned, found.index.frontier().duplicates, wanted.total)
    sources = VectorSources(found.index, parts.vector_cache, found.doubted, trusted=False)
    work = Preparation(parts.recipe, parts.embedder, found.index, sources)
    expect = found.index.frontier()
    with work.batch(changes, parts.reporter) as batch:
        outcome = work.tally.outcome(changes)
        repaired = frontier_after_batch(situation.plan, situation.frontier, outcome)
        then = replace(frontier_after_repair(expect, repaired), token=token)
        with parts.reporter.stage("write", work.tally.chunks_upserted):
            parts.store.commit(batch, expect=expect, then=then)


def _wrong_model(parts: IndexParts, index: StoreReader) -> bool:
    """Whether the model differs, which is a fault to report. Any other difference raises."""
    recipe = index.recipe()
    check_recipe(parts, replace(recipe, model=parts.recipe.model))
    return recipe.model != parts.recipe.model


def _pending(parts: IndexParts, situation: Situation) -> frozenset[RowId]:
    if situation.plan.action is not Action.FOLLOW:
        return frozenset()
    changes = read_changes(parts, situation)
    changed = {row for batch in changes.rows for row in batch.ids}
    return frozenset(
        changed | set(changes.deleted) | {row for rows in changes.gone for row in rows}
    )


def _without(ids: tuple[RowId, ...], aside: AbstractSet[RowId]) -> tuple[RowId, ...]:
    return tuple(i for i in ids if i not in aside)
