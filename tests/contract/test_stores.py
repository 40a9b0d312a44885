"""The contract for each store, and what Lance promises beyond it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import lancedb
import numpy as np
import pyarrow as pa
import pytest

from lakewake.errors import ConfigError, OutcomeUnknown, StaleFrontier, StoreError
from lakewake.model.chunks import CHECKPOINT_ID, PAGE_ID, Batch, index_schema
from lakewake.model.query import Query
from lakewake.model.recall import RECALL
from lakewake.model.where import Compare
from lakewake.store import Removed, Store
from lakewake.store.lance import commit as lance_commit
from lakewake.store.lance import upkeep as lance_upkeep
from lakewake.store.lance import words as lance_words
from lakewake.store.lance.reader import PIN, LanceReader
from lakewake.store.lance.recall import coverage_of
from lakewake.store.lance.store import LanceStore
from lakewake.store.lance.upkeep import KEEP_VERSIONS, MAX_SMALL_FRAGMENTS, _misshapen
from lakewake.store.memory import MemoryStore
from lakewake.store.registry import open_store
from lakewake.testing.samples import (
    SCHEMA,
    as_stored,
    batch,
    chunk,
    contents,
    frontier,
    keys,
    named,
    query,
    recipe,
    vector_of,
)
from lakewake.testing.stores import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    def test_a_failure_before_the_commit_lands_nothing(self, built: MemoryStore) -> None:
        built.fail_before_commit = _fail
        with pytest.raises(OutcomeUnknown):
            built.commit(batch(chunk("d")), frontier(1), frontier(2))
        assert len(contents(built.open())) == 3

    def test_a_failure_after_the_commit_finds_it_landed(self, built: MemoryStore) -> None:
        built.fail_after_commit = _fail
        with pytest.raises(OutcomeUnknown):
            built.commit(batch(chunk("d")), frontier(1), frontier(2))
        assert len(contents(built.open())) == 4


def _fail() -> None:
    raise OutcomeUnknown("cut off")


class TestLance(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LanceStore(str(tmp_path / "my index %20 #1 ü"), "wines")


class Tended(LanceStore):
    """A store with upkeep after each write and an index for every lookup."""

    def create(self, *args: object, **named: object) -> None:
        super().create(*args, **named)
        self.maintain()

    def commit(self, *args: object, **named: object) -> None:
        super().commit(*args, **named)
        self.maintain()


class TestLanceWithLookups(StoreContract):
    @pytest.fixture
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Join fragments after a few commits, with words in several files."""
        monkeypatch.setattr(lance_upkeep, "MAX_SMALL_FRAGMENTS", 3)
        monkeypatch.setattr(lance_words, "SLICE", 4)

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
        # Every number of deletes counts as many here, and is sorted on disk.
        monkeypatch.setattr(lance_commit, "HELD_DELETES", -1)
        return Tended(str(tmp_path), "wines", lookup_min_chunks=1, words_min_chunks=1)

    def test_id_key_and_hash_have_lookup_indexes(self, built: LanceStore, tmp_path: Path) -> None:
        described = lance.dataset(str(tmp_path / "wines.g1.lance")).describe_indices()
        assert {tuple(i.field_names) for i in described} == {
            ("_id",),
            ("_key",),
            ("_hash",),
        }


