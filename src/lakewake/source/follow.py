"""What commits changed: the touched file groups, read as they were before and after them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.rows import Changes, RowId
from lakewake.model.timeline import CommitMetadata, Instant, Look
from lakewake.source import COMPARE_HINT, arrow, columns, versions, view
from lakewake.source.files import GroupReader
from lakewake.source.lineage import (
    Touched,
    adds_rows,
    beside,
    inserted_at_once,
    is_small,
    touched_by,
    window_of,
)
from lakewake.source.reader import TableReader, removed_ids, sorted_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Up to this many rows are looked up by their keys; if there are more, the whole table is compared.
LOOKUP_ROWS = 10_000


def changes(
    table: TableReader, look: Look, frontier: Frontier, pending: Sequence[Instant]
) -> tuple[Changes, frozenset[RowId]]:
    """The difference between the touched file groups before `pending` and after it.

    Returns:
        The changes without the rows that have to be looked up in the table, and the ids of these.
    """
    commits = window_of(look, frontier, pending, table.recipe.columns)
    at_once = inserted_at_once(look, frontier, pending)
    appeared = at_once or any(adds_rows(c) or c.overtaken for c in commits)
    touched = touched_by(commits, tuple(beside(look, frontier, pending).values()))
    touched = replace(touched, needs_before=touched.needs_before or at_once)
    if not touched.groups:
        return Changes((), (), frontier.duplicates), frozenset()
    reader = GroupReader(
        table.session(), table.path, look, frontier, pending, table.stored_types, table.shown
    )
    with table.reading(_lost_files, small=is_small(commits)):
        changed = _difference(table, reader, touched)
        overlaps = reader.overlaps or touched.overtaken
        collected = _collected(table, changed, commits)
        if collected is not None:
            unclear = _unclear(collected, frontier, overlaps)
            found = _collected_changes(table, _without(collected, unclear), appeared)
        else:
            written = _rows_written(commits)
            unclear, changed = _split_unclear(table, changed, frontier, overlaps, written)
            found = _streamed_changes(table, changed, written, appeared)
    if unclear or found.duplicates:
        found = replace(found, duplicates=(frontier.duplicates - unclear) | found.duplicates)
    else:
        found = replace(found, duplicates=frontier.duplicates)
    table.check_unmoved(look, until=pending[-1].completed or "")
    return found, unclear


def _difference(table: TableReader, reader: GroupReader, touched: Touched) -> DataFrame:
    """`row_view` of the changed rows, with the columns that `versions.changed` adds.

    If the rows before the window need not be read, each copy of a row is returned by itself.
    """
    from pyspark.sql import functions as F  # noqa: N812

    contents = reader.look.merges_contents or touched.logged
    after = reader.after(touched, table.recipe.columns)
    new = view.row_view(after, table.recipe) if after is not None else None
    if new is not None and not (touched.needs_before or contents or reader.overlaps):
        mine = F.col(columns.INSTANT).isin([i.requested for i in reader.pending])
        added = {"gone": F.lit(False), "fresh": F.lit(False), "former": F.lit("")}
        return new.where(mine).withColumns({**added, "copies": F.lit(1)})
    before = reader.before(touched, table.recipe.columns if contents else ())
    if before is None:
        assert new is not None
        return versions.changed(new.limit(0), new, contents=contents)
    old = view.row_view(before, table.recipe) if contents else view.version_view(before)
    if new is None:
        new = view.row_view(view.hudi_reader(table.session()).load(table.path), table.recipe)
        new = new.limit(0)
    return versions.changed(old, new, contents=contents)


def _collected(
    table: TableReader, changed: DataFrame, commits: Sequence[CommitMetadata]
) -> list[pa.RecordBatch] | None:
    """The changed rows, collected in one job; None if they are too many or too large."""
    written = _rows_written(commits)
    if written > arrow.COLLECT_ROWS or written >= (table.distributed_rows or math.inf):
        return None
    if table.recipe.vector and written * 4 * table.recipe.model.dimension > arrow.COLLECT_BYTES:
        return None
    if not written or any(c.replaced for c in commits):
        # Commits do not record how many rows replaced groups held; some writers count nothing.
        changed = changed.limit(arrow.COLLECT_ROWS + 1)
    light = arrow.collect_light(changed, view.wide(table.recipe), written or arrow.COLLECT_ROWS)
    many = light is not None and sum(b.num_rows for b in light) > arrow.COLLECT_ROWS
    return None if many else light


def _collected_changes(
    table: TableReader, collected: list[pa.RecordBatch], appeared: bool
) -> Changes:
    """The changed rows, the ids that are gone and those stored twice."""
    found = view.newest_each(collected)
    gone = removed_ids(b.filter(b.column("gone")) for b in found)
    many = [b.filter(pc.fill_null(pc.greater(b.column("copies"), 1), False)) for b in found]
    twice = {*sorted_ids(many), *(() if found is collected else _repeated(collected))}
    there = iter([b.filter(pc.invert(b.column("gone"))) for b in found])
    rows = table.batches(there, appeared)
    return Changes(rows, tuple(sorted(gone)), frozenset(twice), removed=gone)


def _streamed_changes(
    table: TableReader, changed: DataFrame, written: int, appeared: bool
) -> Changes:
    """Like `_collected_changes`, for many rows: they are streamed, or left to executors."""
    amounts = versions.amounts(changed, view.row_weight(changed, table.recipe))
    there = versions.one_each(changed.where("not gone"))
    parts = arrow.in_small_parts(there, amounts.size)
    return Changes(
        table.batches(table.streamed(parts, _lost_files), appeared),
        duplicates=amounts.duplicates,
        distributed=table.distributed(there, written, amounts.size, appeared, _lost_files),
        gone=table.id_slices(
            changed.where("gone").select(*columns.ID, "former"), amounts.gone, _lost_files
        ),
    )


def _split_unclear(
    table: TableReader, changed: DataFrame, frontier: Frontier, overlaps: bool, written: int
) -> tuple[frozenset[RowId], DataFrame]:
    """The `_unclear` ones among rows that stay in Spark, and the other rows."""
    unclear: set[RowId] = set()
    if frontier.duplicates or overlaps:
        ids = changed.select(*columns.ID, "fresh", "gone")
        parts = arrow.in_small_parts(ids, written * arrow.ROW_BYTES)
        for batch in table.streamed(parts, _lost_files):
            unclear |= _unclear([batch], frontier, overlaps)
            _refuse_many(unclear)
    if not unclear:
        return frozenset(), changed
    return frozenset(unclear), changed.join(table.named(unclear), [*columns.ID], "left_anti")


def with_looked_up(found: Changes, truth: Changes) -> Changes:
    """The changes, with rows that are, or were, stored twice as the table itself holds them.

    Another copy may be in a file group that the window did not touch.
    """
    return Changes(
        chain(found.rows, truth.rows),
        found.deleted + truth.deleted,
        found.duplicates | truth.duplicates,
        removed=found.removed,
        gone=found.gone,
    )


def _lost_files() -> HistoryLost:
    return HistoryLost("the cleaner removed files of the commits to follow", hint=COMPARE_HINT)


def _unclear(
    changed: Iterable[pa.RecordBatch], frontier: Frontier, overlaps: bool
) -> frozenset[RowId]:
    """The changed rows whose newest version has to be looked up in the table.

    These are rows known to be stored twice, and rows that a slow writer inserted or maintenance put
    back: a faster writer may have stored a newer version elsewhere in the meantime.
    """
    unclear: set[RowId] = set()
    for batch in changed if frontier.duplicates or overlaps else ():
        rows = zip(
            view.row_ids(batch),
            batch.column("fresh").to_pylist(),
            batch.column("gone").to_pylist(),
            strict=True,
        )
        unclear |= {
            row
            for row, fresh, gone in rows
            if (overlaps and fresh and not gone) or row in frontier.duplicates
        }
    _refuse_many(unclear)
    return frozenset(unclear)


def _refuse_many(unclear: Collection[RowId]) -> None:
    if len(unclear) > LOOKUP_ROWS:
        raise HistoryLost(f"{len(unclear)} changed rows may be stored twice", hint=COMPARE_HINT)


def _without(batches: list[pa.RecordBatch], ids: frozenset[RowId]) -> list[pa.RecordBatch]:
    if not ids:
        return batches
    return [
        b.filter(pa.array([r not in ids for r in view.row_ids(b)], pa.bool_())) for b in batches
    ]


def _repeated(batches: Iterable[pa.RecordBatch]) -> list[RowId]:
    """The ids that occur more than once."""
    return [row for row, n in Counter(sorted_ids(batches)).items() if n > 1]


def _rows_written(commits: Sequence[CommitMetadata]) -> int:
    return sum(w.inserts + w.updates + w.deletes for c in commits for w in c.writes)
