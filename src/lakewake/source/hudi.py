"""A Hudi table, read through Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakewake.errors import TableError
from lakewake.model.chunks import ScanParts
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, Difference, RowBatch, RowId
from lakewake.model.timeline import Instant, Look
from lakewake.source import SharedRead, arrow, columns, versions, view
from lakewake.source.look import written_at
from lakewake.source.reader import TableReader, sorted_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HudiTable(TableReader):
    """One Hudi table, seen through one recipe."""

    def written(self, look: Look, instant: Instant) -> float | None:
        return written_at(self.path, look, instant)

    def snapshot(self, look: Look) -> Changes:
        """Every row as of `look`, the newest version of each."""
        if not look.completed:
            return Changes(())
        with self.reading():
            shown = self.pinned(look)
            found = versions.newest(shown, view.row_weight(shown, self.recipe))
            batches = self.batches(self.streamed(arrow.in_small_parts(found.rows, found.size)))
            payload = view.payload_schema(shown, self.recipe)
            distributed = self.distributed(found.rows, found.total, found.size)
            return Changes(
                batches,
                duplicates=found.duplicates,
                total=found.total,
                payload=payload,
                distributed=distributed,
                reads=self.whole,
            )

    def first(self, look: Look, limit: int) -> Changes:
        """Only this many rows. The next try with as many is of the same ones."""
        if not look.completed:
            return Changes(())
        with self.reading():
            shown = self.pinned(look)
            first = shown.select(*columns.ID).distinct().orderBy(*columns.ID).limit(limit)
            ids = sorted_ids(self.without_limit(first))
            payload = view.payload_schema(shown, self.recipe)
        return replace(self.rows(look, ids), payload=payload)

    def scan(self, look: Look, *, spark: bool) -> Changes:
        """Every row as of `look`: by Spark, which reads every table, or without a JVM."""
        if spark or not look.completed:
            return self.snapshot(look)
        from lakewake.source import native

        if why := native.why_not(self.path, look, self.recipe):
            raise TableError(
                f"table {self.path} cannot be scanned without Spark: {why}", hint=native.HINT
            )
        return native.snapshot(self.path, look, self.recipe)

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        """The given rows as of `look`, looked up in the table by their keys."""
        if not ids or not look.completed:
            return Changes((), tuple(sorted(ids)))
        with self.reading():
            wanted = self.named(ids)
            found = versions.newest(self.pinned(look).join(wanted, [*columns.ID], "left_semi"))
            wide, few = view.wide(self.recipe), found.total <= arrow.COLLECT_ROWS
            light = arrow.collect_light(found.rows, wide, found.total) if few else None
            names = self.without_limit(found.rows.select(*columns.ID)) if light is None else light
            there = sorted_ids(names)
            gone = tuple(sorted(set(ids).difference(there)))
            if light is not None:
                rows: Iterable[RowBatch] = tuple(self.batches(iter(light)))
            else:
                parts = arrow.in_small_parts(found.rows, self._size(found.rows))
                rows = self.batches(self.streamed(parts))
            return Changes(rows, gone, found.duplicates, found.total, reads=self.whole)

    def _size(self, rows: DataFrame) -> int:
        """The approximate bytes of the rows. This reads them once."""
        found = rows.selectExpr(f"sum({view.row_weight(rows, self.recipe)})").first()
        return int(found[0] or 0) if found else 0

    def read_together(
        self,
        recipes: Sequence[Recipe],
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
    ) -> SharedRead | None:
        from lakewake.source import follow

        return follow.read_together(self, recipes, look, frontier, pending)

    def changes(
        self,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
        shared: SharedRead | None = None,
    ) -> Changes:
        # Imported here, like `reconcile` below: most syncs find nothing new.
        from lakewake.source import follow

        assert shared is None or isinstance(shared, follow.SharedWindow)
        found, unclear = follow.changes(self, look, frontier, pending, shared)
        then = replace(look, date=frontier.date)
        return follow.with_looked_up(found, self.rows(then, unclear)) if unclear else found

    def moved(self, look: Look, frontier: Frontier) -> Changes:
        from lakewake.source import follow

        found, unclear = follow.moved(self, look, frontier)
        return follow.with_looked_up(found, self.rows(look, unclear)) if unclear else found

    def compare(self, look: Look, index: ScanParts) -> Difference:
        from lakewake.source import reconcile

        return reconcile.difference(self, look, index)

    def reconcile(self, look: Look, index: ScanParts) -> Changes:
        from lakewake.source import reconcile

        found = reconcile.changes(self, look, index)
        return replace(found, reads=self.whole) if look.completed else found
