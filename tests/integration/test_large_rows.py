"""Few but large rows: they are grouped by bytes, not by number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lance
import pytest

from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking
from lakewake.model.rows import RowId
from lakewake.source import arrow, compare, reader, view
from lakewake.sync import SyncOptions, index_rows, spool, sync
from lakewake.verify import repair, verify
from support.hudi.playing import COW, MOR
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, following_vectors, indexed

pytestmark = pytest.mark.spark

#: A thousandth of the real bounds: rows of 20 KB then count like rows of 20 MB.
SCALE = 1024
LARGE = 20_000


def long_text(key: str, version: int = 1) -> str:
    """20 KB of unique sentences."""
    lines = [f"Line {n} of {key} says the same every time." for n in range(LARGE // 40)]
    lines[250] = f"Only version {version} says this of {key}."
    return " ".join(lines)


@pytest.fixture
def small_memory(spark, monkeypatch) -> Iterator[None]:
    """Make every memory bound a thousand times smaller, Spark's own included."""
    for module, name in (
        (arrow, "COLLECT_BYTES"),
        (arrow, "PART_BYTES"),
        (view, "BATCH_BYTES"),
        (index_rows, "WRITE_BYTES"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name) // SCALE)
    with most_results(spark, "256k"):
        yield


@contextmanager
def most_results(spark, size: str) -> Iterator[None]:
    """Limit the bytes that one job may return; Spark reads the limit when a job begins."""
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", size)
    try:
        yield
    finally:
        conf.set("spark.driver.maxResultSize", "1g")


@pytest.mark.parametrize("type_", [COW, MOR])
def test_large_rows_are_built_followed_compared_and_repaired(
    type_, spark, small_tables, small_memory, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    keys = [f"k{n:02}" for n in range(24)]
    table.write([row(k, long_text(k)) for k in keys])
    parts = following(spark, table.path, tmp_path / "index", chunking=Chunking(tokens=100))
    built = sync(parts)
    assert built.rows_changed == 24
    assert built.chunks_upserted > 24 * 40
    table.write([row(k, long_text(k, 2), ts=2) for k in keys[:16]])
    table.delete(*keys[20:])
    report = sync(parts)
    assert (report.action, report.rows_changed, report.rows_deleted) == (Action.FOLLOW, 16, 4)
    assert (report.embedded, report.chunks_upserted) == (16, 32)
    assert verify(parts).agrees
    table.write([row(k, long_text(k, 3), ts=10**7) for k in keys[8:]])
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 16)
    lance.dataset(str(tmp_path / "index" / "sample.g1.lance")).delete("_key >= 'k12'")
    assert repair(parts).repaired == 12
    assert sync(parts, SyncOptions(rebuild=True)).embedded == 0
    assert indexed(parts) == built_from_nothing(parts)


def test_long_vectors_are_built_followed_and_reconciled(
    spark, small_tables, small_memory, tmp_path
):
    numbers = "transform(sequence(1, 768), n -> cast((7 * ts + n) % 97 AS float))"
    table = HudiTables(spark, tmp_path / "table", options=small_tables, also={"vec": numbers})
    # 200 of 3 KB: more than twice what one job may return here.
    keys = [f"k{n:03}" for n in range(200)]
    table.write([row(k) for k in keys])
    parts = following_vectors(spark, table.path, tmp_path / "index", "vec", 768)
    assert sync(parts).rows_changed == 200
    table.write([row(k, ts=2) for k in keys[:150]])
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 150)
    table.write([row(k, ts=3) for k in keys[50:]])
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 150)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_row_larger_than_the_collect_limit_is_followed(
    spark, small_tables, small_memory, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("k0"), row("k1")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", long_text("k0") * 10, ts=2), row("k1", "short", ts=2)])
    assert sync(parts).rows_changed == 2
    assert indexed(parts) == built_from_nothing(parts)


def test_large_rows_stored_twice_are_read_from_the_table(
    spark, small_tables, small_memory, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    keys = [f"k{n}" for n in range(20)]
    table.write([row(k, long_text(k)) for k in keys])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row(k, long_text(k, 2), ts=2) for k in keys], "bulk_insert")
    sync(parts)
    assert parts.store.open().frontier().duplicates == {RowId("part=a", k) for k in keys}
    table.sql("DELETE FROM t WHERE ts = 2")
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("type_", [COW, MOR])
def test_removed_rows_are_passed_on_in_groups(type_, spark, small_tables, monkeypatch, tmp_path):
    monkeypatch.setattr(arrow, "COLLECT_ROWS", 5)
    monkeypatch.setattr(reader, "SLICE_ROWS", 3)
    monkeypatch.setattr(spool, "HELD_IDS", 4)
    monkeypatch.setattr(compare, "FEW", 5)
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    keys = [f"k{n}" for n in range(20)]
    table.write([*(row(k) for k in keys), *(row(k, part="b") for k in keys), row("c", part="c")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.delete_partition("a")
    report = sync(parts)
    assert (report.action, report.rows_deleted) == (Action.FOLLOW, 20)
    table.write([row("new", part="b")], "insert_overwrite")
    report = sync(parts)
    assert (report.action, report.rows_changed, report.rows_deleted) == (Action.FOLLOW, 1, 20)
    assert indexed(parts) == built_from_nothing(parts)
    table.write([row(k, part="d") for k in keys])
    sync(parts)
    table.write([row(k, part="d") for k in keys], "delete")
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_deleted) == (Action.RECONCILE, 20)
    assert indexed(parts) == built_from_nothing(parts)


def test_any_number_of_differing_rows_is_named(
    spark, small_tables, small_memory, monkeypatch, tmp_path
):
    monkeypatch.setattr(compare, "FEW", 5)
    monkeypatch.setattr(arrow, "COLLECT_ROWS", 5)
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    keys = [f"k{n:03}-{'long' * 500}" for n in range(300)]
    table.write([row(k) for k in keys])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    lance.dataset(str(tmp_path / "index" / "sample.g1.lance")).delete("_key >= 'k010'")
    assert [r.key for r in verify(parts).missing] == keys[10:]
    assert repair(parts).repaired == 290
    assert verify(parts).agrees
