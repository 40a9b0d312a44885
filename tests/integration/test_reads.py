"""A sync reports how much of the table it read, from what it had to list for that anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.model.plan import Action
from lakewake.model.reads import NO_READS, Reads
from lakewake.sync import IndexParts, SyncOptions, sync
from support.hudi.tables import HudiTables, row
from support.oracle import following

pytestmark = pytest.mark.spark


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request, spark, small_tables, tmp_path) -> HudiTables:
    """Ten rows in two partitions, one of them with an odd name."""
    made = HudiTables(spark, tmp_path / "table", request.param, options=small_tables)
    made.write([row(f"k{n}", part=("a", "b 50%")[n % 2]) for n in range(10)])
    return made


@pytest.fixture
def parts(table, spark, tmp_path) -> IndexParts:
    return following(spark, table.path, tmp_path / "index")


def sizes(folder: Path) -> dict[str, int]:
    """The bytes of the data files, by path."""
    files = [p for p in folder.rglob("*") if p.is_file() and ".hoodie" not in str(p)]
    data = [p for p in files if p.name.endswith(".parquet") or ".log." in p.name]
    return {str(p): p.stat().st_size for p in data if not p.name.endswith(".crc")}


def test_a_sync_reports_the_file_groups_and_bytes_that_it_read(
    table: HudiTables, parts: IndexParts
) -> None:
    folder = Path(table.path)
    built = sizes(folder)
    whole = Reads.whole(2, sum(built.values()))
    assert sync(parts).reads == whole
    assert sync(parts).reads == NO_READS

    table.write([row("k1", "changed", part="b 50%", ts=2)])
    after = sizes(folder)
    touched = {p: size for p, size in after.items() if Path(p).parent.name.endswith("50%")}
    assert len(touched) == 2
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 1)
    assert report.reads.groups == 1
    new = sum(size for p, size in touched.items() if p not in built)
    merged = "MERGE" in table.type
    assert report.reads.bytes in ({sum(touched.values())} | ({new} if not merged else set()))
    assert (report.reads.groups_in_table, report.reads.bytes_in_table) == (None, None)

    report = sync(parts, SyncOptions(reconcile=True))
    newest = sum(after.values()) - (0 if merged else min(built[p] for p in touched if p in built))
    assert report.reads == Reads.whole(2, newest)
