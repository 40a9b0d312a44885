"""The recall contract for Lance, and how it searches its partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lakewake.model.query import Query
from lakewake.model.recall import RECALL, Decision, Effort, Probed
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.store.lance.reader import LanceReader
from lakewake.store.lance.recall import (
    KEY,
    Coverage,
    coverage_of,
    decide,
    distances,
    efforts,
    widest,
)
from lakewake.store.lance.store import LanceStore
from lakewake.store.recall import Asking, changed, choose, is_due
from lakewake.testing.samples import frontier
from support.recall_contract import (
    CHUNKS,
    DIMENSION,
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
    searching,
    topics,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use as many partitions as a large index, and probe after the same share of changes."""
    monkeypatch.setattr("lakewake.store.lance.upkeep.PARTITION", 32)
    monkeypatch.setattr("lakewake.store.lance.upkeep.MIN_WAITING", 100)
    monkeypatch.setattr("lakewake.store.recall.MIN_CHANGED", 100)


def opened(folder: Path, **options: float) -> LanceStore:
    return LanceStore(str(folder), "wines", ann_min_chunks=LEAST, words_min_chunks=10**9, **options)


def build(folder: Path, **options: float) -> LanceStore:
    store = opened(folder, **options)
    store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
    return store


@pytest.fixture
def indexed(tmp_path: Path) -> LanceStore:
    store = build(tmp_path)
    store.maintain()
    return store


class TestLance(RecallContract):
    def opened(self, folder: Path, **options: float) -> LanceStore:
        return opened(folder, **options)

    def as_once(self, store: LanceStore) -> LanceReader:
        """Search few of the partitions."""
        reader = LanceReader(store._versions.dataset(1), 1, "wines")
        reader._effort = lambda filtered: FEW  # type: ignore[method-assign]
        return reader

    def decide(self, store: LanceStore, text: str) -> None:
        store._versions.dataset(1).update_config({KEY: text})

    def coverage(self, store: LanceStore) -> Coverage:
        return coverage_of(store._versions.dataset(1))

    def sample(self, store: LanceStore) -> DeletedVectors:
        return store._upkeep.deleted


def test_a_search_of_a_new_index_reads_few_partitions(indexed: LanceStore) -> None:
    how = searching(indexed)
    assert (how.mode, how.probes, how.partitions) == ("approximate", 20, CHUNKS // 32)


def test_queries_about_deleted_topics_read_more_partitions(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))), upkeep=False)
    how = searching(indexed)
    assert how.probes == how.partitions
    indexed.maintain()
    how = searching(indexed)
    assert how.probes > 20
    assert "deleted" in how.kinds
    assert min(how.kinds.values()) >= RECALL


def test_a_version_opened_again_is_searched_with_the_same_effort(
    indexed: LanceStore, tmp_path: Path
) -> None:
    former, location = reader_of(indexed), tmp_path / "wines.g1.lance"
    version = lance.dataset(str(location)).version
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    again = LanceReader(lance.dataset(str(location), version=version), 1, "wines")
    assert again.searching() == former.searching()
    assert again.searching().probes == 20 < searching(indexed).probes


def test_an_index_a_little_below_its_bound_keeps_its_partitions(indexed: LanceStore) -> None:
    most = TOPICS - LEAST // PER_TOPIC
    change(indexed, 1, chunks(0, 0, deletes=(*ids(0, most), f"c{most * PER_TOPIC}")))
    # A few more chunks would make the partitions useful again.
    assert searching(indexed).mode == "exact"
    assert indexed.maintain() == {}
    assert coverage_of(indexed._versions.dataset(1)).partitions


def test_an_index_far_below_its_bound_drops_its_approximate_index(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, 40))), upkeep=False)
    assert indexed.maintain()["approximate_dropped"] == 1
    assert indexed.maintain() == {}
    dataset = indexed._versions.dataset(1)
    assert coverage_of(dataset) == Coverage(20 * PER_TOPIC)
    assert KEY not in dataset.config()
    assert searching(indexed).why == "it has no approximate index"
    assert recall(indexed, topics(0, TOPICS)[::500]).mean() == 1


