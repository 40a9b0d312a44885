"""An older copy of a table put back in its place."""

from __future__ import annotations

import pytest

from lakewake.model.plan import Action
from lakewake.sync import sync
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_archived_commits_that_a_copy_brings_back_do_not_bring_their_rows_back(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("k0", "version 0"), row("k1")])
    table.delete("k1")
    for n in range(1, 5):
        table.write([row("k0", f"version {n}", ts=n + 1)])
    table.copy_to(tmp_path / "copy")
    table.archive(keep=2)
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.put_back(tmp_path / "copy")
    report = sync(parts)
    assert report.action is not Action.NOTHING
    assert (report.rows_changed, report.rows_deleted, report.embedded) == (0, 0, 0)
    assert indexed(parts) == built_from_nothing(parts)
