"""Any history of a Hudi table: the index equals a build from nothing after every sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.embed.cache import MemoryVectorCache
from lakewake.model.plan import Action
from lakewake.sync import sync
from lakewake.verify import verify
from support.hudi.histories import HISTORIES
from support.hudi.playing import COW, MOR, play
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

CASES = [(name, type_) for name, history in HISTORIES.items() for type_ in history.types]
#: Metadata table, timeline server, cleaner and archiver as users have them; `make matrix` runs all.
ON_DEFAULTS = [
    ("MERGE INTO", MOR),
    ("clustering among updates, deletes and overwrites", COW),
    ("compaction among updates, deletes and overwrites", MOR),
    ("a partition move under a global index", MOR),
    ("delete_partition then insert again", COW),
    ("two writers whose commits overlap", COW),
    ("the last commit rolled back", MOR),
]


@pytest.mark.parametrize(("name", "type_"), CASES)
def test_the_index_equals_a_build_after_every_sync(name, type_, spark, small_tables, tmp_path):
    assert play(HISTORIES[name], type_, spark, tmp_path, **small_tables)


@pytest.mark.parametrize(("name", "type_"), ON_DEFAULTS)
def test_the_index_equals_a_build_after_every_sync_on_hudis_default_settings(
    name, type_, spark, tmp_path
):
    assert play(HISTORIES[name], type_, spark, tmp_path)


def test_a_restore_of_a_large_table_embeds_only_texts_that_the_index_lacks(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(10_000)], "bulk_insert")
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    savepoint = table.savepoint()
    table.write([row("k0", "changed", ts=2), row("k1", "text of k2", ts=2)])
    table.delete("k3")
    table.write([row("k4", ts=2, num=7), row("new", "brand new")])
    sync(parts)
    # The vector cache would hide what the index itself saves.
    parts = replace(parts, vector_cache=MemoryVectorCache())
    table.restore(savepoint)
    parts.embedder.received.clear()
    report = sync(parts)
    assert (report.action, report.rows_changed, report.rows_deleted) == (Action.RECONCILE, 4, 1)
    assert sorted(parts.embedder.received) == ["text of k0", "text of k1", "text of k3"]
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("type_", [COW, MOR])
def test_verify_names_rows_stored_twice_and_still_agrees(type_, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("a"), row("b")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("a", "newer copy", ts=2)], "bulk_insert")
    sync(parts)
    report = verify(parts)
    assert report.agrees
    assert [row_id.key for row_id in report.duplicated] == ["a"]
