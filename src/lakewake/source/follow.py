"""What commits changed: the touched file groups, read as they were before and after them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.reads import Reads
from lakewake.model.recipe import Recipe
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
from lakewake.source.listing import part_of
from lakewake.source.reader import TableReader, prunes_rightly, removed_ids, sorted_ids
from lakewake.source.shared import OwnView, Seen, SharedView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Up to this many rows are looked up by their keys; if there are more, the whole table is compared.
LOOKUP_ROWS = 10_000


@dataclass(frozen=True)
class Window:
    """The changed rows of some commits, as one recipe or several see them.

    Attributes:
        changed: the rows in Spark, with the columns that `versions.changed` adds.
        collected: the same rows in this process; None if they are too many or too large.
        written: how many rows the commits wrote, as far as they record it.
        appeared: the commits may have added rows that the table already held.
        overlaps: newer versions of the rows may be elsewhere in the table.
    """

    changed: DataFrame
    collected: list[pa.RecordBatch] | None
    written: int
    appeared: bool
    overlaps: bool
    reads: Reads


class SharedWindow:
    """The changed rows of some commits for several recipes, read once.

    Rows that are not collected stay in Spark, in memory or on its disks, until it is closed.
    """

    def __init__(self, seen: SharedView, window: Window) -> None:
        self._seen, self._window = seen, window
        self._taken = False

    def of(self, recipe: Recipe) -> Window:
        """The rows as one of the recipes sees them. From the second time on, they are shared."""
        window, reads = self._window, self._window.reads
        if self._taken:
            reads = replace(reads, shared_bytes=reads.bytes)
        self._taken = True
        if window.collected is None:
            frame = self._seen.frame_of(recipe, window.changed)
            return replace(window, changed=frame, reads=reads)
        collected = self._seen.batches_of(recipe, window.collected)
        return replace(window, collected=collected, reads=reads)

    def close(self) -> None:
        """Free what Spark keeps."""
        from py4j.protocol import Py4JError

        # If the JVM has ended there is nothing to free.
        with suppress(Py4JError, ConnectionError):
            if self._window.collected is None:
                self._window.changed.unpersist()


def read_together(
    table: TableReader,
    recipes: Sequence[Recipe],
    look: Look,
    frontier: Frontier,
    pending: Sequence[Instant],
) -> SharedWindow | None:
    """Read once, for several recipes, what `pending` changed; None: no rows have to be read."""
    seen = SharedView(tuple(dict.fromkeys(r.on(frontier.date) for r in recipes)))
    opened = _opened(seen, look, frontier, pending)
    if not opened.touched.groups:
        return None
    with _reading(table, opened):
        window = _read(table, seen, opened)
        if window.collected is None:
            window = replace(window, changed=_kept(window.changed))
    table.check_unmoved(look, until=pending[-1].completed or "")
    return SharedWindow(seen, window)


def _kept(rows: DataFrame) -> DataFrame:
    """The rows, read now and kept by Spark: so an error is not one of the index that uses them."""
    from pyspark import StorageLevel

    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept.count()
    except BaseException:
        kept.unpersist()
        raise
    return kept


def changes(
    table: TableReader,
    look: Look,
    frontier: Frontier,
    pending: Sequence[Instant],
    shared: SharedWindow | None = None,
) -> tuple[Changes, frozenset[RowId]]:
    """The difference between the touched file groups before `pending` and after it.

    Args:
        shared: these commits as `read_together` has read them; they are not read again.

    Returns:
        The changes without the rows that have to be looked up in the table, and the ids of these.
    """
    recipe = table.recipe.on(frontier.date)
    own, opened = OwnView(recipe), None
    window = shared.of(recipe) if shared else None
    if window is None:
        opened = _opened(own, look, frontier, pending)
        if not opened.touched.groups:
            return Changes((), (), frontier.duplicates), frozenset()
    # What is collected already takes no Spark.
    read = nullcontext() if window and window.collected is not None else _reading(table, opened)
    with read:
        if opened:
            window = _read(table, own, opened)
        assert window
        found, unclear = _split(table, window, frontier)
    if unclear or found.duplicates:
        found = replace(found, duplicates=(frontier.duplicates - unclear) | found.duplicates)
    else:
        found = replace(found, duplicates=frontier.duplicates)
    table.check_unmoved(look, until=pending[-1].completed or "")
    return replace(found, reads=window.reads), unclear


def moved(table: TableReader, look: Look, frontier: Frontier) -> tuple[Changes, frozenset[RowId]]:
    """The rows that enter and leave the selection, without those that have to be looked up.

    Only the columns that are needed are read, and of a table that is partitioned by the day only
    the partitions of the days in question.
    """
    if not look.completed:
        return Changes((), (), frontier.duplicates), frozenset()
    with table.reading():
        before, after = table.recipe.on(frontier.date), table.recipe.on(look.date)
        rows = _moved_rows(table, look, frontier.date)
        reads = part_of(table.whole, rows)
        old = view.version_view(view.selected(rows, before.where))
        new = view.row_view(rows, after)
        # The text columns are read only if there are rows to read.
        count = rows.count()
        if not count:
            return Changes((), (), frontier.duplicates, reads=reads), frozenset()
        changed = versions.changed(old, new)
        seen = OwnView(after)
        collected = None
        if count <= min(arrow.COLLECT_ROWS, (table.distributed_rows or math.inf) - 1):
            collected = arrow.collect_light(changed, seen.wide, count)
        window = Window(changed, collected, count, appeared=True, overlaps=False, reads=reads)
        found, unclear = _split(table, window, frontier)
    duplicates = (frontier.duplicates - unclear) | found.duplicates
    if not unclear and not found.duplicates:
        duplicates = frontier.duplicates
    return replace(found, duplicates=duplicates, reads=reads), unclear


def _moved_rows(table: TableReader, look: Look, before: str) -> DataFrame:
    """The rows of the table that are selected on one of two days, and not on the other."""
    selection = table.recipe.selection
    assert selection
    where = selection.moved(before, look.date)
    return view.selected(table.table(look), where, prunes=prunes_rightly(look, table.recipe))


def _reading(table: TableReader, opened: _Opened | None) -> AbstractContextManager[None]:
    return table.reading(_lost_files, small=bool(opened and opened.small))


class _Opened(NamedTuple):
    """The commits of a window, and the file groups to read for them."""

    look: Look
    frontier: Frontier
    pending: Sequence[Instant]
    commits: Sequence[CommitMetadata]
    touched: Touched
    appeared: bool

    @property
    def small(self) -> bool:
        return is_small(self.commits)

    def reader(self, table: TableReader) -> GroupReader:
        return GroupReader(
            table.session(),
            table.path,
            self.look,
            self.frontier,
            self.pending,
            table.stored_types,
            table.shown,
        )


def _opened(seen: Seen, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> _Opened:
    commits = window_of(look, frontier, pending, seen.columns)
    # A row that an update brings into the selection appears, and one may leave it.
    at_once = inserted_at_once(look, frontier, pending) or bool(seen.where)
    appeared = at_once or any(adds_rows(c) or c.overtaken for c in commits)
    touched = touched_by(commits, tuple(beside(look, frontier, pending).values()))
    touched = replace(touched, needs_before=touched.needs_before or at_once)
    return _Opened(look, frontier, pending, commits, touched, appeared)


def _read(table: TableReader, seen: Seen, opened: _Opened) -> Window:
    """Read the changed rows, or have Spark read them when they are used."""
    reader = opened.reader(table)
    changed = _difference(table, seen, reader, opened.touched)
    return Window(
        changed=changed,
        collected=_collected(table, seen, changed, opened.commits),
        written=_rows_written(opened.commits),
        appeared=opened.appeared,
        overlaps=reader.overlaps or opened.touched.overtaken,
        reads=reader.reads,
    )


def _split(
    table: TableReader, window: Window, frontier: Frontier
) -> tuple[Changes, frozenset[RowId]]:
    """The changes of a window, and the ids of the rows that have to be looked up."""
    collected, overlaps = window.collected, window.overlaps
    if collected is not None:
        unclear = _unclear(collected, frontier, overlaps)
        return _collected_changes(table, _without(collected, unclear), window.appeared), unclear
    written = window.written
    unclear, changed = _split_unclear(table, window.changed, frontier, overlaps, written)
    return _streamed_changes(table, changed, written, window.appeared), unclear


def _difference(table: TableReader, seen: Seen, reader: GroupReader, touched: Touched) -> DataFrame:
    """The views of the changed rows, with the columns that `versions.changed` adds.

    If the rows before the window need not be read, each copy of a row is returned by itself.
    """
    from pyspark.sql import functions as F  # noqa: N812

    contents = reader.look.merges_contents or touched.logged
    compared = seen.compared if contents else versions.BY_VERSION
    after = reader.after(touched, seen.columns)
    new = seen.of(after) if after is not None else None
    if new is not None and not (touched.needs_before or contents or reader.overlaps):
        mine = F.col(columns.INSTANT).isin([i.requested for i in reader.pending])
        added = {"gone": F.lit(False), "fresh": F.lit(False), "former": F.lit("")}
        return new.where(mine).withColumns({**added, "copies": F.lit(1)})
    before = reader.before(touched, seen.columns if contents else seen.selected_by)
    if before is None:
        assert new is not None
        return versions.changed(new.limit(0), new, compared)
    old = seen.of(before) if contents else view.version_view(view.selected(before, seen.where))
    if new is None:
        new = seen.of(view.hudi_reader(table.session()).load(table.path)).limit(0)
    return versions.changed(old, new, compared)


def _collected(
    table: TableReader, seen: Seen, changed: DataFrame, commits: Sequence[CommitMetadata]
) -> list[pa.RecordBatch] | None:
    """The changed rows, collected in one job; None if they are too many or too large."""
    written = _rows_written(commits)
    if written > arrow.COLLECT_ROWS or written >= (table.distributed_rows or math.inf):
        return None
    if written * seen.vector_bytes > arrow.COLLECT_BYTES:
        return None
    if not written or any(c.replaced for c in commits):
        # Commits do not record how many rows replaced groups held; some writers count nothing.
        changed = changed.limit(arrow.COLLECT_ROWS + 1)
    light = arrow.collect_light(changed, seen.wide, written or arrow.COLLECT_ROWS)
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
        reads=found.reads.plus(truth.reads),
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
