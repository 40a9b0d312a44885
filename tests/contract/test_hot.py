"""The hot tier keeps what each store promises, and answers what the store answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakewake.model.query import Query
from lakewake.model.recall import RECALL
from lakewake.model.where import And, Compare, In, Like
from lakewake.store import Store
from lakewake.store.hot.base import read_base, read_piece
from lakewake.store.hot.held import follow
from lakewake.store.lance.store import LanceStore
from lakewake.store.memory import MemoryStore
from lakewake.testing.samples import batch, chunk, frontier, query, recipe, some_rows
from lakewake.testing.stores import StoreContract
from support.hot_store import HotStore
from support.recall_contract import (
    GONE,
    LEAST,
    PER_TOPIC,
    RECIPE,
    TOPICS,
    RecallContract,
    change,
    chunks,
    ids,
    reader_of,
    recall,
    topics,
)


class TestOverMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return HotStore(MemoryStore())


class TestOverLance(StoreContract):
    """With cells, however few chunks there are."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr("lakewake.store.hot.base.CELLS_MIN_CHUNKS", 1)
        return HotStore(LanceStore(str(tmp_path / "index"), "wines"))


class TestRecall:
    """What is gone or filtered out costs no recall, though the cells were trained with it."""

    @pytest.fixture
    def indexed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HotStore:
        monkeypatch.setattr("lakewake.store.hot.base.CELLS_MIN_CHUNKS", LEAST)
        store = HotStore(LanceStore(str(tmp_path), "wines"))
        store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
        assert store.open().searching().mode == "approximate"
        return store

    test_topics_that_replaced_others_are_found = (
        RecallContract.test_topics_that_replaced_others_are_found
    )
    test_recall_is_kept_after_any_history = RecallContract.test_recall_is_kept_after_any_history

    def test_cells_are_probed(self, indexed: HotStore) -> None:
        how = reader_of(indexed).searching()
        assert how.recall_mean >= RECALL
        assert {*how.kinds} == {"stored", "midpoints"}
        assert "in memory" in how.why

    def test_queries_about_deleted_topics_find_the_nearest_remaining_chunks(
        self, indexed: HotStore
    ) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        found = recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 20])
        assert found.mean() >= RECALL
        assert np.sort(found)[: len(found) // 10].mean() >= 0.9

    @pytest.mark.parametrize("least", [GONE, TOPICS // 2, TOPICS - 1])
    def test_a_filter_of_any_selectivity_costs_no_recall(
        self, indexed: HotStore, least: int
    ) -> None:
        others = Compare("topic", ">=", least)
        asked = topics(0, TOPICS)[:: PER_TOPIC // 2]
        assert recall(indexed, asked, others).mean() >= RECALL

    def test_cells_that_miss_too_much_are_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakewake.store.hot.base.CELLS_MIN_CHUNKS", LEAST)
        monkeypatch.setattr("lakewake.store.hot.base.PROBES", (1,))
        store = HotStore(LanceStore(str(tmp_path), "wines"))
        store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
        how = reader_of(store).searching()
        assert how.mode == "exact"
        assert "no number of cells" in how.why
        assert recall(store, topics(0, TOPICS)[::500]).mean() == 1


WHERES = (
    None,
    Compare("points", "=", 1),
    In("_key", ("k1", "k7")),
    And((Compare("points", ">", 0), Compare("_chunk", "=", 0))),
    Like("country", "It%"),
    Compare("points", "=", 99),
)


@pytest.fixture(params=["cosine", "dot", "l2"])
def metric(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_history_memory_answers_what_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, metric: str
) -> None:
    monkeypatch.setattr("lakewake.store.lance.upkeep.MAX_SMALL_FRAGMENTS", 2)
    dice = random.Random(seed)
    store = HotStore(LanceStore(str(tmp_path), "wines"))
    there = some_rows(dice, 12)
    store.create(recipe(metric), batch(*there.values()), frontier(1), after=0)
    store.open()
    base = store.base
    for sync in range(1, 7):
        gone = dice.sample(sorted(there), dice.randrange(min(4, len(there))))
        new = {i: c for i, c in some_rows(dice, dice.randrange(4)).items() if i not in gone}
        store.commit(batch(*new.values(), deletes=tuple(gone)), frontier(sync), frontier(sync + 1))
        there = {i: c for i, c in there.items() if i not in gone} | new
        if dice.random() < 0.5:
            store.maintain()
        hot = store.open()
        for text in ("the red", "plum", "nothing like it"):
            for limit in (1, 3, 50):
                for where in WHERES:
                    near, exact = (
                        hot.search(query(text, limit, where=where, exact=e)) for e in (False, True)
                    )
                    assert near.schema.names == exact.schema.names
                    assert near.schema.types == exact.schema.types
                    assert near.to_pylist() == exact.to_pylist()
    assert store.base is base


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pieces that were read to follow the store."""
    read: list[str] = []
    real: Any = read_piece

    def counting(piece: Any, reader: Any) -> Any:
        read.append(piece.name)
        return real(piece, reader)

    monkeypatch.setattr("lakewake.store.hot.held.read_piece", counting)
    return read


def test_only_what_a_commit_wrote_is_read_again(tmp_path: Path, counted: list[str]) -> None:
    store = HotStore(LanceStore(str(tmp_path), "wines"))
    rows = [chunk(f"k{n}", f"text {n}") for n in range(50)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    store.open()
    assert counted == []
    gone = rows[3]["_id"]
    new = [chunk("k7", "another"), chunk("new", "new")]
    store.commit(batch(*new, deletes=(gone,)), frontier(1), frontier(2))
    held = store.open().held
    assert len(counted) == 1
    assert (len(held.since), held.gone) == (2, 2)
    store.commit(batch(), frontier(2), frontier(3))
    store.open()
    assert len(counted) == 1


def test_chunks_that_upkeep_moved_are_found_in_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.lance.upkeep.MAX_SMALL_FRAGMENTS", 1)
    store = HotStore(LanceStore(str(tmp_path), "wines"))
    rows = [chunk(f"k{n}", f"text {n}") for n in range(50)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    store.open()
    store.commit(batch(chunk("k7", "another")), frontier(1), frontier(2))
    assert store.maintain()["fragments_compacted"] == 2
    held = store.open().held
    assert (len(held.since), held.gone) == (1, 1)


@pytest.mark.parametrize("column", ["points", "_text", "_vector", "tags"])
def test_a_chunk_with_any_other_content_is_not_that_of_the_base(column: str) -> None:
    """A repair may write other content under the same id and hash."""
    values = {"points": 1, "_text": "other", "_vector": [1.0] * 8, "tags": ["red"]}
    store = MemoryStore()
    store.create(recipe(), batch(chunk("a"), chunk("b")), frontier(1), after=0)
    base = read_base(store.open(), lambda: False)
    store.commit(batch(chunk("a", **{column: values[column]})), frontier(1), frontier(2))
    held = follow(base, store.open())
    assert (len(held.since), held.gone) == (1, 1)


def test_chunks_that_a_restore_brings_back_are_read(tmp_path: Path) -> None:
    import lance

    store = HotStore(LanceStore(str(tmp_path), "wines"))
    rows = [chunk(f"k{n}", f"text {n}") for n in range(5)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    store.commit(batch(deletes=(rows[1]["_id"],)), frontier(1), frontier(2))
    store.open()
    lance.dataset(str(tmp_path / "wines.g1.lance"), version=1).restore()
    found = store.open().search(Query(np.array(rows[1]["_vector"], np.float32), 1))
    assert found["_key"].to_pylist() == ["k1"]
