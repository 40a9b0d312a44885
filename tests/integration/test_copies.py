"""Rows that the table holds twice, where the second copy went unnoticed at first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import TextRefused
from lakewake.sync import IndexParts, sync
from support.hudi.histories_of_timelines import OCC
from support.hudi.playing import COW, MOR
from support.hudi.tables import HudiTables, row
from support.oracle import HASHING, built_from_nothing, following, indexed

pytestmark = pytest.mark.spark


class Choosy(HashingEmbedder):
    """An embedder that refuses one text."""

    def embed(self, texts):
        vectors = super().embed(texts)
        reasons = {n: "too odd" for n, text in enumerate(texts) if text == "refused"}
        if reasons:
            raise TextRefused("some are refused", reasons, vectors)
        return vectors


def said(parts: IndexParts) -> dict[str, str]:
    """The text of each key in the index."""
    return {chunk["_key"]: chunk["_text"] for chunk, _ in indexed(parts).values()}


@pytest.mark.parametrize("type_", [COW, MOR])
def test_a_row_stays_when_its_copy_without_text_is_deleted(type_, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("k0", " "), row("k1")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "says something", ts=2)], "bulk_insert")
    sync(parts)
    table.sql("DELETE FROM t WHERE trim(txt) = ''")
    sync(parts)
    assert said(parts) == {"k0": "says something", "k1": "text of k1"}
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize(
    ("deleted", "left"),
    [("refused", {"k0": "accepted", "k1": "text of k1"}), ("accepted", {"k1": "text of k1"})],
)
def test_a_copy_of_a_quarantined_row_is_recorded(deleted, left, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("k0", "refused"), row("k1")])
    parts = following(spark, table.path, tmp_path / "index")
    parts = replace(parts, embedder=Choosy(HASHING))
    sync(parts)
    table.write([row("k0", "accepted", ts=2)], "bulk_insert")
    sync(parts)
    table.sql(f"DELETE FROM t WHERE txt = '{deleted}'")
    sync(parts)
    assert said(parts) == left
    quarantine = parts.store.open().frontier().quarantine
    assert [r.key for r in quarantine] == ([] if deleted == "refused" else ["k0"])


def written_by_two(table: HudiTables) -> None:
    """Upsert the same new key by two writers at once."""
    other = replace(table)
    table.begin_write([row("new", "by the first", part="b")])
    other.begin_write([row("new", "by the second", part="b")])
    assert table.finish_write() is None
    assert other.finish_write() is None


@pytest.mark.parametrize("deleted", ["first", "second"])
def test_a_key_added_by_two_writers_at_once_is_recorded(deleted, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options={**small_tables, **OCC})
    table.write([row("k0")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    written_by_two(table)
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    table.sql(f"DELETE FROM t WHERE txt = 'by the {deleted}'")
    sync(parts)
    assert set(said(parts)) == {"k0", "new"}
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("deleted", ["first", "second"])
def test_a_key_added_by_two_writers_is_recorded_if_one_completed_before_the_last_sync(
    deleted, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options={**small_tables, **OCC})
    table.write([row("k0")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    written_by_two(table)
    # Let the writer that began later also complete later.
    timeline = table.path / ".hoodie" / "timeline"
    second = max(timeline.glob("*_*.commit"), key=lambda f: f.name)
    kept = second.rename(tmp_path / "kept")
    sync(parts)
    assert said(parts)["new"] == "by the first"
    requested, completed = second.stem.split("_")
    kept.rename(Path(timeline, f"{requested}_{int(completed) + 9999}.commit"))
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    table.sql(f"DELETE FROM t WHERE txt = 'by the {deleted}'")
    sync(parts)
    assert set(said(parts)) == {"k0", "new"}
    assert indexed(parts) == built_from_nothing(parts)


def test_an_upsert_that_changes_both_copies_reveals_the_duplicate(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("k0", " "), row("k1")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "says something", ts=2)], "bulk_insert")
    sync(parts)
    table.write([row("k0", "says more", ts=3)])
    sync(parts)
    assert {r.key for r in parts.store.open().frontier().duplicates} == {"k0"}
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("type_", [COW, MOR])
def test_a_copy_that_an_upsert_adds_is_recorded(type_, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("k0"), row("k1")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write_blindly([row("k0", "once more", ts=2), row("n1")])
    sync(parts)
    assert {d.key for d in parts.store.open().frontier().duplicates} == {"k0"}
    table.sql("DELETE FROM t WHERE txt = 'once more'")
    sync(parts)
    assert said(parts)["k0"] == "text of k0"
    assert indexed(parts) == built_from_nothing(parts)