def test_partitions_that_no_longer_fit_are_trained_again(
    indexed: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Search so few partitions that the new topics do not fit into them.
    monkeypatch.setattr("lakewake.store.lance.recall.PROBES", 1)
    monkeypatch.setattr("lakewake.store.lance.recall.PROBED", 0)
    trained = coverage_of(indexed._versions.dataset(1))
    assert trained.trained == 0
    change(indexed, 1, chunks(TOPICS, 50, deletes=tuple(ids(0, 50))), upkeep=False)
    assert indexed.maintain()["questions_probed"] == 12 + 12 + KEPT
    there = coverage_of(indexed._versions.dataset(1))
    assert (there.trained, changed(there)) == (0, 0)
    assert recall(indexed, topics(0, TOPICS)[::100]).mean() >= RECALL
    assert indexed.maintain() == {}


def test_recall_1_creates_no_approximate_index(tmp_path: Path) -> None:
    store = build(tmp_path, recall=1.0)
    assert store.maintain() == {"pointer_written": 1} or store.maintain() == {}
    assert coverage_of(store._versions.dataset(1)).partitions == 0
    assert searching(store).mode == "exact"


def test_recall_1_drops_an_approximate_index(indexed: LanceStore, tmp_path: Path) -> None:
    exact = opened(tmp_path, recall=1.0)
    assert searching(exact).mode == "exact"
    assert exact.maintain() == {"approximate_dropped": 1}


def test_an_index_that_was_never_probed_is_searched_in_all_partitions(
    indexed: LanceStore, tmp_path: Path
) -> None:
    lance.dataset(str(tmp_path / "wines.g1.lance")).update_config({}, replace=True)
    how = searching(indexed)
    assert (how.mode, how.probes, how.recall_mean) == ("approximate", how.partitions, None)


def test_recent_queries_are_judged_as_a_kind_of_their_own(indexed: LanceStore) -> None:
    for question in topics(7, 1)[:30]:
        reader_of(indexed).search(Query(question, 3))
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    assert {*searching(indexed).kinds} == {"stored", "midpoints", "deleted", "recent"}


FEW, ALL, MOST = Effort(20, 5), Effort(200, 10), Effort(200, 40)


def probed(effort: Effort, mean: float = 1.0, worst: float = 1.0, **kinds: float) -> Probed:
    return Probed(effort, mean, worst, kinds)


@pytest.mark.parametrize(
    ("found", "keeps"),
    [
        (probed(FEW), True),
        (probed(FEW, 0.99), True),
        (probed(FEW, 0.9899), False),
        (probed(FEW, 0.999, 0.89), False),
        (probed(FEW, 0.995, stored=1.0, deleted=0.98), False),
    ],
)
def test_a_promise_holds_for_the_mean_each_kind_and_the_worst_tenth(
    found: Probed, keeps: bool
) -> None:
    assert found.keeps(0.99) is keeps


def test_efforts_range_from_few_partitions_to_all() -> None:
    tried = efforts(1000)
    assert [e.probes for e in tried] == [50, 100, 200, 1000, 1000]
    assert [e.probes for e in efforts(30)] == [20, 30, 30]
    assert efforts(3) == widest(3) == (Effort(3, 10), Effort(3, 40))


class TestDecide:
    def decided(self, found: dict[Effort, Probed], may_train: bool = False) -> object:
        measured: list[Effort] = []

        def measure(effort: Effort) -> Probed:
            measured.append(effort)
            return found.get(effort, probed(effort, 0.5, 0.1))

        decision = decide(measure, 200, promised=0.99, may_train=may_train)
        self.measured = measured
        return decision

    def test_the_cheapest_effort_that_keeps_the_promise_is_chosen(self) -> None:
        fine = {e: probed(e) for e in efforts(200)}
        assert self.decided(fine) == (fine[FEW], fine[ALL])
        assert self.measured == [FEW, ALL]

    def test_more_partitions_are_searched_if_few_are_not_enough(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[2:]}
        assert self.decided(fine) == (fine[Effort(80, 10)], fine[ALL])

    def test_more_candidates_are_compared_if_all_partitions_are_not_enough(self) -> None:
        fine = {MOST: probed(MOST)}
        assert self.decided(fine) == (fine[MOST], fine[MOST])

    def test_an_effort_that_barely_keeps_the_promise_is_not_chosen(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[1:]}
        assert self.decided({**fine, FEW: probed(FEW, 0.994)}) == (fine[Effort(40, 5)], fine[ALL])
        all_just = {e: probed(e, 0.994) for e in efforts(200)}
        assert self.decided(all_just) == (all_just[MOST], all_just[MOST])

    def test_searches_are_exact_if_no_effort_keeps_the_promise(self) -> None:
        assert self.decided({}) == (None, None)

    def test_partitions_are_trained_again_for_stored_chunks_and_not_for_deleted_ones(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[1:]}
        gone = {**fine, FEW: probed(FEW, 0.95, stored=1.0, deleted=0.9)}
        there = {**fine, FEW: probed(FEW, 0.95, stored=0.9, deleted=1.0)}
        assert self.decided(gone, may_train=True) is not None
        assert self.decided(there, may_train=True) is None
        assert self.decided(there) is not None
        assert self.decided({}, may_train=True) is None


class TestChoose:
    decision = Decision(probed(FEW), probed(ALL), "2026", 24, 0.99, covered=100_000)
    there = Coverage(100_000, 200, 100_000, decision)

    @pytest.fixture(autouse=True)
    def large(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakewake.store.recall.MIN_CHANGED", 500)

    def chosen(
        self, there: Coverage, filtered: bool = False, recall: float = 0.99
    ) -> Effort | None:
        return choose(there, Asking(recall, 100_000), filtered=filtered)[0]

    def test_a_search_with_a_filter_reads_all_partitions_and_one_without_reads_few(self) -> None:
        assert self.chosen(self.there) == FEW
        assert self.chosen(self.there, filtered=True) == ALL

    def test_a_probe_is_due_after_enough_deletes_or_changes(self) -> None:
        asking = Asking(0.99, 100_000)
        assert not is_due(self.there, asking)
        assert is_due(self.there, replace(asking, recall=0.98))
        assert not is_due(replace(self.there, covered=99_500), asking)
        assert is_due(replace(self.there, covered=99_499), asking)
        for taken, due in ((1_000, False), (1_001, True)):
            last = replace(self.decision, covered=100_000, taken=taken)
            assert is_due(replace(self.there, decision=last), asking) is due
        assert is_due(replace(self.there, decision=None), asking)

    def test_a_search_reads_all_partitions_after_many_deletes(self) -> None:
        assert self.chosen(replace(self.there, covered=99_500)) == FEW
        assert self.chosen(replace(self.there, covered=99_499)) == ALL

    def test_a_search_is_exact_below_the_bound_and_if_recall_is_1(self) -> None:
        assert self.chosen(replace(self.there, chunks=99_999)) is None
        assert self.chosen(self.there, recall=1.0) is None
        assert self.chosen(replace(self.there, partitions=0)) is None

    def test_a_search_is_exact_if_the_probe_missed_the_promise(self) -> None:
        low = replace(self.decision, plain=probed(FEW, 0.98))
        assert self.chosen(replace(self.there, decision=low)) is None
        assert self.chosen(replace(self.there, decision=low), recall=0.98) == FEW
        assert self.chosen(replace(self.there, decision=replace(low, plain=None))) is None


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_exact_answers_of_a_probe_are_those_of_lance(metric: str, tmp_path: Path) -> None:
    vectors = np.concatenate([topics(0, 2) * 3, np.zeros((1, DIMENSION), np.float32)])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    dataset = lance.write_dataset(pa.table({"_vector": flat}), str(tmp_path / "d"))
    question = topics(1, 1)[0]
    nearest = {"column": "_vector", "q": question, "k": 10, "metric": metric}
    found = dataset.to_table(columns=["_distance"], nearest=nearest)["_distance"].to_numpy()
    own = np.sort(distances(metric, question[None], vectors)[0])[:10]
    assert own == pytest.approx(found, abs=1e-4)
