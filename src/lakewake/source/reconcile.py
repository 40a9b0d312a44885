"""How an index differs from its table, and the changes that make them equal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.model.chunks import ScanParts
from lakewake.model.rows import Changes, Difference, T
from lakewake.model.timeline import Look
from lakewake.progress import step
from lakewake.source import arrow, columns, compare, versions, view
from lakewake.source.distributed import read_scan_parts
from lakewake.source.reader import TableReader, sorted_ids
from lakewake.spark.own import literal, plain_reader
from lakewake.spark.scratch import own_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def difference(table: TableReader, look: Look, index: ScanParts) -> Difference:
    """The ids of the rows that differ, by kind of fault."""
    with (
        tempfile.TemporaryDirectory(prefix="verify-", dir=own_folder()) as folder,
        table.reading(),
    ):
        stored, rows = _both(table, look, index, Path(folder))
        if rows is None:
            orphans = stored.select(*columns.ID).distinct()
            return Difference(orphaned=sorted_ids(table.without_limit(orphans)))
        few = compare.suspects(stored, rows, table.recipe)
        if few == []:
            return Difference()
        if few:
            stored, rows = compare.only(stored, few), compare.only(rows, few)
        faulty = compare.faults(stored, rows, table.recipe).drop("size")
        light = arrow.collect_light(faulty, columns.ID, len(few)) if few else None
        return compare.difference(table.without_limit(faulty) if light is None else light)


def changes(table: TableReader, look: Look, index: ScanParts) -> Changes:
    """The rows that differ from the index, streamed, and the ids that only the index holds."""
    with ExitStack() as opened, table.reading():
        folder = opened.enter_context(
            tempfile.TemporaryDirectory(prefix="reconcile-", dir=own_folder())
        )
        stored, rows = _both(table, look, index, Path(folder))
        if rows is None:
            orphans = stored.select(*columns.ID).distinct()
            gone = table.id_slices(orphans, orphans.count())
            return Changes((), gone=_while_kept(opened.pop_all(), gone))
        few = compare.suspects(stored, rows, table.recipe)
        if few == []:
            return Changes(())
        if few:
            stored, rows = compare.only(stored, few), compare.only(rows, few)
            if found := _reconciled_few(table, stored, rows, len(few)):
                return found
            # Persisted: otherwise the whole table is read each time to find them.
            rows = rows.persist()
            opened.callback(rows.unpersist)
        faulty = compare.faults(stored, rows, table.recipe).persist()
        opened.callback(faulty.unpersist)
        known = compare.difference(table.without_limit(faulty.where("copies > 1")))
        total, orphans, size = compare.amounts(faulty)
        wrong = faulty.where("fault in ('missing', 'stale')").select(*columns.ID)
        differing = rows.join(wrong, [*columns.ID], "left_semi")
        if known.duplicated:
            differing = versions.one_each(differing)
        gone = table.id_slices(faulty.where("fault = 'orphaned'").select(*columns.ID), orphans)
        batches = table.batches(table.streamed(arrow.in_small_parts(differing, size)))
        kept = opened.pop_all()
    return Changes(
        _while_kept(kept, batches),
        duplicates=frozenset(known.duplicated),
        total=total,
        distributed=table.distributed(differing, total, size),
        gone=gone,
    )


def _reconciled_few(
    table: TableReader, stored: DataFrame, rows: DataFrame, count: int
) -> Changes | None:
    """The changes that make a few rows of an index equal to the table's, in one job or two.

    None if the table holds one of them twice, since the index may be right about it. Also None
    if they are too large for one job.
    """
    there = arrow.collect_light(rows, view.wide(table.recipe), count)
    ids = sorted_ids(there or ())
    if there is None or len(set(ids)) < len(ids):
        return None
    held = stored.select(*columns.ID).distinct()
    gone = set(sorted_ids(arrow.collect(held))).difference(ids) if len(ids) < count else ()
    return Changes(table.batches(iter(there)), tuple(sorted(gone)), total=len(ids))


def _both(
    table: TableReader, look: Look, index: ScanParts, folder: Path
) -> tuple[DataFrame, DataFrame | None]:
    """One line per chunk of the index, and one per row of the table; None if that is empty."""
    checked, spark = compare.checked(index, table.recipe), table.session()
    with ThreadPoolExecutor(1) as beside:
        # Python exports the index while Spark and Hudi list the table.
        files = (
            beside.submit(_exported, table, checked, folder)
            if table.distributed_rows is None
            else None
        )
        rows = table.pinned(look) if look.completed else None
        chunks = (
            plain_reader(spark).parquet(*map(literal, files.result()))
            if files
            else read_scan_parts(spark, checked)
        )
    return compare.held(chunks, table.recipe), rows


def _exported(table: TableReader, index: ScanParts, folder: Path) -> list[str]:
    with step(table.reporter, "read the index", index.chunks or None) as stage:
        return compare.export(index, folder, stage)


def _while_kept(kept: ExitStack, batches: Iterator[T]) -> Iterator[T]:
    """The batches; `kept`, the resources they need, is closed after the last of them."""
    with kept:
        yield from batches
