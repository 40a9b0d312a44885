"""An index in the lake is an ordinary Hudi table, under Hudi's rules."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import lakewake
from lakewake.errors import ConfigError
from lakewake.model.keep import Keep
from lakewake.model.options import SyncOptions
from lakewake.model.plan import Action
from lakewake.model.recall import Decision
from lakewake.model.where import Compare
from lakewake.source.memory import MemoryTable
from lakewake.store.hudi import upkeep, writing
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import Found
from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.store import HudiStore
from lakewake.store.hudi.table import IndexTable
from lakewake.store.lance.store import LanceStore
from lakewake.store.recall import now
from lakewake.sync import sync
from lakewake.testing.samples import batch, chunk, frontier, keys, query, recipe, vector_of
from lakewake.verify import verify
from support import ROOT
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path, spark: SparkSession) -> HudiStore:
    return HudiStore(str(tmp_path / "index"), "sample", lambda: spark, cell_chunks=10)


@pytest.fixture
def parts(store: HudiStore) -> SampleParts:
    """The index of a table with thirty rows, not built yet."""
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(30)})
    return sample_parts(table, store)


def clean_often(monkeypatch: pytest.MonkeyPatch, store: HudiStore, keep: int) -> None:
    """Remove what is not kept after every commit, from the timeline too."""
    monkeypatch.setattr(store, "_writer", replace(store._writer, keep=Keep(keep)))
    monkeypatch.setattr(writing, "SPARE", 1)
    often = {"hoodie.clean.trigger.max.commits": "1"}
    monkeypatch.setattr(writing, "TABLE_OPTIONS", {**writing.TABLE_OPTIONS, **often})


def reader_of(store: HudiStore) -> HudiReader:
    reader = store.open()
    assert reader is not None
    return reader


def table_of(store: HudiStore) -> str:
    return reader_of(store).table.path


def probe_now(store: HudiStore) -> None:
    """Keep the result of a probe of the newest state."""
    at = reader_of(store).table
    decision = Decision(None, None, now(), 0, 0.95, 30)
    store._upkeep.keep(1, Found(decision, at.instant, at.folder))
    store._cached = None
    assert reader_of(store).probed is not None


def test_hudis_own_search_finds_what_an_exact_search_finds(
    store: HudiStore, spark: SparkSession
) -> None:
    rows = [chunk(f"k{n}", f"text {n}") for n in range(80)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    gone = tuple(row["_id"] for row in rows[:10])
    store.commit(batch(chunk("k70", "another"), deletes=gone), frontier(1), frontier(2))
    reader = store.open()
    assert reader is not None
    asked = ", ".join(f"CAST({x} AS FLOAT)" for x in vector_of("text 33"))
    by_hudi = spark.sql(
        f"SELECT _key, _hudi_distance FROM hudi_vector_search('{table_of(store)}', '_vector', "
        f"ARRAY({asked}), 10, 'cosine') ORDER BY _hudi_distance"
    ).collect()
    ours = reader.search(query("text 33", 10, exact=True))
    assert [row["_key"] for row in by_hudi] == keys(ours)
    np.testing.assert_allclose(
        [1 - row["_hudi_distance"] for row in by_hudi], ours["_similarity"], atol=1e-5
    )


def test_the_sizes_of_the_cells_are_reported(store: HudiStore) -> None:
    store.create(recipe(), batch(*(chunk(f"k{n}") for n in range(60))), frontier(1), after=0)
    reader = store.open()
    assert reader is not None
    sizes = reader.searching().cells
    assert sizes is not None
    assert sizes.cells == len(reader.cells.numbers) > 1
    assert sizes.smallest <= sizes.median <= sizes.largest
    held = [reader.table.columns(one, ["_id"])["_id"] for one in reader.table.every()]
    assert sizes.largest == max(map(len, held))
    assert sizes.skew == pytest.approx(sizes.largest * sizes.cells / 60)


def test_a_filter_spares_the_vectors_of_slices_without_a_match(
    store: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [chunk(f"k{n}", f"text {n}") for n in range(60)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    reader = reader_of(store)
    # Nothing that an earlier read kept in memory.
    fresh = HudiReader(reader.table.at(reader.table.instant), 1)
    read: list[int] = []
    whole = IndexTable.matrix

    def watched(table: IndexTable, one: Slice, dimension: int) -> np.ndarray:
        read.append(one.cell)
        return whole(table, one, dimension)

    monkeypatch.setattr(IndexTable, "matrix", watched)
    found = fresh.search(query("text 33", 10, exact=True, where=Compare("_key", "=", "k7")))
    assert keys(found) == ["k7"]
    assert set(read) == set(reader.whereabouts([rows[7]["_id"]]).values())
    assert keys(fresh.search(query("text 33", exact=True, where=Compare("_key", "=", "no")))) == []
    assert len(set(read)) == 1 < len(reader.cells.numbers)


def test_spark_reads_the_chunks_without_us(store: HudiStore, spark: SparkSession) -> None:
    rows = [chunk(f"k{n}", f"text {n}") for n in range(5)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    page = (ROOT / "docs" / "lake-native.md").read_text()
    section = page[page.index("## Read it without us") :]
    snippet = section[section.index("```python\n") + 10 : section.index("\n```\n")]
    snippet = re.sub(r"lake/wines_index/g1-\w+", table_of(store), snippet)
    asked = ", ".join(f"CAST({x} AS FLOAT)" for x in vector_of("text 3"))
    names: dict[str, Any] = {"spark": spark}
    exec(compile(snippet.replace("…", asked), "lake-native.md", "exec"), names)
    assert sorted(row["_key"] for row in names["chunks"].collect()) == [f"k{n}" for n in range(5)]
    found = names["nearest"].orderBy("_hudi_distance").collect()
    assert (len(found), found[0]["_key"]) == (5, "k3")


def test_an_index_moves_from_lance_to_the_lake_without_embedding(
    parts: SampleParts, tmp_path: Path
) -> None:
    lance = sample_parts(
        parts.table, LanceStore(str(tmp_path), "sample"), vector_cache=parts.vector_cache
    )
    sync(lance)
    assert sync(parts).embedded == 0
    assert indexed(parts) == built_from_nothing(parts)


def test_a_restored_index_goes_on_from_the_frontier_it_had(
    parts: SampleParts, store: HudiStore, spark: SparkSession
) -> None:
    sync(parts)
    before = indexed(parts)
    path = table_of(store)
    parts.table.upsert({rid("k1"): values("changed", 1)})
    sync(parts)
    instant = store.open().table.instant  # type: ignore[union-attr]
    spark.sql(f"CALL create_savepoint(path => '{path}', commit_time => '{instant}')").collect()
    kept = indexed(parts)
    parts.table.upsert({rid("k2"): values("changed later", 2)})
    parts.table.delete([rid("k3")])
    sync(parts)
    assert indexed(parts) not in (before, kept)
    probe_now(store)
    spark.sql(
        f"CALL rollback_to_savepoint(path => '{path}', instant_time => '{instant}')"
    ).collect()
    assert indexed(parts) == kept
    # Its cells are not those that were probed.
    assert reader_of(store).probed is None
    report = sync(parts)
    assert report.action is Action.FOLLOW
    assert report.embedded == 0
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_logs_are_compacted_and_files_of_old_states_removed_while_an_index_is_followed(
    parts: SampleParts, store: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOGS", 3)
    clean_often(monkeypatch, store, keep=2)
    sync(parts)
    first = {path.name for path in Path(table_of(store)).rglob("*.parquet")}
    for n in range(9):
        parts.table.upsert({rid(f"k{n}"): values(f"changed {n}", n)})
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
    left = {path.name for path in Path(table_of(store)).rglob("*.parquet")}
    assert left - first, "nothing was compacted"
    assert first - left, "no old file was removed"
    assert verify(parts).agrees


def test_a_pinned_state_is_read_however_many_commits_follow(
    parts: SampleParts, store: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOGS", 2)
    clean_often(monkeypatch, store, keep=1)
    sync(parts)
    fresh = HudiStore(store._location.path(), "sample", store._writer.session)
    reader = fresh.open()
    assert reader is not None
    with reader.pinned():
        for n in range(5):
            parts.table.upsert({rid(f"k{n}"): values(f"changed {n}", n)})
            sync(parts)
        texts = {t for b in reader.scan(["_text"]) for t in b["_text"].to_pylist()}
    assert texts == {f"text number {n}" for n in range(30)}


def test_a_commit_touches_only_the_cells_of_its_chunks(store: HudiStore) -> None:
    rows = [chunk(f"k{n}", f"text {n}") for n in range(80)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    before = store.open()
    assert before is not None
    home = before.whereabouts([rows[5]["_id"]])[rows[5]["_id"]]
    store.commit(batch(chunk("k5", "text 5", points=3)), frontier(1), frontier(2))
    after = store.open()
    assert after is not None
    changed = {c for c, some in after.table.slices.items() if some != before.table.slices.get(c)}
    assert changed == {home}


def test_an_index_is_opened_by_its_address_alone(
    parts: SampleParts, store: HudiStore, tmp_path: Path
) -> None:
    sync(parts)
    moved = tmp_path / "elsewhere"
    (tmp_path / "index").rename(moved)
    assert lakewake.find_indexes(str(tmp_path)) == (f"hudi://{moved}",)
    with lakewake.open_index(f"hudi://{moved}") as index:
        found = index.describe()
        assert (index.name, found.rows, found.generation) == ("sample", 30, 1)
        assert found.recipe == sample_recipe().as_dict()
        assert index.search("text number 7", k=1).hits[0].key == "k7"
        assert index.search("number 7", k=1, mode="keyword").hits[0].key == "k7"
        with pytest.raises(ConfigError, match="opened by its address"):
            index.sync()
    # An index of another name in the same folder would replace it.
    other = sample_parts(parts.table, HudiStore(str(moved), "other", store._writer.session))
    for act in (
        partial(sync, other, SyncOptions(rebuild=True)),
        other.store.open,
        other.store.drop,
    ):
        with pytest.raises(ConfigError, match="holds the index 'sample', not 'other'") as error:
            act()
        assert 'stored_as = "sample"' in error.value.hint


def texts_of(reader: HudiReader | None) -> set[str]:
    assert reader is not None
    return {t for b in reader.scan(["_text"]) for t in b["_text"].to_pylist()}


def texts_as_of(store: HudiStore, instant: str) -> set[str]:
    return texts_of(store.as_of(instant))


@pytest.mark.matrix
def test_every_kept_state_is_read_as_of_its_instant_and_no_other(
    parts: SampleParts, store: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOGS", 2)
    clean_often(monkeypatch, store, keep=5)
    sync(parts)
    held = {}
    for n in range(10):
        parts.table.upsert({rid(f"k{n}"): values(f"changed {n}", n)})
        parts.table.delete([rid(f"k{29 - n}")])
        instant = sync(parts).to_instant
        held[instant] = texts_of(store.open())
    kept = []
    for instant, texts in held.items():
        try:
            assert texts_as_of(store, instant) == texts
            kept.append(instant)
        except ConfigError:
            assert not kept, "a state was lost between two that are kept"
    # Compactions and moves between cells are commits of the index table too.
    assert 2 <= len(kept) < 10
    with pytest.raises(ConfigError, match=f"from {kept[0]} to {kept[-1]}"):
        store.as_of("20200101000000000")
    assert texts_as_of(store, "29991231000000000") == held[kept[-1]]
    assert texts_as_of(store, str(int(kept[1]) - 1)) == held[kept[0]]


@pytest.mark.matrix
def test_a_compaction_that_was_only_scheduled_changes_nothing(
    parts: SampleParts, store: HudiStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(parts)
    parts.table.upsert({rid("k1"): values("changed", 1)})
    sync(parts)
    path = Path(table_of(store))
    options = "hoodie.compact.inline.max.delta.commits=1,hoodie.metadata.enable=false"
    spark.sql(
        f"CALL run_compaction(op => 'schedule', path => '{path}', options => '{options}')"
    ).collect()
    assert list(path.glob(".hoodie/timeline/*.compaction.requested"))
    monkeypatch.setattr(upkeep, "LOGS", 2)
    for n in range(2, 6):
        parts.table.upsert({rid(f"k{n}"): values(f"changed {n}", n)})
        parts.table.delete([rid(f"k{29 - n}")])
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
        read = spark.read.format("hudi").load(str(path)).where("lakewake_cell >= 0")
        assert {row["_text"] for row in read.collect()} == texts_of(store.open())
    assert verify(parts).agrees


@pytest.mark.matrix
def test_a_duration_keeps_the_states_of_that_time(
    parts: SampleParts, store: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_often(monkeypatch, store, keep=1)
    monkeypatch.setattr(store, "_writer", replace(store._writer, keep=Keep(seconds=3600)))
    first = sync(parts).to_instant
    for n in range(5):
        parts.table.upsert({rid(f"k{n}"): values(f"changed {n}", n)})
        sync(parts)
    assert texts_as_of(store, first) == {f"text number {n}" for n in range(30)}
