"""Syncers on real tables race and are killed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import lakewake
from lakewake.model.plan import Action
from lakewake.sync import sync
from support.hudi import SAMPLE_CONFIG
from support.hudi.tables import HudiTables, row
from support.killing import die
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, small_tables, tmp_path) -> HudiTables:
    """Forty rows in two partitions."""
    made = HudiTables(spark, tmp_path / "table", options=small_tables)
    made.write([row(f"k{n}", part="ab"[n % 2]) for n in range(40)])
    return made


def test_two_syncers_at_once_leave_every_row_once(table, spark, tmp_path):
    def syncer():
        return following(spark, table.path, tmp_path / "index")

    both = [syncer(), syncer()]
    for change in range(3):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(sync, both))
        assert indexed(both[0]) == built_from_nothing(both[0])
        assert [sync(s).action for s in both] == [Action.NOTHING, Action.NOTHING]
        table.write([row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in range(5)])
        table.delete(f"k{change + 10}", part="ab"[change % 2])


@pytest.mark.parametrize(("stage", "point"), [("embed", "end"), ("write", "end")])
def test_a_real_sync_killed_around_its_commit_is_finished_by_the_next(
    stage, point, table, spark, tmp_path
):
    config = tmp_path / "lakewake.toml"
    config.write_text(SAMPLE_CONFIG)
    with lakewake.open(config, spark=spark) as lake:
        lake["sample"].sync()
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")
    die("hudi", str(config), stage, point)
    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        report = index.sync()
        landed = point == "end" and stage == "write"
        assert report.action is (Action.NOTHING if landed else Action.FOLLOW)
        assert report.embedded == 0
        assert index.verify().agrees
        assert index.status().in_step
        assert index.search("changed", k=1).hits[0].key == "k0"
