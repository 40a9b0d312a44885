"""A Hudi table, read through Spark."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import HistoryLost
from lakewake.model.chunks import ScanParts
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, Difference, RowBatch, RowId, T
from lakewake.model.timeline import CommitMetadata, Instant, Look
from lakewake.source import COMPARE_HINT, TableMoved, arrow, columns, compare, versions, view
from lakewake.source.distributed import DISTRIBUTED_ROWS, DistributedRows, read_scan_parts
from lakewake.source.failures import read_through, reading
from lakewake.source.files import GroupReader
from lakewake.source.lineage import (
    Touched,
    adds_rows,
    beside,
    inserted_at_once,
    outlives,
    touched_by,
    window_of,
)
from lakewake.source.look import kept_from, look_at, written_at
from lakewake.source.partitions import Shown, timeline_of
from lakewake.source.session import active, reading_session
from lakewake.spark import executors
from lakewake.spark.options import is_local
from lakewake.spark.scratch import own_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Up to this many rows written by a window are collected in one job; more are streamed.
COLLECT_ROWS = 100_000
#: Ids of deleted rows are passed on this many at a time.
SLICE_ROWS = 10_000
#: Up to this many rows are looked up by their keys; if there are more, the whole table is compared.
LOOKUP_ROWS = 10_000


class HudiTable:
    """One Hudi table, seen through one recipe.

    Args:
        distributed_rows: executors do the work from this many rows on. The default is to use them
            only on a cluster.
    """

    def __init__(
        self,
        path: str,
        recipe: Recipe,
        session: Callable[[], SparkSession],
        distributed_rows: int | None = None,
    ) -> None:
        self._path = path
        self._recipe = recipe
        self._start = session
        self._given_distributed_rows = distributed_rows
        self._seen = False
        self._stored_types: dict[object, StructType] = {}
        self._shown: dict[object, Shown] = {}

    def look(self, frontier: Frontier | None) -> Look:
        return look_at(self._path, frontier)

    def written(self, look: Look, instant: Instant) -> float | None:
        return written_at(self._path, look, instant)

    def snapshot(self, look: Look) -> Changes:
        """Every row as of `look`, the newest version of each."""
        if not look.completed:
            return Changes(())
        with self._reading():
            shown = self._pinned(look)
            found = versions.newest(shown, view.row_weight(shown, self._recipe))
            batches = self._batches(self._streamed(arrow.in_small_parts(found.rows, found.size)))
            payload = view.payload_schema(shown, self._recipe)
            distributed = self._distributed(found.rows, found.total, found.size)
            return Changes(batches, (), found.duplicates, found.total, payload, distributed)

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        """The given rows as of `look`, looked up in the table by their keys."""
        if not ids or not look.completed:
            return Changes((), tuple(sorted(ids)))
        with self._reading():
            wanted = self._named(ids)
            found = versions.newest(self._pinned(look).join(wanted, [*columns.ID], "left_semi"))
            wide, few = view.wide(self._recipe), found.total <= COLLECT_ROWS
            light = arrow.collect_light(found.rows, wide, found.total) if few else None
            names = self._without_limit(found.rows.select(*columns.ID)) if light is None else light
            there = _ids(names)
            gone = tuple(sorted(set(ids).difference(there)))
            if light is not None:
                rows: Iterable[RowBatch] = tuple(self._batches(iter(light)))
            else:
                parts = arrow.in_small_parts(found.rows, self._size(found.rows))
                rows = self._batches(self._streamed(parts))
            return Changes(rows, gone, found.duplicates, found.total)

    def changes(self, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> Changes:
        """The difference between the touched file groups before `pending` and after it."""
        commits = window_of(look, frontier, pending)
        at_once = inserted_at_once(look, frontier, pending)
        appeared = at_once or any(adds_rows(c) or c.overtaken for c in commits)
        touched = touched_by(commits, tuple(beside(look, frontier, pending).values()))
        touched = replace(touched, needs_before=touched.needs_before or at_once)
        if not touched.groups:
            return Changes((), (), frontier.duplicates)
        reader = GroupReader(
            self._session(), self._path, look, frontier, pending, self._stored_types, self._shown
        )
        with self._reading(_lost_files):
            changed = self._difference(reader, touched)
            overlaps = reader.overlaps or touched.overtaken
            collected = self._collected(changed, commits)
            if collected is not None:
                unclear = _unclear(collected, frontier, overlaps)
                found = self._collected_changes(_without(collected, unclear), appeared)
            else:
                written = _rows_written(commits)
                unclear, changed = self._split_unclear(changed, frontier, overlaps, written)
                found = self._streamed_changes(changed, written, appeared)
        if unclear or found.duplicates:
            found = replace(found, duplicates=(frontier.duplicates - unclear) | found.duplicates)
        else:
            found = replace(found, duplicates=frontier.duplicates)
        self._check_unmoved(look, until=pending[-1].completed or "")
        return self._with_looked_up(look, found, unclear) if unclear else found

    def compare(self, look: Look, index: ScanParts) -> Difference:
        with (
            tempfile.TemporaryDirectory(prefix="verify-", dir=own_folder()) as folder,
            self._reading(),
        ):
            stored, rows = self._both(look, index, Path(folder))
            if rows is None:
                orphans = stored.select(*columns.ID).distinct()
                return Difference(orphaned=_ids(self._without_limit(orphans)))
            few = compare.suspects(stored, rows, self._recipe)
            if few == []:
                return Difference()
            if few:
                stored, rows = compare.only(stored, few), compare.only(rows, few)
            faulty = compare.faults(stored, rows, self._recipe).drop("size")
            light = arrow.collect_light(faulty, columns.ID, len(few)) if few else None
            return compare.difference(self._without_limit(faulty) if light is None else light)

    def reconcile(self, look: Look, index: ScanParts) -> Changes:
        """The rows that differ from the index, streamed, and the ids that only the index holds."""
        with ExitStack() as opened, self._reading():
            folder = opened.enter_context(
                tempfile.TemporaryDirectory(prefix="reconcile-", dir=own_folder())
            )
            stored, rows = self._both(look, index, Path(folder))
            if rows is None:
                orphans = stored.select(*columns.ID).distinct()
                gone = self._id_slices(orphans, orphans.count())
                return Changes((), gone=_while_kept(opened.pop_all(), gone))
            few = compare.suspects(stored, rows, self._recipe)
            if few == []:
                return Changes(())
            if few:
                stored, rows = compare.only(stored, few), compare.only(rows, few)
                if found := self._reconciled_few(stored, rows, len(few)):
                    return found
                # Persisted: otherwise the whole table is read each time to find them.
                rows = rows.persist()
                opened.callback(rows.unpersist)
            faulty = compare.faults(stored, rows, self._recipe).persist()
            opened.callback(faulty.unpersist)
            known = compare.difference(self._without_limit(faulty.where("copies > 1")))
            total, orphans, size = compare.amounts(faulty)
            wrong = faulty.where("fault in ('missing', 'stale')").select(*columns.ID)
            differing = rows.join(wrong, [*columns.ID], "left_semi")
            if known.duplicated:
                differing = versions.one_each(differing)
            gone = self._id_slices(faulty.where("fault = 'orphaned'").select(*columns.ID), orphans)
            batches = self._batches(self._streamed(arrow.in_small_parts(differing, size)))
            kept = opened.pop_all()
        return Changes(
            _while_kept(kept, batches),
            duplicates=frozenset(known.duplicated),
            total=total,
            distributed=self._distributed(differing, total, size),
            gone=gone,
        )

    def _reconciled_few(self, stored: DataFrame, rows: DataFrame, count: int) -> Changes | None:
        """The changes that make a few rows of an index equal to the table's, in one job or two.

        None if the table holds one of them twice, since the index may be right about it. Also None
        if they are too large for one job.
        """
        there = arrow.collect_light(rows, view.wide(self._recipe), count)
        ids = _ids(there or ())
        if there is None or len(set(ids)) < len(ids):
            return None
        held = stored.select(*columns.ID).distinct()
        gone = set(_ids(arrow.collect(held))).difference(ids) if len(ids) < count else ()
        return Changes(self._batches(iter(there)), tuple(sorted(gone)), total=len(ids))

    def _session(self) -> SparkSession:
        spark = reading_session(self._start())
        if not self._seen:
            executors.check_table_seen(spark, self._path)
            self._seen = True
        return spark

    @property
    def _distributed_rows(self) -> int | None:
        """Use executors from this many rows on; None: never."""
        if self._given_distributed_rows is None and is_local(self._session().sparkContext.master):
            return None
        return self._given_distributed_rows or DISTRIBUTED_ROWS

    def _distributed(
        self,
        rows: DataFrame,
        total: int,
        size: int,
        appeared: bool = False,
        gone: Callable[[], Exception] = TableMoved,
    ) -> DistributedRows | None:
        least = self._distributed_rows
        if least is None or total < least:
            return None
        return DistributedRows(self._path, rows, self._recipe, total, size, appeared, gone)

    def _both(
        self, look: Look, index: ScanParts, folder: Path
    ) -> tuple[DataFrame, DataFrame | None]:
        """One line per chunk of the index, and one per row of the table; None if that is empty."""
        checked, spark = compare.checked(index, self._recipe), self._session()
        with ThreadPoolExecutor(1) as beside:
            # Python exports the index while Spark and Hudi list the table.
            files = (
                beside.submit(compare.export, checked, folder)
                if self._distributed_rows is None
                else None
            )
            rows = self._pinned(look) if look.completed else None
            chunks = (
                view.plain_reader(spark).parquet(*files.result())
                if files
                else read_scan_parts(spark, checked)
            )
        return compare.held(chunks, self._recipe), rows

    @contextmanager
    def _reading(self, gone: Callable[[], Exception] = TableMoved) -> Iterator[None]:
        with reading(self._path, gone), active(self._session()):
            yield

    def _streamed(
        self, rows: DataFrame, gone: Callable[[], Exception] = TableMoved
    ) -> Iterator[pa.RecordBatch]:
        return read_through(self._path, gone, arrow.stream(rows))

    def _batches(
        self, batches: Iterator[pa.RecordBatch], appeared: bool = False
    ) -> Iterator[RowBatch]:
        return view.row_batches(batches, self._recipe, appeared)

    def _named(self, ids: Collection[RowId]) -> DataFrame:
        """The ids as a table to join with. It is broadcast only if one job can collect it."""
        from pyspark.sql import functions as F  # noqa: N812

        schema = ", ".join(f"{name} string" for name in columns.ID)
        named = self._session().createDataFrame(sorted(ids), schema)
        return F.broadcast(named) if len(ids) <= COLLECT_ROWS else named

    def _pinned(self, look: Look) -> DataFrame:
        """`row_view` of the table, whose file slices Hudi lists while the timeline is unchanged."""
        table = view.hudi_reader(self._session()).load(self._path)
        rows = view.row_view(table, self._recipe)
        # Otherwise Hudi lists them when the first job is planned. After a commit and a clean it
        # would find only files of commits that it had not seen, and leave out their rows without an
        # error. Once listed, they are kept; if one is cleaned later, the read fails and names it.
        table._jdf.inputFiles()
        self._check_unmoved(look, listed=table)
        return rows

    def _check_unmoved(self, look: Look, until: str = "", listed: DataFrame | None = None) -> None:
        """Raise `TableMoved` if an instant has come or gone since `look`.

        Only instants that completed at or before `until` count. If the files of the read are
        `listed` already, raise only if they may not be those of `look`.
        """

        def seen(timeline: Look) -> dict[str, str]:
            return {r: c for r, c in timeline.completed.items() if not until or c <= until}

        again = self.look(Frontier(look.table, look.completed))
        if seen(again) == seen(look) and again.table == look.table:
            return
        if listed is None or not self._is_of(listed, look, again):
            raise TableMoved

    def _is_of(self, listed: DataFrame, look: Look, again: Look) -> bool:
        """Whether a read shows the table as of `look`, though there have been commits since.

        A table may commit all the time. What came after `look` is left for the next sync, as long
        as Hudi did not see it and no clean removed files of `look` before they were listed.
        """
        kept = kept_from(self._path, again)
        return outlives(look, again, kept) and timeline_of(listed) == look.completed

    def _difference(self, reader: GroupReader, touched: Touched) -> DataFrame:
        """`row_view` of the changed rows, with the columns that `versions.changed` adds.

        If the rows before the window need not be read, each copy of a row is returned by itself.
        """
        from pyspark.sql import functions as F  # noqa: N812

        contents = reader.look.merges_contents or touched.logged
        after = reader.after(touched, self._recipe.columns)
        new = view.row_view(after, self._recipe) if after is not None else None
        if new is not None and not (touched.needs_before or contents or reader.overlaps):
            mine = F.col(columns.INSTANT).isin([i.requested for i in reader.pending])
            added = {"gone": F.lit(False), "fresh": F.lit(False), "former": F.lit("")}
            return new.where(mine).withColumns({**added, "copies": F.lit(1)})
        before = reader.before(touched, self._recipe.columns if contents else ())
        if before is None:
            assert new is not None
            return versions.changed(new.limit(0), new, contents=contents)
        old = view.row_view(before, self._recipe) if contents else view.version_view(before)
        if new is None:
            new = view.row_view(view.hudi_reader(self._session()).load(self._path), self._recipe)
            new = new.limit(0)
        return versions.changed(old, new, contents=contents)

    def _collected(
        self, changed: DataFrame, commits: Sequence[CommitMetadata]
    ) -> list[pa.RecordBatch] | None:
        """The changed rows, collected in one job; None if they are too many or too large."""
        written = _rows_written(commits)
        if written > COLLECT_ROWS or written >= (self._distributed_rows or math.inf):
            return None
        if self._recipe.vector and written * 4 * self._recipe.model.dimension > arrow.COLLECT_BYTES:
            return None
        if not written or any(c.replaced for c in commits):
            # Commits do not record how many rows replaced groups held; some writers count nothing.
            changed = changed.limit(COLLECT_ROWS + 1)
        light = arrow.collect_light(changed, view.wide(self._recipe), written or COLLECT_ROWS)
        many = light is not None and sum(b.num_rows for b in light) > COLLECT_ROWS
        return None if many else light

    def _collected_changes(self, collected: list[pa.RecordBatch], appeared: bool) -> Changes:
        """The changed rows, the ids that are gone and those stored twice."""
        found = view.newest_each(collected)
        gone = _removed(b.filter(b.column("gone")) for b in found)
        many = [b.filter(pc.fill_null(pc.greater(b.column("copies"), 1), False)) for b in found]
        twice = {*_ids(many), *(() if found is collected else _repeated(collected))}
        there = iter([b.filter(pc.invert(b.column("gone"))) for b in found])
        rows = self._batches(there, appeared)
        return Changes(rows, tuple(sorted(gone)), frozenset(twice), removed=gone)

    def _streamed_changes(self, changed: DataFrame, written: int, appeared: bool) -> Changes:
        """Like `_collected_changes`, for many rows: they are streamed, or left to executors."""
        amounts = versions.amounts(changed, view.row_weight(changed, self._recipe))
        there = versions.one_each(changed.where("not gone"))
        parts = arrow.in_small_parts(there, amounts.size)
        return Changes(
            self._batches(self._streamed(parts, _lost_files), appeared),
            duplicates=amounts.duplicates,
            distributed=self._distributed(there, written, amounts.size, appeared, _lost_files),
            gone=self._id_slices(
                changed.where("gone").select(*columns.ID, "former"), amounts.gone, _lost_files
            ),
        )

    def _id_slices(
        self, ids: DataFrame, count: int, gone: Callable[[], Exception] = TableMoved
    ) -> Iterator[dict[RowId, str]]:
        """The ids of deleted rows, `SLICE_ROWS` at a time, with the instants of their versions."""
        parts = arrow.in_small_parts(ids, count * arrow.ROW_BYTES)
        for batch in self._streamed(parts, gone) if count else ():
            for start in range(0, batch.num_rows, SLICE_ROWS):
                yield _removed([batch.slice(start, SLICE_ROWS)])

    def _without_limit(self, ids: DataFrame) -> Iterator[pa.RecordBatch]:
        """Any number of ids, with their other columns: one job for each 32 MB of them."""
        kept = ids.persist()
        try:
            size = kept.selectExpr(f"sum({arrow.weight(kept, columns.ID)})").first()
            parts = arrow.in_small_parts(kept, int(size[0] or 0) if size else 0)
            yield from self._streamed(parts)
        finally:
            kept.unpersist()

    def _size(self, rows: DataFrame) -> int:
        """The approximate bytes of the rows. This reads them once."""
        found = rows.selectExpr(f"sum({view.row_weight(rows, self._recipe)})").first()
        return int(found[0] or 0) if found else 0

    def _split_unclear(
        self, changed: DataFrame, frontier: Frontier, overlaps: bool, written: int
    ) -> tuple[frozenset[RowId], DataFrame]:
        """The `_unclear` ones among rows that stay in Spark, and the other rows."""
        unclear: set[RowId] = set()
        if frontier.duplicates or overlaps:
            ids = changed.select(*columns.ID, "fresh", "gone")
            parts = arrow.in_small_parts(ids, written * arrow.ROW_BYTES)
            for batch in self._streamed(parts, _lost_files):
                unclear |= _unclear([batch], frontier, overlaps)
                _refuse_many(unclear)
        if not unclear:
            return frozenset(), changed
        return frozenset(unclear), changed.join(self._named(unclear), [*columns.ID], "left_anti")

    def _with_looked_up(self, look: Look, found: Changes, unclear: frozenset[RowId]) -> Changes:
        """The changes, with rows that are, or were, stored twice looked up in the table itself.

        Another copy may be in a file group that the window did not touch.
        """
        truth = self.rows(look, unclear)
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


def _ids(batches: Iterable[pa.RecordBatch]) -> tuple[RowId, ...]:
    return tuple(sorted(row for b in batches for row in view.row_ids(b)))


def _removed(batches: Iterable[pa.RecordBatch]) -> dict[RowId, str]:
    """The rows that are gone, with the instant of their last version if it is known, else ''."""
    out: dict[RowId, str] = {}
    for batch in batches:
        known = "former" in batch.schema.names
        instants = batch.column("former").to_pylist() if known else [""] * batch.num_rows
        out.update(zip(view.row_ids(batch), instants, strict=True))
    return out


def _repeated(batches: Iterable[pa.RecordBatch]) -> list[RowId]:
    """The ids that occur more than once."""
    return [row for row, n in Counter(_ids(batches)).items() if n > 1]


def _while_kept(kept: ExitStack, batches: Iterator[T]) -> Iterator[T]:
    """The batches; `kept`, the resources they need, is closed after the last of them."""
    with kept:
        yield from batches


def _rows_written(commits: Sequence[CommitMetadata]) -> int:
    return sum(w.inserts + w.updates + w.deletes for c in commits for w in c.writes)
