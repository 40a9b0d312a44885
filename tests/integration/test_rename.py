"""A renamed or moved index goes on where it was, in every store, and embeds nothing again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.model.plan import Action
from lakewake.store.qdrant.location import CONNECTIONS
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, indexed

pytestmark = pytest.mark.spark

CONFIG = """\
[[index]]   # of {name}
name = "{name}"
table = "table"
text = "{{txt}}"
payload = ["num"]
store = "{store}"
embedding_store = false
model = {{provider = "hashing", dimension = 32}}
"""
STORES = {"lance": "lance://{0}", "lake": "hudi://{0}/lake", "qdrant": "qdrant+local://{0}"}


@pytest.fixture
def config(spark, small_tables, tmp_path) -> Path:
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(4)])
    file = tmp_path / "lakewake.toml"
    sections = [CONFIG.format(name=n, store=s.format("index")) for n, s in STORES.items()]
    file.write_text("\n".join(sections))
    return file


def change(spark, small_tables, config: Path, turn: int) -> None:
    table = HudiTables(spark, config.parent / "table", options=small_tables)
    table.write([row("k1", f"turn {turn}", ts=turn + 2)])


def actions(lake: lakewake.Lakewake) -> set[tuple[Action, int]]:
    done = lake.sync()
    assert not done.failed
    return {(report.action, report.embedded) for report in done.reports}


def assert_right(lake: lakewake.Lakewake, syncs: int) -> None:
    for index in lake.values():
        assert len(index.history()) == syncs
        assert indexed(index.parts) == built_from_nothing(index.parts)
        assert index.search("turn", k=2, mode="keyword").hits


def test_renamed_and_moved_indexes_go_on_where_they_were(
    config: Path, spark: Any, small_tables: dict[str, str], tmp_path: Path
) -> None:
    with lakewake.open(config, spark=spark) as lake, lakewake.open(config, spark=spark) as old:
        assert actions(lake) == {(Action.BUILD, 4)}
        for name in STORES:
            lake.rename(name, f"new-{name}")
        assert actions(lake) == {(Action.NOTHING, 0)}
        change(spark, small_tables, config, 1)
        # A process that began before the rename goes on with the same indexes.
        assert actions(old) == {(Action.FOLLOW, 1)}
        assert actions(lake) == {(Action.NOTHING, 0)}
        assert_right(lake, syncs=2)
    CONNECTIONS.close_all()
    shutil.move(tmp_path / "index", tmp_path / "moved")
    config.write_text(config.read_text().replace("://index", "://moved"))
    with lakewake.open(config, spark=spark) as lake:
        assert lake.names == tuple(f"new-{name}" for name in STORES)
        assert actions(lake) == {(Action.NOTHING, 0)}
        change(spark, small_tables, config, 2)
        assert actions(lake) == {(Action.FOLLOW, 1)}
        # The local mode of Qdrant keeps its history in the folder of the configuration.
        assert {len(i.history()) for n, i in lake.items() if "qdrant" not in n} == {3}
        for index in lake.values():
            assert indexed(index.parts) == built_from_nothing(index.parts)
            assert index.drop().removed
            assert not index.status().built
    CONNECTIONS.close_all()
