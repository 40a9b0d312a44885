"""6 · Compares an index with its table, at one instant. Read-only."""

from __future__ import annotations

from dataclasses import replace

from lakewake.chunk import chunk_row
from lakewake.errors import HistoryLost, IndexMissing, TableError
from lakewake.model.plan import Action
from lakewake.model.report import VerifyReport
from lakewake.model.rows import Difference, RowId
from lakewake.source import COMPARED, TableMoved
from lakewake.store import StoreReader
from lakewake.sync import ATTEMPTS, Parts, Standing, check_recipe, stand


def verify(parts: Parts) -> VerifyReport:
    """Whether an index says what its table says.

    Rows that changed since the index's frontier are pending, not faults.

    Raises:
        IndexMissing: there is nothing to verify.
        HistoryLost: what changed since the frontier cannot be told; sync first.
    """
    for _ in range(ATTEMPTS):
        index = parts.store.open()
        if index is None:
            raise IndexMissing(
                f"there is no index '{parts.name}' yet", hint=f"`lakewake sync {parts.name}`"
            )
        wrong_model = _wrong_model(parts, index)
        standing = stand(parts, index)
        try:
            report = _compare(parts, standing, index)
            return replace(report, wrong_model=report.chunks if wrong_model else 0)
        except TableMoved:
            continue
    raise TableError(f"the table of '{parts.name}' commits faster than it can be compared")


def _compare(parts: Parts, standing: Standing, index: StoreReader) -> VerifyReport:
    if standing.plan.action in (Action.RECONCILE, Action.BUILD):
        raise HistoryLost(
            f"index '{parts.name}' cannot be compared: {standing.plan.why}",
            hint=f"sync first: `lakewake sync {parts.name}`",
        )
    pending = _pending(parts, standing)
    with parts.reporter.stage("compare"):
        columns = [*COMPARED, *parts.recipe.payload]
        found = parts.table.compare(standing.look, index.scan(columns))
    found = _without(found, pending)
    missing = _really_missing(parts, standing, found.missing)
    rows, chunks = index.counts()
    return VerifyReport(
        index=parts.name,
        instant=standing.look.newest,
        rows=rows,
        chunks=chunks,
        pending=len(pending),
        missing=missing,
        orphaned=found.orphaned,
        stale=found.stale,
        duplicated=found.duplicated,
    )


def _wrong_model(parts: Parts, index: StoreReader) -> bool:
    """Another model is a fault to report; another recipe otherwise cannot be compared at all."""
    recipe = index.recipe()
    if recipe.model != parts.recipe.model:
        check_recipe(parts, replace(recipe, model=parts.recipe.model))
        return True
    check_recipe(parts, recipe)
    return False


def _pending(parts: Parts, standing: Standing) -> frozenset[RowId]:
    if standing.plan.action is not Action.FOLLOW:
        return frozenset()
    changes = standing.changes(parts)
    changed = {row for batch in changes.rows for row in batch.ids}
    return frozenset(changed | set(changes.deleted))


def _without(found: Difference, pending: frozenset[RowId]) -> Difference:
    def rest(ids: tuple[RowId, ...]) -> tuple[RowId, ...]:
        return tuple(i for i in ids if i not in pending)

    return replace(
        found,
        missing=rest(found.missing),
        orphaned=rest(found.orphaned),
        stale=rest(found.stale),
    )


def _really_missing(
    parts: Parts, standing: Standing, missing: tuple[RowId, ...]
) -> tuple[RowId, ...]:
    """Leave out rows whose text is blank by Python's rules, not by Spark's: they have no chunk."""
    if not missing or parts.recipe.vector:
        return missing
    blank = set()
    for batch in parts.table.rows(standing.look, missing).rows:
        for n, row in enumerate(batch.ids):
            texts = {name: column[n] for name, column in batch.texts.items()}
            if not chunk_row(row, texts, lambda text: (text,)):
                blank.add(row)
    return tuple(row for row in missing if row not in blank)
