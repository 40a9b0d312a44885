"""The hot tier of a process: when it begins, what it follows, and when the store answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewake.api.hot import SEARCHES, Hot
from lakewake.config.settings import IndexSettings
from lakewake.errors import StoreError
from lakewake.model.hot import HotStatus, in_words, parse_size
from lakewake.model.query import Query
from lakewake.model.where import Compare, In
from lakewake.progress import Counted, Counting, Stage
from lakewake.store import StoreReader
from lakewake.store.hot import tier as tier_module
from lakewake.store.hot.base import Base, estimate, read_base
from lakewake.store.hot.cells import Cells, compared, in_order, number_of_cells, train
from lakewake.store.hot.reader import HotReader
from lakewake.store.hot.rows import HeldRows
from lakewake.store.hot.tier import HotTier
from lakewake.store.lance.store import LanceStore
from lakewake.store.limited import Limit, LimitedReader
from lakewake.testing.samples import batch, chunk, frontier, keys, query, recipe
from support.watched import Watching

WAIT = 60.0


@pytest.fixture
def store(tmp_path: Path) -> LanceStore:
    made = LanceStore(str(tmp_path / "index"), "wines")
    rows = [chunk(f"k{n}", f"text {n}") for n in range(30)]
    made.create(recipe(), batch(*rows), frontier(1), after=0)
    return made


@pytest.fixture
def tier() -> Iterator[HotTier]:
    made = HotTier("1GB", 0.99)
    yield made
    made.close()


def warmed(tier: HotTier, store: LanceStore) -> StoreReader:
    reader = store.open()
    tier.want(reader)
    assert tier.wait(WAIT)
    return tier.front(reader)


def settings(hot: str = "auto", store: str = "lance://index") -> IndexSettings:
    return IndexSettings("wines", "lake/wines", store, hot=hot)


def test_a_version_is_answered_from_memory_once_it_is_there(
    tier: HotTier, store: LanceStore
) -> None:
    hot = warmed(tier, store)
    assert isinstance(hot, HotReader)
    assert keys(hot.search(query("text 7", 1))) == ["k7"]
    assert tier.status.state == "ready"
    assert tier.status.chunks == 30
    assert tier.status.instant == frontier(1).newest


def test_the_store_answers_until_a_new_version_is_in_memory(
    tier: HotTier, store: LanceStore
) -> None:
    warmed(tier, store)
    store.commit(batch(chunk("new", "new")), frontier(1), frontier(2))
    reader = store.open()
    assert tier.front(reader) is reader
    assert tier.wait(WAIT)
    hot = tier.front(reader)
    assert isinstance(hot, HotReader)
    assert keys(hot.search(query("new", 1))) == ["new"]
    assert (tier.status.since, tier.status.instant) == (1, frontier(2).newest)


def test_a_reader_keeps_its_version_while_the_tier_moves_on(
    tier: HotTier, store: LanceStore
) -> None:
    former = warmed(tier, store)
    store.commit(batch(deletes=(chunk("k7")["_id"],)), frontier(1), frontier(2))
    later = warmed(tier, store)
    assert keys(former.search(query("text 7", 1))) == ["k7"]
    assert keys(later.search(query("text 7", 1))) != ["k7"]
    assert former.frontier() == frontier(1)


def test_upkeep_alone_needs_nothing_to_be_read(
    tier: HotTier, store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed(tier, store)
    monkeypatch.setattr(tier_module, "follow", None)
    store._versions.dataset(1).update_config({"some": "upkeep"})
    assert isinstance(tier.front(store.open()), HotReader)


def test_an_index_that_needs_more_memory_than_allowed_is_left_to_the_store(
    store: LanceStore,
) -> None:
    tier = HotTier("1MB", 0.99)
    tier.limit = 1_000
    reader = store.open()
    tier.want(reader)
    assert tier.wait(WAIT)
    assert tier.front(reader) is reader
    assert tier.status.state == "refused"
    assert tier.status.why == "it needs 1 MB, and `hot` allows 1 MB"
    tier.close()


def test_what_is_stated_is_what_is_taken(tmp_path: Path) -> None:
    store = LanceStore(str(tmp_path), "wines")
    rows = [chunk(f"k{n}", f"text {n}" * (n % 7)) for n in range(3_000)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    tier = HotTier("1GB", 0.99)
    warmed(tier, store)
    assert estimate(store.open(), 0.99) == pytest.approx(tier.status.bytes, rel=0.1)
    tier.close()


def test_an_index_that_cannot_be_read_is_left_to_the_store(
    tier: HotTier, store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> None:
        raise StoreError("the file is torn", hint="none")

    monkeypatch.setattr(tier_module, "read_base", damaged)
    reader = store.open()
    tier.want(reader)
    assert tier.wait(WAIT)
    assert tier.front(reader) is reader
    assert tier.status.why == "the index could not be read into memory: the file is torn"


def test_a_large_index_whose_cells_find_too_little_is_left_to_the_store(
    tier: HotTier, store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.hot.base.CELLS_MIN_CHUNKS", 1)
    monkeypatch.setattr("lakewake.store.hot.base.PROBES", ())
    reader = store.open()
    assert warmed(tier, store) is reader
    assert tier.status.why == "no number of cells reached the promised recall"


def test_a_version_that_outgrew_its_base_gets_another(
    tier: HotTier, store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "MOST_SINCE", 1)
    warmed(tier, store)
    rows = [chunk(f"n{n}", f"new {n}") for n in range(9)]
    store.commit(batch(*rows), frontier(1), frontier(2))
    hot = warmed(tier, store)
    assert (tier.status.chunks, tier.status.since) == (39, 0)
    assert keys(hot.search(query("new 3", 1))) == ["n3"]


def test_a_closed_tier_leaves_everything_to_the_store(tier: HotTier, store: LanceStore) -> None:
    warmed(tier, store)
    tier.close()
    reader = store.open()
    tier.want(reader)
    assert tier.front(reader) is reader


def test_a_reader_that_is_sent_elsewhere_is_that_of_the_store(
    tier: HotTier, store: LanceStore
) -> None:
    hot = warmed(tier, store)
    sent = pickle.loads(pickle.dumps(hot))
    assert not isinstance(sent, HotReader)
    assert sent.frontier() == frontier(1)


def test_an_exact_search_is_one_of_the_store(tier: HotTier, store: LanceStore) -> None:
    hot = warmed(tier, store)
    before = len(store._versions._asking.recent)
    hot.search(query("text 7"))
    assert len(store._versions._asking.recent) == before
    hot.search(query("text 7", exact=True))
    assert len(store._versions._asking.recent) == before + 1


def test_a_right_limits_what_is_in_memory(tier: HotTier, store: LanceStore) -> None:
    limit = Limit("wines", In("_key", ("k3", "k9")))
    hot, plain = (LimitedReader(r, limit) for r in (warmed(tier, store), store.open()))
    for where in (None, Compare("_key", "=", "k3"), Compare("_key", "=", "k4")):
        near, exact = (r.search(query("text 4", 5, where=where)) for r in (hot, plain))
        assert near.to_pylist() == exact.to_pylist()
    assert {*keys(hot.search(query("text 4", 50)))} == {"k3", "k9"}


def test_a_process_begins_once_it_searches_often(store: LanceStore) -> None:
    hot, reader = Hot(settings()), store.open()
    for _ in range(SEARCHES):
        assert hot.front(reader) is reader
    assert hot.status().state == "waiting"
    hot.front(reader)
    assert hot._tier.wait(WAIT)
    assert isinstance(hot.front(reader), HotReader)
    hot.close()


@pytest.mark.parametrize(
    "off", [settings("off"), settings(store="qdrant://here"), settings(store="memory://here")]
)
def test_an_index_may_be_kept_out_of_memory(store: LanceStore, off: IndexSettings) -> None:
    hot, reader = Hot(off), store.open()
    for _ in range(3 * SEARCHES):
        assert hot.front(reader) is reader
    assert hot.warm(reader, WAIT)
    assert hot._tier is None
    assert hot.status().state == "off"


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_all_cells_together_hold_each_vector_once(metric: str) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 8)).astype(np.float32)
    vectors[3], vectors[7] = 0, np.nan
    centres, found = train(metric, vectors, lambda: False)
    order, starts = in_order(found, len(centres))
    rows = HeldRows(vectors[order], pa.record_batch({"_id": [str(n) for n in order]}))
    cells = Cells(metric, centres, starts)
    assert len(cells) == number_of_cells(500)
    positions, near = cells.nearest(rows, vectors[0], len(cells))
    assert sorted(positions.tolist()) == [*range(500)]
    assert near.tolist() == rows.closeness(metric, vectors[0], None)[positions].tolist()
    assert order[positions[near.argmax()]] == 0 or metric == "dot"


def test_who_waits_sees_how_many_chunks_are_in_memory(
    tier: HotTier, store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, reader, read = Watching(), store.open(), read_base

    def slowly(reader: StoreReader, stopped: Callable[[], bool], stage: Stage) -> Base | None:
        assert seen.begun.wait(WAIT)
        base = read(reader, stopped, stage)
        counted.update({work.name: work for work in tier.work.values()})
        return base

    counted: dict[str, Counted] = {}
    monkeypatch.setattr(tier_module, "read_base", slowly)
    monkeypatch.setattr(tier_module, "EVERY", 0.01)
    tier.want(reader)
    assert tier.wait(WAIT, seen)
    assert counted == {"read into memory": Counted("read into memory", 30, 30)}
    assert (seen.steps[0].name, seen.steps[0].total) == ("read into memory", 30)
    assert all(shown.ended for shown in seen.steps)
    assert tier.work == {}


@pytest.mark.parametrize("vectors", [100, 20_000])
def test_training_cells_counts_each_comparison(vectors: int) -> None:
    counting = Counting("group", compared(vectors))
    train("l2", np.random.default_rng(0).random((vectors, 2), np.float32), lambda: False, counting)
    assert counting.counted.done == counting.counted.total


def test_training_cells_can_be_stopped() -> None:
    assert train("l2", np.ones((10, 4), np.float32), lambda: True) is None


def test_a_question_without_a_direction_finds_nothing(tier: HotTier, store: LanceStore) -> None:
    hot = warmed(tier, store)
    assert hot.search(Query(np.zeros(8, np.float32), 3)).num_rows == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("1.5 gb", 1_500_000_000), ("2TB", 2 * 10**12), ("0MB", None)],
)
def test_a_size_is_a_number_with_a_unit(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "2GiB", "1e3MB", "", "two GB"])
def test_anything_else_is_not_a_size(text: str) -> None:
    assert parse_size(text) is None


def test_sizes_are_shown_in_megabytes_or_gigabytes() -> None:
    assert in_words(1) == "1 MB"
    assert in_words(259_500_000) == "260 MB"
    assert in_words(1_900_000_000) == "1.9 GB"
    assert HotStatus().as_dict()["state"] == "off"
