"""Every operation on a Hudi table is followed and compared with a build from nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lakewake.model.plan import Action
from lakewake.model.report import SyncReport
from lakewake.sync import IndexParts, sync
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"


@pytest.fixture(params=[COW, MOR])
def table(request, spark, small_tables, tmp_path) -> HudiTables:
    """Ten rows in two partitions."""
    made = HudiTables(spark, tmp_path / "table", request.param, options=small_tables)
    made.write([row(f"k{n}", part="ab"[n % 2]) for n in range(10)])
    return made


@pytest.fixture
def parts(table, spark, tmp_path) -> IndexParts:
    """A built index of the table."""
    made = following(spark, table.path, tmp_path / "index")
    sync(made)
    made.embedder.received.clear()
    return made


@dataclass(frozen=True)
class Case:
    """What is done to the table, and exactly what following it must do."""

    does: Callable[[HudiTables], None]
    changed: int = 0
    deleted: int = 0
    embedded: int = 0


def _update_then_delete_then_insert(table: HudiTables) -> None:
    table.write([row("k0", "first", ts=2)])
    table.write([row("k0", "second", ts=3), row("k2", "other", ts=3)])
    table.delete("k4")
    table.write([row("new", "brand new")])


def _update_and_delete_then_cluster(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")
    table.cluster()
    table.delete("k4")


CASES = {
    "insert": Case(lambda t: t.write([row("n1"), row("n2", part="c")], "insert"), 2, 0, 2),
    "upsert of one row": Case(lambda t: t.write([row("k0", "changed", ts=2)]), 1, 0, 1),
    "upsert of a payload column": Case(lambda t: t.write([row("k0", ts=2, num=7)]), 1, 0, 0),
    "upsert with equal values": Case(lambda t: t.write([row("k0", ts=2)]), 0, 0, 0),
    "upsert with a text that another row has": Case(
        lambda t: t.write([row("k0", "text of k2", ts=2)]), 1, 0, 0
    ),
    "two new rows with one text": Case(
        lambda t: t.write([row("x", "same"), row("y", "same")]), 2, 0, 1
    ),
    "delete": Case(lambda t: t.delete("k0", "k2"), 0, 2, 0),
    "delete by _hoodie_is_deleted": Case(lambda t: t.soft_delete("k0"), 0, 1, 0),
    "delete of a row that is not there": Case(lambda t: t.delete("nobody"), 0, 0, 0),
    "delete and insert again": Case(
        lambda t: (t.delete("k0"), t.write([row("k0", "again", ts=10**7)])), 1, 0, 1
    ),
    "bulk_insert": Case(
        lambda t: t.write([row("b1"), row("b2", part="z")], "bulk_insert"), 2, 0, 2
    ),
    "insert_overwrite": Case(
        lambda t: t.write([row("k0", "over"), row("o1")], "insert_overwrite"), 2, 4, 2
    ),
    "delete_partition": Case(lambda t: t.delete_partition("a"), 0, 5, 0),
    "clustering": Case(lambda t: t.cluster(), 0, 0, 0),
    "several commits in one sync": Case(_update_then_delete_then_insert, 3, 1, 3),
    "clustering between changes": Case(_update_and_delete_then_cluster, 1, 2, 1),
    "an update that loses by its ordering field": Case(
        lambda t: t.write([row("k0", "late", ts=0)]), 0, 0, 0
    ),
    "text that becomes blank": Case(lambda t: t.write([row("k0", " ", ts=2)]), 1, 0, 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_following_an_operation_equals_a_build_and_does_no_extra_work(case, table, parts):
    case.does(table)
    report = sync(parts)
    assert report.action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)
    assert len(parts.embedder.received) == case.embedded == report.embedded
    assert (report.rows_changed, report.rows_deleted) == (case.changed, case.deleted)
    assert_nothing_left(parts)


def assert_nothing_left(parts: IndexParts) -> None:
    again = sync(parts)
    assert again.action is Action.NOTHING
    assert again.embedded == 0


def test_compaction_alone_changes_nothing_and_a_change_after_it_is_found(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", MOR, options=small_tables)
    table.write([row(f"k{n}") for n in range(5)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "changed", ts=2)])
    table.delete("k1")
    table.compact()
    mixed = sync(parts)
    assert (mixed.rows_changed, mixed.rows_deleted, mixed.embedded) == (1, 1, 1)
    assert indexed(parts) == built_from_nothing(parts)
    table.write([row("k2", "changed too", ts=2)])
    sync(parts)
    parts.embedder.received.clear()
    table.compact()
    alone = sync(parts)
    assert (alone.rows_changed, alone.rows_deleted, len(parts.embedder.received)) == (0, 0, 0)
    table.write([row("k3", "after it", ts=2)])
    assert sync(parts).rows_changed == 1
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("type_", [COW, MOR])
@pytest.mark.parametrize(("keys", "partition"), [("id,sub", "part"), ("id", ""), ("id,sub", "")])
def test_composite_keys_and_unpartitioned_tables_are_followed(
    type_, keys, partition, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, keys, partition, small_tables)
    table.write([row(f"k{n}", sub="xy"[n % 2]) for n in range(6)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "changed", ts=2, sub="x"), row("k0", "another", ts=2, sub="z")])
    table.write([row("k3", ts=2, sub="y")], "delete")
    report = sync(parts)
    assert report.rows_deleted == 1
    assert indexed(parts) == built_from_nothing(parts)


def test_hudis_default_settings_are_followed(spark, tmp_path):
    table = HudiTables(spark, tmp_path / "table", COW)
    table.write([row(f"k{n}") for n in range(5)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "changed", ts=2)])
    table.delete("k1")
    report: SyncReport = sync(parts)
    assert (report.rows_changed, report.rows_deleted, report.embedded) == (1, 1, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_key_inserted_twice_is_indexed_once_in_its_newest_version(table, parts):
    table.write([row("k0", "newer copy", ts=3)], "bulk_insert")
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    reader = parts.store.open()
    assert {i.key for i in reader.frontier().duplicates} == {"k0"}
    table.delete("k0")
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_commit_that_touches_more_files_than_the_driver_lists_is_followed(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    # From 33 files on, executors list them.
    table.write([row(f"k{n}", part=f"p{n}") for n in range(40)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row(f"k{n}", f"changed {n}", part=f"p{n}", ts=2) for n in range(40)])
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 40)
    assert indexed(parts) == built_from_nothing(parts)
