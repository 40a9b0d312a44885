"""Spark's workers chunk, embed and stage rows, and read the index themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakewake.model.plan import Action
from lakewake.source.hudi import HudiTable
from lakewake.sync import SyncOptions, plan_next, sync
from lakewake.verify import verify
from support.hudi.tables import HudiTables, row
from support.oracle import HASHING, HudiParts, built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

#: Payload columns of every type that Python workers might change.
TYPED = """SELECT cast(id AS string) id, 's' sub, 'a' part, {ts}L ts,
    concat('{said} ', id % 4) txt, cast(id AS int) num,
    cast(id / 7 AS decimal(20, 4)) price, date'2024-02-29' day,
    timestamp'2024-01-01 12:00:00.123456 UTC' seen,
    array('red', 'dry') tags FROM range(10)"""
PAYLOAD = ("num", "price", "day", "seen", "tags")


def distributed(
    spark, table: Path, folder: Path, payload: tuple[str, ...] = ("id", "num")
) -> HudiParts:
    """An index of a table whose rows never reach this process."""
    made = following(spark, table, folder, payload=payload)
    there = HudiTable(str(table), made.recipe, lambda: spark, distributed_rows=1)
    return replace(made, table=there, model=HASHING)


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request, spark, small_tables, tmp_path) -> HudiTables:
    """Ten rows with six different texts, in two partitions."""
    made = HudiTables(spark, tmp_path / "table", request.param, options=small_tables)
    made.write([row(f"k{n}", f"text {n % 6}", part="ab"[n % 2]) for n in range(10)])
    return made


def test_workers_build_and_follow_the_same_index_as_one_process(table, spark, tmp_path):
    parts = distributed(spark, table.path, tmp_path / "index")
    built = sync(parts)
    assert (built.rows_changed, built.embedded, built.reused) == (10, 6, 4)
    assert indexed(parts) == built_from_nothing(parts)
    table.write([row("k0", "changed", ts=2), row("k2", "text 2", ts=2), row("n", "changed")])
    table.delete("k4")
    followed = sync(parts)
    assert (followed.action, followed.rows_changed, followed.rows_deleted) == (Action.FOLLOW, 2, 1)
    assert (followed.embedded, parts.embedder.received) == (1, [])
    assert indexed(parts) == built_from_nothing(parts)


def test_workers_reconcile_and_verify_rows_of_every_type(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write_frame(spark.sql(TYPED.format(ts=1, said="text")))
    parts = distributed(spark, table.path, tmp_path / "index", PAYLOAD)
    sync(parts)
    assert verify(parts).agrees
    table.write_frame(spark.sql(TYPED.format(ts=2, said="other")).where("num < 3"))
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 3)
    assert verify(parts).agrees
    assert indexed(parts) == built_from_nothing(parts)


def test_a_key_stored_twice_is_indexed_once_by_workers_too(table, spark, tmp_path):
    table.write([row("k0", "newer copy", ts=3)], "bulk_insert")
    parts = distributed(spark, table.path, tmp_path / "index")
    assert sync(parts).rows_changed == 10
    table.write([row("k0", "newest copy", ts=4), row("k2", "other", ts=4)])
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_text_that_workers_cannot_read_is_in_quarantine(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(5)])
    odd = spark.sql(
        "SELECT 'odd' id, 's' sub, 'a' part, 1L ts, cast(X'41ff42' AS string) txt, 0 num"
    )
    table.write_frame(odd)
    parts = distributed(spark, table.path, tmp_path / "index")
    assert sync(parts).quarantined == 1
    assert [r.key for r in parts.store.open().frontier().quarantine] == ["odd"]


def test_a_plan_is_made_without_workers_writing_anything(table, spark, tmp_path):
    parts = distributed(spark, table.path, tmp_path / "index")
    assert plan_next(parts).to_embed == 6
    assert not (tmp_path / "index").exists()