class TestLanceWithApproximateIndex(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Tended(str(tmp_path), "wines", ann_min_chunks=1)

    def test_the_index_has_one_partition(self, built: LanceStore) -> None:
        assert coverage_of(built._versions.dataset(1)).partitions == 1

    @pytest.mark.skip(reason="its chunks have no vectors, so Lance cannot train on them")
    def test_very_many_deletes_land_in_one_commit(self, store: Store) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "an index %20 #1 ü"


@pytest.fixture
def store(folder: Path) -> LanceStore:
    return LanceStore(str(folder), "wines")


@pytest.fixture
def built(store: LanceStore) -> LanceStore:
    rows = [chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    return store


def rebuilt(store: LanceStore) -> LanceStore:
    store.create(recipe("dot"), batch(chunk("z")), frontier(2), after=1)
    return store


def versions(folder: Path, generation: int = 1) -> int:
    return len(lance.dataset(str(folder / f"wines.g{generation}.lance")).versions())


def test_a_small_file_names_the_active_generation(built: LanceStore, folder: Path) -> None:
    expected = {"format": 1, "generation": 1, "dataset": "wines.g1.lance"}
    assert json.loads((folder / "wines.json").read_text()) == expected
    rebuilt(built)
    assert json.loads((folder / "wines.json").read_text())["dataset"] == "wines.g2.lance"


def test_each_write_is_one_version(built: LanceStore, folder: Path) -> None:
    assert versions(folder) == 1
    built.commit(batch(chunk("d"), deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
    assert versions(folder) == 2


def test_a_replayed_batch_writes_no_version(built: LanceStore, folder: Path) -> None:
    for _ in range(2):
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
    assert versions(folder) == 2


def test_pages_that_no_frontier_names_are_removed_by_the_commit(
    built: LanceStore, folder: Path
) -> None:
    def pages() -> set[str]:
        rows = lance.dataset(str(folder / "wines.g1.lance")).to_table(
            columns=["_id"], filter="_checkpoint IS NOT NULL"
        )
        return {i.removeprefix(PAGE_ID) for i in rows["_id"].to_pylist()} - {CHECKPOINT_ID}

    many = replace(frontier(2), duplicates=named(5_000))
    built.commit(batch(), frontier(1), many)
    assert pages() == many.pages
    more = replace(frontier(3), duplicates=named(5_001))
    built.commit(batch(), many, more)
    assert pages() == more.pages
    assert len(many.pages & more.pages) == len(more.pages) - 1
    built.commit(batch(), more, frontier(4))
    assert pages() == set()


def test_a_lost_page_is_reported_as_damage(built: LanceStore, folder: Path) -> None:
    many = replace(frontier(2), duplicates=named(5_000))
    built.commit(batch(), frontier(1), many)
    lance.dataset(str(folder / "wines.g1.lance")).delete(f"_id LIKE '{PAGE_ID}%'")
    reader = LanceStore(str(folder), "wines").open()
    assert reader is not None
    assert keys(reader.search(query("red", 1))) == ["a"]
    with pytest.raises(StoreError, match="pages of its checkpoint"):
        set(reader.frontier().duplicates)


def test_recipe_and_fingerprint_are_in_the_schema(built: LanceStore, folder: Path) -> None:
    metadata = lance.dataset(str(folder / "wines.g1.lance")).schema.metadata
    assert json.loads(metadata[b"lakewake.recipe"]) == recipe().as_dict()
    assert metadata[b"lakewake.fingerprint"].decode() == recipe().fingerprint


def test_the_folder_opens_in_lancedb_as_a_table(built: LanceStore, folder: Path) -> None:
    table = lancedb.connect(str(folder)).open_table("wines.g1")
    assert table.count_rows("_checkpoint IS NULL") == 3
    found = table.search(vector_of("white"), vector_column_name="_vector").limit(1).to_list()
    assert found[0]["_text"] == "white"


def test_two_indexes_share_a_folder(built: LanceStore, folder: Path) -> None:
    other = LanceStore(str(folder), "wines.g1")
    assert other.open() is None
    other.create(recipe(), batch(chunk("x")), frontier(1), after=0)
    assert other.maintain() == {}
    assert len(contents(built.open())) == 3


def test_a_generation_whose_builder_died_before_naming_it_is_adopted(
    built: LanceStore, folder: Path
) -> None:
    (folder / "wines.json").unlink()
    fresh = LanceStore(str(folder), "wines")
    assert len(contents(fresh.open())) == 3
    assert not (folder / "wines.json").exists()
    with pytest.raises(StaleFrontier):
        fresh.create(recipe(), batch(), frontier(1), after=0)
    assert (folder / "wines.json").exists()


def test_upkeep_names_an_adopted_generation(built: LanceStore, folder: Path) -> None:
    (folder / "wines.json").unlink()
    assert built.maintain() == {"pointer_written": 1}
    assert (folder / "wines.json").exists()


def test_a_rebuild_whose_builder_died_before_naming_it_is_finished_by_the_next(
    built: LanceStore, folder: Path
) -> None:
    before = (folder / "wines.json").read_bytes()
    rebuilt(built)
    (folder / "wines.json").write_bytes(before)
    fresh = LanceStore(str(folder), "wines")
    assert fresh.generation() == 1
    with pytest.raises(StaleFrontier):
        rebuilt(fresh)
    reader = fresh.open()
    assert reader is not None
    assert (reader.generation, reader.recipe()) == (2, recipe("dot"))


def test_a_killed_build_without_a_manifest_does_not_block(folder: Path) -> None:
    left = folder / "wines.g1.lance"
    (left / "data").mkdir(parents=True)
    (left / "_versions").mkdir()
    (left / "data" / "half.lance").write_bytes(b"half")
    store = LanceStore(str(folder), "wines")
    assert store.open() is None
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert contents(store.open()) == as_stored(chunk("a"))


def test_a_builder_that_was_overtaken_cannot_undo_later_commits(
    store: LanceStore, folder: Path
) -> None:
    def slow() -> pa.RecordBatchReader:
        other = LanceStore(str(folder), "wines")
        other.create(recipe(), batch(chunk("theirs")), frontier(1), after=0)
        other.commit(batch(chunk("more")), frontier(1), frontier(2))
        return pa.Table.from_pylist([chunk("ours")], schema=SCHEMA).to_reader()

    with pytest.raises(StaleFrontier):
        store.create(recipe(), Batch(SCHEMA, slow), frontier(1, "9"), after=0)
    assert contents(store.open()) == as_stored(chunk("theirs"), chunk("more"))


def test_a_batch_for_one_generation_does_not_land_in_the_next(
    built: LanceStore, folder: Path
) -> None:
    built.open()
    other = LanceStore(str(folder), "wines")
    other.create(recipe("dot"), batch(chunk("z")), frontier(1), after=1)
    with pytest.raises(StaleFrontier, match="generation 2"):
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
    assert contents(built.open()) == as_stored(chunk("z"))


def test_a_commit_lands_despite_a_concurrent_compaction(built: LanceStore, folder: Path) -> None:
    location = str(folder / "wines.g1.lance")
    for n in range(1, 4):
        built.commit(batch(chunk(f"k{n}")), frontier(n), frontier(n + 1))
    calls = []

    def rows() -> pa.RecordBatchReader:
        # Lance has read its version when it asks for the rows, so the compaction comes second.
        if not calls:
            assert lance.dataset(location).optimize.compact_files().fragments_removed > 1
        calls.append(1)
        return pa.Table.from_pylist([chunk("d")], schema=SCHEMA).to_reader()

    built.commit(Batch(SCHEMA, rows), frontier(4), frontier(5))
    # Each of the two attempts also reads the rows for their ids.
    assert len(calls) == 4
    assert {r["_key"] for r in contents(built.open()).values()} == {*"abcd", "k1", "k2", "k3"}


def test_a_commit_overtaken_by_its_own_replay_counts_as_landed(
    built: LanceStore, folder: Path
) -> None:
    def rows() -> pa.RecordBatchReader:
        other = LanceStore(str(folder), "wines")
        other.commit(batch(chunk("d")), frontier(1), frontier(2))
        return pa.Table.from_pylist([chunk("d")], schema=SCHEMA).to_reader()

    built.commit(Batch(SCHEMA, rows), frontier(1), frontier(2))
    assert len(contents(built.open())) == 4
    assert versions(folder) == 2


def test_upkeep_compacts_many_small_fragments(built: LanceStore, folder: Path) -> None:
    assert built.maintain() == {}
    for n in range(1, MAX_SMALL_FRAGMENTS + 1):
        built.commit(batch(chunk(f"k{n}")), frontier(n), frontier(n + 1))
    before = contents(built.open())
    assert built.maintain()["fragments_compacted"] > MAX_SMALL_FRAGMENTS
    assert len(lance.dataset(str(folder / "wines.g1.lance")).get_fragments()) == 1
    assert contents(built.open()) == before
    assert built.maintain() == {}


def test_upkeep_removes_generations_below_the_active_one(built: LanceStore, folder: Path) -> None:
    rebuilt(built)
    (folder / "wines.g3.lance" / "data").mkdir(parents=True)
    assert built.maintain() == {"generations_removed": 1}
    left = sorted(p.name for p in folder.iterdir())
    assert left == ["wines.g2.lance", "wines.g3.lance", "wines.json"]


@pytest.fixture
def many_versions(built: LanceStore, monkeypatch: pytest.MonkeyPatch) -> LanceStore:
    """More versions than are kept, all of them old."""
    for n in range(1, KEEP_VERSIONS + 5):
        built.commit(batch(), frontier(n), frontier(n + 1))
    assert built.maintain() == {}
    monkeypatch.setattr("lakewake.store.lance.upkeep.KEEP_FOR", timedelta(microseconds=1))
    assert built.maintain() == {}
    monkeypatch.setattr("lakewake.store.lance.upkeep.MAX_OLD_VERSIONS", 5)
    return built


def test_upkeep_drops_old_versions_once_there_are_many_but_not_tagged_ones(
    many_versions: LanceStore, folder: Path
) -> None:
    lance.dataset(str(folder / "wines.g1.lance")).tags.create("kept", 2)
    assert many_versions.maintain() == {"versions_removed": 4}
    assert versions(folder) == KEEP_VERSIONS + 1
    reader = many_versions.open()
    assert reader is not None
    assert reader.frontier() == frontier(KEEP_VERSIONS + 5)


def test_a_pinned_version_outlives_upkeep_and_a_released_one_does_not(
    folder: Path, many_versions: LanceStore
) -> None:
    old = LanceReader(lance.dataset(str(folder / "wines.g1.lance"), version=1), 1, "wines")
    with old.pinned():
        assert many_versions.maintain() == {"versions_removed": 4}
        assert len(contents(old)) == 3
    many_versions.commit(batch(), frontier(KEEP_VERSIONS + 5), frontier(KEEP_VERSIONS + 6))
    assert versions(folder) == KEEP_VERSIONS + 2
    assert lance.dataset(str(folder / "wines.g1.lance")).tags.list() == {}


def test_the_pin_of_a_killed_reader_is_removed_later(
    folder: Path, many_versions: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lance.dataset(str(folder / "wines.g1.lance"))
    dataset.tags.create(f"{PIN}of-a-dead-reader", 1)
    monkeypatch.setattr("lakewake.store.lance.upkeep.PINNED_FOR", timedelta())
    assert many_versions.maintain() == {"versions_removed": 5}
    assert dataset.tags.list() == {}


def test_an_index_is_opened_again_only_if_it_has_changed(built: LanceStore, folder: Path) -> None:
    first = built.open()
    assert built.open() is first
    LanceStore(str(folder), "wines").commit(batch(chunk("d")), frontier(1), frontier(2))
    second = built.open()
    assert second is not None
    assert second.frontier() == frontier(2)
    assert len(contents(second)) == 4


def test_an_index_created_again_at_the_same_location_is_opened_again(
    built: LanceStore, folder: Path
) -> None:
    assert built.open() is not None
    shutil.rmtree(folder)
    LanceStore(str(folder), "wines").create(recipe(), batch(chunk("z")), frontier(7), after=0)
    again = built.open()
    assert again is not None
    assert contents(again) == as_stored(chunk("z"))


class TestApproximateIndex:
    """The bound is so low that upkeep creates an approximate index."""

    @pytest.fixture(params=[8, 12], ids=["multiple of 8", "other dimension"])
    def dimension(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    @pytest.fixture
    def indexed(self, folder: Path, dimension: int) -> LanceStore:
        store = LanceStore(str(folder), "wines", ann_min_chunks=2_000)
        payload = pa.schema([("points", pa.int32())])
        made = recipe(dimension=dimension)
        schema = index_schema(made, payload)
        rows = [
            chunk(str(n), str(n), points=n, _vector=vector_of(str(n), dimension))
            for n in range(2_000)
        ]
        store.create(made, batch(*rows, schema=schema), frontier(1), after=0)
        assert store.maintain() == {
            "texts_indexed": 2_000,
            "chunks_indexed": 2_000,
            "questions_probed": 24,
        }
        assert store.open().searching().mode == "approximate"
        return store

    def test_staged_chunks_are_found_before_they_are_in_the_approximate_index(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        schema = indexed.open().schema()
        new = [chunk(f"n{n}", f"n{n}", _vector=vector_of(f"n{n}", dimension)) for n in range(20)]
        moved = chunk("0", "moved", _vector=vector_of("moved", dimension))
        with indexed.staging() as staging:
            written = staging.write(schema, iter(batch(*new, moved, schema=schema).rows()))
            removed = Removed(replaced=tuple(c["_id"] for c in [*new, moved]))
            whole = staging.batch(schema, [written], removed)
            indexed.commit(whole, frontier(1), frontier(2))
        reader = indexed.open()
        for one in [*new, moved]:
            found = reader.search(Query(np.array(one["_vector"], np.float32), 1))
            assert found["_id"].to_pylist() == [one["_id"]]
        former = reader.search(Query(np.array(vector_of("0", dimension), np.float32), 1))
        assert former["_similarity"][0].as_py() < 0.999

    def test_an_approximate_index_is_created_once(self, indexed: LanceStore) -> None:
        assert indexed.maintain() == {}

    def test_an_approximate_search_finds_nearly_what_an_exact_one_finds(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        reader = indexed.open()
        assert reader is not None
        recall = []
        for n in range(20):
            q = np.array(vector_of(f"q{n}", dimension), np.float32)
            near, exact = (reader.search(Query(q, 10, exact=e)) for e in (False, True))
            recall.append(len({*keys(near)} & {*keys(exact)}) / 10)
            cosines = dict(zip(keys(exact), exact["_similarity"].to_pylist(), strict=True))
            for key, cosine in zip(keys(near), near["_similarity"].to_pylist(), strict=True):
                assert cosines.get(key, cosine) == pytest.approx(cosine)
        assert np.mean(recall) >= RECALL

    def test_a_search_with_a_narrow_filter_still_finds_k_rows(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        reader = indexed.open()
        assert reader is not None
        q = np.array(vector_of("q", dimension), np.float32)
        found = reader.search(Query(q, 7, where=Compare("points", "<", 7)))
        assert {*keys(found)} == {str(n) for n in range(7)}

    def test_a_search_for_more_rows_than_exist_returns_all(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        reader = indexed.open()
        assert reader is not None
        q = np.array(vector_of("q", dimension), np.float32)
        assert len({*keys(reader.search(Query(q, 5_000)))}) == 2_000
        assert len({*keys(reader.search(Query(q, 600)))}) == 600

    def test_a_row_committed_after_the_approximate_index_is_found(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        reader = indexed.open()
        assert reader is not None
        new = chunk("new", "new", points=1, _vector=vector_of("new", dimension))
        gone = chunk("5", "5")["_id"]
        indexed.commit(
            batch(new, schema=reader.schema(), deletes=(gone,)), frontier(1), frontier(2)
        )
        reader = indexed.open()
        assert reader is not None
        found = reader.search(Query(np.array(new["_vector"], np.float32), 1))
        assert keys(found) == ["new"]
        found = reader.search(Query(np.array(vector_of("5", dimension), np.float32), 3))
        assert "5" not in keys(found)

    def commit_new(self, store: LanceStore, dimension: int, rows: int) -> None:
        reader = store.open()
        assert reader is not None
        new = [
            chunk(f"n{n}", f"n{n}", points=1, _vector=vector_of(f"n{n}", dimension))
            for n in range(rows)
        ]
        store.commit(batch(*new, schema=reader.schema()), frontier(1), frontier(2))

    def partitions(self, store: LanceStore) -> int:
        return coverage_of(store._versions.dataset(1)).partitions

    def test_an_approximate_index_takes_in_new_chunks_once_there_are_many(
        self, indexed: LanceStore, dimension: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakewake.store.lance.upkeep.MIN_WAITING", 10)
        before = self.partitions(indexed)
        self.commit_new(indexed, dimension, rows=20)
        assert indexed.maintain() == {"chunks_indexed": 20}
        assert indexed.maintain() == {}
        # Lance alone would merge them into one partition, and a search would read everything.
        assert self.partitions(indexed) == before == 3

    def test_an_approximate_index_is_created_again_once_it_is_outgrown(
        self, indexed: LanceStore, dimension: int
    ) -> None:
        self.commit_new(indexed, dimension, rows=1_800)
        assert indexed.maintain()["chunks_indexed"] == 3_800
        assert indexed.maintain() == {}
        assert self.partitions(indexed) == 7


@pytest.mark.parametrize(
    ("there", "wanted", "misshapen"),
    [
        (0, 1, True),
        (253, 253, False),
        (253, 126, True),
        (253, 127, False),
        (253, 506, False),
        (253, 507, True),
    ],
)
def test_an_approximate_index_is_outgrown_if_its_partition_count_is_far_off(
    there: int, wanted: int, misshapen: bool
) -> None:
    assert _misshapen(there, wanted) is misshapen


def test_a_file_in_place_of_the_folder_is_an_error(folder: Path) -> None:
    folder.write_text("not a folder")
    store = LanceStore(str(folder), "wines")
    for call in (store.open, lambda: store.create(recipe(), batch(), frontier(1), after=0)):
        with pytest.raises(StoreError) as error:
            call()
        assert error.value.landed == "nothing was written"
        assert error.value.hint
    assert folder.read_text() == "not a folder"


def test_a_file_in_place_of_the_dataset_is_an_error(folder: Path) -> None:
    folder.mkdir()
    (folder / "wines.g1.lance").write_text("not a dataset")
    with pytest.raises(StoreError, match="cannot be written"):
        LanceStore(str(folder), "wines").create(recipe(), batch(), frontier(1), after=0)
    assert (folder / "wines.g1.lance").read_text() == "not a dataset"


def test_a_lance_dataset_that_is_not_an_index_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    location = str(folder / "wines.g1.lance")
    lance.write_dataset(pa.table({"a": [1, 2]}), location)
    store = LanceStore(str(folder), "wines")
    create = lambda: store.create(recipe(), batch(), frontier(1), after=0)  # noqa: E731
    commit = lambda: store.commit(batch(), frontier(1), frontier(2))  # noqa: E731
    for call in (store.open, create, commit, store.maintain):
        with pytest.raises(StoreError):
            call()
    assert lance.dataset(location).version == 1
    assert not (folder / "wines.json").exists()


def test_an_index_without_its_checkpoint_is_an_error(built: LanceStore, folder: Path) -> None:
    lance.dataset(str(folder / "wines.g1.lance")).delete(f"_id = '{CHECKPOINT_ID}'")
    with pytest.raises(StoreError, match="0 checkpoint rows"):
        built.open()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format": 2}', '{"format": 1, "generation": 1, "dataset": "../x"}', "\xff"],
)
def test_an_unreadable_pointer_is_an_error_that_names_it(
    built: LanceStore, folder: Path, text: str
) -> None:
    (folder / "wines.json").write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match=r"wines\.json") as error:
        built.open()
    assert "remove" in error.value.hint
    (folder / "wines.json").unlink()
    assert len(contents(built.open())) == 3


def test_a_deleted_dataset_is_an_error_and_can_be_built_again(
    built: LanceStore, folder: Path
) -> None:
    reader = built.open()
    assert reader is not None
    shutil.rmtree(folder / "wines.g1.lance")
    with pytest.raises(StoreError) as error:
        built.open()
    assert "lakewake sync wines --rebuild" in error.value.hint
    with pytest.raises(StoreError, match="cannot be read"):
        reader.search(query("red"))
    with pytest.raises(StoreError):
        built.commit(batch(), frontier(1), frontier(2))
    assert built.generation() == 0
    built.create(recipe(), batch(chunk("z")), frontier(5), after=0)
    assert contents(built.open()) == as_stored(chunk("z"))


def test_damaged_data_is_an_error_and_can_be_built_again(built: LanceStore, folder: Path) -> None:
    for file in (folder / "wines.g1.lance" / "data").iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(StoreError) as error:
        built.open()
    assert "--rebuild" in error.value.hint
    assert built.generation() == 1
    built.create(recipe(), batch(chunk("z")), frontier(5), after=1)
    assert contents(built.open()) == as_stored(chunk("z"))


def test_a_folder_that_is_not_writable_is_an_error(built: LanceStore, folder: Path) -> None:
    location = folder / "wines.g1.lance"
    inside = [p for p in [location, *location.rglob("*")] if p.is_dir()]
    for path in inside:
        path.chmod(0o555)
    try:
        if os.access(location, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(StoreError, match="cannot be written"):
            built.commit(batch(chunk("d")), frontier(1), frontier(2))
    finally:
        for path in inside:
            path.chmod(0o755)
    assert len(contents(built.open())) == 3


def test_the_registry_opens_a_store_by_its_scheme(tmp_path: Path) -> None:
    opened = open_store(f"lance://{tmp_path}/index", "wines")
    opened.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert (tmp_path / "index" / "wines.json").exists()


def test_a_memory_store_is_the_same_for_the_whole_process() -> None:
    first = open_store("memory://here", "wines")
    assert open_store("memory://here", "wines") is first
    assert open_store("memory://here", "beers") is not first
    assert open_store("memory://there", "wines") is not first


@pytest.mark.parametrize("url", ["redis://x", "index", "", "lance://", "://x"])
def test_an_invalid_store_address_is_refused_with_the_valid_schemes(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(url, "wines")
    assert "lance://" in error.value.hint


def test_a_remote_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="local"):
        open_store("lance://s3://bucket/index", "wines")


SCAN = """
import re, sys
from lakewake.store.lance.store import LanceStore

def peak():
    # Not getrusage: its figure begins with that of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

reader = LanceStore(sys.argv[1], "wines").open()
assert all(batch.num_rows for batch in reader.scan(["_id"]))
before = peak()
print(sum(batch.num_rows for batch in reader.scan(["_id", "_text"])), peak() - before)
"""


def test_large_texts_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """160 MB of text in a separate process: Lance's memory is not counted otherwise."""
    rows = [chunk(str(n), f"{n} " + "word " * 4_000) for n in range(8_000)]
    LanceStore(str(tmp_path), "wines").create(recipe(), batch(*rows), frontier(1), after=0)
    scan = [sys.executable, "-c", SCAN, str(tmp_path)]
    done = subprocess.run(scan, capture_output=True, text=True, check=True)
    read, megabytes = map(int, done.stdout.split())
    assert read == 8_000
    assert megabytes < 240
