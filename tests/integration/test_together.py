"""Indexes of one real table read its changes once, and each is as if it were alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import EmbedError
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking, TextField
from lakewake.model.report import SyncReport
from lakewake.source import arrow, follow
from lakewake.source.hudi import HudiTable
from lakewake.store.lance.store import LanceStore
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts, sync
from lakewake.sync.together import Round
from support.hudi.playing import COW, MOR
from support.hudi.tables import HudiTables, row
from support.oracle import HASHING, built_from_nothing, following_vectors, indexed
from support.oracle import following as follower

pytestmark = pytest.mark.spark

ALSO = {"vec": "array(num, length(txt), ts)", "second": "array(ts, num)"}


class Reads:
    """Counts the reads of changes that reach Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = follow._read

        def counted(*given):
            self.count += 1
            return read(*given)

        monkeypatch.setattr(follow, "_read", counted)

    def since(self, before: int) -> int:
        return self.count - before


@pytest.fixture
def reads(monkeypatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture(params=[COW, MOR])
def table(request, spark, small_tables, tmp_path) -> HudiTables:
    made = HudiTables(spark, tmp_path / "table", request.param, options=small_tables, also=ALSO)
    made.write([row(f"k{n}", num=n, part="ab"[n % 2]) for n in range(8)])
    return made


def named(parts: IndexParts, name: str, **changes) -> Any:
    return replace(parts, name=name, **changes)


def indexes(spark, table: HudiTables, folder: Path) -> dict[str, Any]:
    """Indexes of different texts, columns, vectors and stores."""
    long = (TextField("text", "{txt}"), TextField("key", "{id}: {txt}"))
    made = {
        "texts": follower(spark, table.path, folder),
        "fields": follower(spark, table.path, folder, payload=("txt",), fields=long),
        "chunks": follower(
            spark, table.path, folder, chunking=Chunking(tokens=8), payload=("num", "id", "part")
        ),
        "vectors": following_vectors(spark, table.path, folder, "vec", 3, ("id", "num")),
        "others": following_vectors(spark, table.path, folder, "second", 2, ("num",)),
    }
    stores = {"chunks": MemoryStore()}
    return {
        name: named(parts, name, store=stores.get(name) or LanceStore(str(folder), name))
        for name, parts in made.items()
    }


def synced(parts: dict[str, Any], order: Sequence[str] = ()) -> dict[str, SyncReport]:
    """The reports of one sync of each, in a round."""
    around = Round({n: (str(p.table.path), lambda p=p: p) for n, p in parts.items()})
    reports = {}
    try:
        for name in order or parts:
            with around.taking_part(parts[name]) as mine:
                reports[name] = sync(mine)
    finally:
        around.close()
    return reports


def assert_right(parts: dict[str, Any], spark) -> None:
    for one in parts.values():
        assert indexed(one) == built_from_nothing(one)
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().isEmpty()


@pytest.fixture(params=["few rows", pytest.param("many rows", marks=pytest.mark.matrix)])
def size(request, monkeypatch) -> str:
    """Few rows are collected; many stay in Spark."""
    if request.param == "many rows":
        monkeypatch.setattr(arrow, "COLLECT_ROWS", 1)
    return request.param


def change(table: HudiTables, turn: int) -> None:
    """Rows that change, come, go, keep their text, and lose it."""
    ts = turn + 2
    rows = [("k1", "red"), ("k2", "white"), ("k3", None), (f"new{turn}", "new"), ("k4", " ")]
    table.write([row(k, t, num=turn, part="ab"[k == "k1"], ts=ts) for k, t in rows])
    table.delete("k5" if turn else "k7", part="b")


def test_indexes_of_one_table_read_its_changes_once(table, spark, tmp_path, reads, size) -> None:
    parts = indexes(spark, table, tmp_path / "index")
    assert {r.action for r in synced(parts).values()} == {Action.BUILD}
    for turn, order in enumerate((list(parts), list(parts)[::-1])):
        change(table, turn)
        before = reads.count
        reports = synced(parts, order)
        assert {r.action for r in reports.values()} == {Action.FOLLOW}
        assert reads.since(before) == 1
        first, *rest = reports.values()
        assert first.reads.shared_bytes == 0 < first.reads.bytes
        for report in rest:
            assert report.reads.groups == first.reads.groups
            assert report.reads.shared_bytes == report.reads.bytes == first.reads.bytes
        assert_right(parts, spark)
    # An index alone reads nothing of the others.
    table.write([row("k0", "alone", ts=9)])
    one = {"vectors": parts["vectors"]}
    assert synced(one)["vectors"].reads.shared_bytes == 0
    assert_right(one, spark)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_large_rows_are_shared_through_spark(table, spark, tmp_path, reads, monkeypatch) -> None:
    # A thousandth of the real bounds: rows of 4 KB then count like rows of 4 MB.
    for name in ("COLLECT_BYTES", "PART_BYTES"):
        monkeypatch.setattr(arrow, name, getattr(arrow, name) // 4096)
    parts = {n: p for n, p in indexes(spark, table, tmp_path / "index").items() if n != "others"}
    synced(parts)
    lines = " ".join(f"line {n} says it again" for n in range(2000))
    table.write([row(f"k{n}", f"{n} {lines}", ts=2, num=n, part="ab"[n % 2]) for n in range(6)])
    before = reads.count
    reports = synced(parts)
    assert {r.action for r in reports.values()} == {Action.FOLLOW}
    assert reads.since(before) == 1
    assert {r.rows_changed for r in reports.values()} == {6}
    assert_right(parts, spark)


def test_an_index_that_is_behind_reads_what_it_lacks(table, spark, tmp_path, reads) -> None:
    parts = indexes(spark, table, tmp_path / "index")
    synced(parts)
    table.write([row("k1", "first", part="b", ts=2)])
    ahead = {name: parts[name] for name in ("texts", "vectors")}
    synced(ahead)
    table.write([row("k2", "second", ts=3)])
    before = reads.count
    reports = synced(parts)
    # Those that are ahead together, and those that are behind together.
    assert reads.since(before) == 2
    assert {n: r.rows_changed for n, r in reports.items()} == {
        n: 1 if n in ahead else 2 for n in parts
    }
    assert_right(parts, spark)


def test_a_commit_within_a_round_is_left_for_the_next_by_those_that_share(
    table, spark, tmp_path, reads
) -> None:
    parts = indexes(spark, table, tmp_path / "index")
    synced(parts)
    table.write([row("k1", "first", part="b", ts=2)])
    first, *rest = parts.values()
    around = Round({n: (str(p.table.path), lambda p=p: p) for n, p in parts.items()})
    before = reads.count
    with around.taking_part(first) as mine:
        sync(mine)
    table.write([row("k2", "second", ts=3)])
    for one in rest:
        with around.taking_part(one) as mine:
            assert sync(mine).rows_changed == 1
    around.close()
    assert reads.since(before) == 1
    before = reads.count
    assert {r.rows_changed for r in synced(parts).values()} == {1}
    assert reads.since(before) == 1
    assert_right(parts, spark)


class Broken(HashingEmbedder):
    """An embedder that is out of order."""

    def embed(self, texts):
        raise EmbedError("out of order", hint="repair it")


def test_an_index_that_fails_does_not_hold_the_others_back(
    table, spark, tmp_path, reads, monkeypatch
) -> None:
    parts = indexes(spark, table, tmp_path / "index")
    synced(parts)
    table.write([row("k1", "first", part="b", ts=2)])
    whole = dict(parts)
    parts["texts"] = replace(parts["texts"], embedder=Broken(HASHING))
    around = Round({n: (str(p.table.path), lambda p=p: p) for n, p in parts.items()})
    before = reads.count
    with pytest.raises(EmbedError), around.taking_part(parts["texts"]) as mine:
        sync(mine)
    for name in [n for n in parts if n != "texts"]:
        with around.taking_part(parts[name]) as mine:
            assert sync(mine).rows_changed == 1
    around.close()
    assert reads.since(before) == 1
    # The one that failed reads again what it lacks; the others have nothing to do.
    reports = synced(whole)
    assert {n for n, r in reports.items() if r.action is Action.FOLLOW} == {"texts"}
    assert_right(whole, spark)


def test_an_index_whose_columns_cannot_be_read_does_not_hold_the_others_back(
    table, spark, tmp_path, reads, monkeypatch
) -> None:
    parts = {n: p for n, p in indexes(spark, table, tmp_path / "index").items() if n != "others"}
    synced(parts)
    table.write([row("k1", "first", part="b", ts=2)])
    together = HudiTable.read_together

    def unreadable(self, recipes, *given):
        recipes = [replace(r, payload=("nowhere",)) if r.vector else r for r in recipes]
        return together(self, recipes, *given)

    monkeypatch.setattr(HudiTable, "read_together", unreadable)
    assert {r.rows_changed for r in synced(parts).values()} == {1}
    assert all(r.reads.shared_bytes == 0 for r in synced(parts).values())
    assert_right(parts, spark)


CONFIG = """\
[[index]]
name = "{name}"
table = "table"
store = "lance://index"
text = "{text}"
payload = ["num"]
model = {{provider = "hashing", dimension = 32}}
"""


def configured(folder: Path) -> Path:
    file = folder / "lakewake.toml"
    texts = {"one": "{txt}", "two": "{id}: {txt}", "three": "{part} {txt}"}
    file.write_text("\n".join(CONFIG.format(name=n, text=t) for n, t in texts.items()))
    return file


@pytest.fixture
def lake(spark, small_tables, tmp_path) -> Iterator[lakewake.Lakewake]:
    made = HudiTables(spark, tmp_path / "table", COW, options=small_tables)
    made.write([row(f"k{n}") for n in range(4)])
    with lakewake.open(configured(tmp_path), spark=spark) as opened:
        yield opened


def test_all_indexes_of_a_configuration_are_synced_with_one_read(
    lake, spark, small_tables, tmp_path, reads, monkeypatch
) -> None:
    table = HudiTables(spark, tmp_path / "table", COW, options=small_tables)
    assert [r.action for r in lake.sync().reports] == [Action.BUILD] * 3
    table.write([row("k1", "first", ts=2)])
    broken = lake["two"].parts
    lake["two"].__dict__["parts"] = replace(broken, embedder=Broken(ModelSettings("hashing", "h")))
    done = lake.sync()
    assert reads.count == 1
    assert [r.index for r in done.reports] == ["one", "three"]
    assert {n: e.fact for n, e in done.failed.items()} == {"two": "out of order"}
    assert done.as_dict()["fact"] == "out of order"
    lake["two"].__dict__["parts"] = broken
    assert [r.action for r in lake.sync("two", "one").reports] == [Action.FOLLOW, Action.NOTHING]
    with pytest.raises(lakewake.ConfigError, match="no index 'four'"):
        lake.sync("four")
    for index in lake.values():
        assert indexed(index.parts) == built_from_nothing(index.parts)
    record = lake["three"].history(1)[0]
    assert record.reads.shared_bytes == record.reads.bytes > 0
    assert json.dumps(record.as_dict())
