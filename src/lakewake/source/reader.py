"""Reads one table through Spark: in its own session, as of one look, with errors mapped."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakewake.model.frontier import Frontier
from lakewake.model.reads import NO_READS
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowBatch, RowId
from lakewake.model.timeline import Look
from lakewake.progress import Reporter, Silent
from lakewake.source import TableMoved, arrow, columns, view
from lakewake.source.failures import read_through, reading
from lakewake.source.lineage import outlives
from lakewake.source.listing import whole_table
from lakewake.source.look import kept_from, look_at
from lakewake.source.partitions import Shown, timeline_of
from lakewake.source.session import interpreted, reading_session
from lakewake.source.timeline import partition_columns
from lakewake.spark.options import is_local
from lakewake.spark.own import active
from lakewake.spark.showing import showing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakewake.source.distributed import DistributedRows

#: Key generators whose partition paths hold the values of the columns as they are.
AS_WRITTEN = ("SIMPLE", "COMPLEX", "SimpleKeyGenerator", "ComplexKeyGenerator")
#: Ids of deleted rows are passed on this many at a time.
SLICE_ROWS = 10_000


def today() -> str:
    """The date in UTC, such as `2026-11-19`."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class TableReader:
    """Reads one table through one recipe.

    Args:
        distributed_rows: executors do the work from this many rows on. The default is to use them
            only on a cluster.
        today: the date in UTC.
        reporter: shows how far Spark's jobs are.
    """

    def __init__(
        self,
        path: str,
        recipe: Recipe,
        session: Callable[[], SparkSession],
        distributed_rows: int | None = None,
        today: Callable[[], str] = today,
        reporter: Reporter | None = None,
    ) -> None:
        self.path = path
        self.reporter = reporter or Silent()
        self._today = today
        self.recipe = recipe
        self.stored_types: dict[object, StructType] = {}
        self.shown: dict[object, Shown] = {}
        self._start = session
        self._given_distributed_rows = distributed_rows
        self._seen = False
        #: What the last `pinned` read has listed.
        self.whole = NO_READS

    def look(self, frontier: Frontier | None) -> Look:
        """Look at the timeline, and open the commits that `frontier` has not absorbed."""
        return replace(look_at(self.path, frontier), date=self._today())

    def session(self) -> SparkSession:
        """The session that reads the table. Its executors see the table's files."""
        from lakewake.spark import executors

        spark = reading_session(self._start())
        if not self._seen:
            executors.check_table_seen(spark, self.path)
            self._seen = True
        return spark

    @contextmanager
    def reading(
        self, gone: Callable[[], Exception] = TableMoved, *, small: bool = False
    ) -> Iterator[None]:
        """Read within this context; raise `gone()` if files have vanished.

        Args:
            small: little is read, so queries need not be compiled. A caller's own session is left
                as it is: it may have compiled them already.
        """
        from lakewake.spark.session import is_ours

        spark = self.session()
        how = interpreted(spark) if small and is_ours(spark) else nullcontext()
        shown = showing(spark.sparkContext, self.reporter)
        with reading(self.path, gone), active(spark), how, shown:
            yield

    def pinned(self, look: Look) -> DataFrame:
        """`row_view` of the table on the day of the look."""
        recipe = self.recipe.on(look.date)
        return view.row_view(self.table(look), recipe, prunes=prunes_rightly(look, recipe))

    def table(self, look: Look) -> DataFrame:
        """The table, whose file slices Hudi lists while the timeline is unchanged."""
        table = view.hudi_reader(self.session()).load(self.path)
        # Otherwise Hudi lists them when the first job is planned. After a commit and a clean it
        # would find only files of commits that it had not seen, and leave out their rows without an
        # error. Once listed, they are kept; if one is cleaned later, the read fails and names it.
        table._jdf.inputFiles()
        self.check_unmoved(look, listed=table)
        self.whole = whole_table(table)
        return table

    def check_unmoved(self, look: Look, until: str = "", listed: DataFrame | None = None) -> None:
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
        kept = kept_from(self.path, again)
        return outlives(look, again, kept) and timeline_of(listed) == look.completed

    def named(self, ids: Collection[RowId]) -> DataFrame:
        """The ids as a table to join with. It is broadcast only if one job can collect it."""
        from pyspark.sql import functions as F  # noqa: N812

        schema = ", ".join(f"{name} string" for name in columns.ID)
        named = self.session().createDataFrame(sorted(ids), schema)
        return F.broadcast(named) if len(ids) <= arrow.COLLECT_ROWS else named

    def streamed(
        self, rows: DataFrame, gone: Callable[[], Exception] = TableMoved
    ) -> Iterator[pa.RecordBatch]:
        """All rows, one Spark partition at a time."""
        return read_through(self.path, gone, arrow.stream(rows))

    def batches(
        self, batches: Iterator[pa.RecordBatch], appeared: bool = False
    ) -> Iterator[RowBatch]:
        """Batches of a `row_view` as the next stages take them."""
        return view.row_batches(batches, self.recipe, appeared)

    def without_limit(self, ids: DataFrame) -> Iterator[pa.RecordBatch]:
        """Any number of ids, with their other columns: one job for each 32 MB of them."""
        kept = ids.persist()
        try:
            size = kept.selectExpr(f"sum({arrow.weight(kept, columns.ID)})").first()
            parts = arrow.in_small_parts(kept, int(size[0] or 0) if size else 0)
            yield from self.streamed(parts)
        finally:
            kept.unpersist()

    def id_slices(
        self, ids: DataFrame, count: int, gone: Callable[[], Exception] = TableMoved
    ) -> Iterator[dict[RowId, str]]:
        """The ids of deleted rows, `SLICE_ROWS` at a time, with the instants of their versions."""
        parts = arrow.in_small_parts(ids, count * arrow.ROW_BYTES)
        for batch in self.streamed(parts, gone) if count else ():
            for start in range(0, batch.num_rows, SLICE_ROWS):
                yield removed_ids([batch.slice(start, SLICE_ROWS)])

    @property
    def distributed_rows(self) -> int | None:
        """Use executors from this many rows on; None: never."""
        if self._given_distributed_rows is None and is_local(self.session().sparkContext.master):
            return None
        from lakewake.source.distributed import DISTRIBUTED_ROWS

        return self._given_distributed_rows or DISTRIBUTED_ROWS

    def distributed(
        self,
        rows: DataFrame,
        total: int,
        size: int,
        appeared: bool = False,
        gone: Callable[[], Exception] = TableMoved,
    ) -> DistributedRows | None:
        """The rows for executors to work on; None if there are too few for that."""
        from lakewake.source.distributed import DistributedRows

        least = self.distributed_rows
        if least is None or total < least:
            return None
        return DistributedRows(
            self.path, rows, self.recipe, total, size, appeared, gone, self.reporter
        )


def prunes_rightly(look: Look, recipe: Recipe) -> bool:
    """Whether no partition that Hudi skips holds selected rows.

    It compares the condition with the path. If a key generator has formatted a value for the path,
    as a timestamp is formatted as a day, that is another value than the column's.
    """
    by_path = partition_columns(look.table.partition_fields).intersection(recipe.selected_by)
    kind = look.properties.get("hoodie.table.keygenerator.type", "")
    generator = kind or look.properties.get("hoodie.table.keygenerator.class", "")
    return not by_path or generator.rpartition(".")[2] in AS_WRITTEN


def sorted_ids(batches: Iterable[pa.RecordBatch]) -> tuple[RowId, ...]:
    """The ids of the rows, sorted."""
    return tuple(sorted(row for b in batches for row in view.row_ids(b)))


def removed_ids(batches: Iterable[pa.RecordBatch]) -> dict[RowId, str]:
    """The rows that are gone, with the instant of their last version if it is known, else ''."""
    out: dict[RowId, str] = {}
    for batch in batches:
        known = "former" in batch.schema.names
        instants = batch.column("former").to_pylist() if known else [""] * batch.num_rows
        out.update(zip(view.row_ids(batch), instants, strict=True))
    return out
