"""Approximate searches of Lance keep the recall that is promised, whatever was deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lakewake.model.chunks import Batch, index_schema
from lakewake.model.query import Query
from lakewake.model.recall import RECALL, Decision, Effort, Probed, Searching
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.where import Compare
from lakewake.store.lance.deleted import KEPT, DeletedVectors
from lakewake.store.lance.reader import LanceReader
from lakewake.store.lance.recall import (
    KEY,
    Situation,
    choose,
    decide,
    distances,
    efforts,
    standing_of,
    widest,
)
from lakewake.store.lance.store import LanceStore
from support.store_contract import frontier

DIMENSION, TOPICS, PER_TOPIC = 48, 60, 100
CHUNKS = TOPICS * PER_TOPIC
#: Below it an index is searched exactly; in the product it is 100,000.
LEAST = 3_000
RECIPE = Recipe(
    ModelIdentity("hashing", "test", DIMENSION), (TextField("text", "{text}"),), payload=("topic",)
)
SCHEMA = index_schema(RECIPE, pa.schema([("topic", pa.int32())]))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many partitions as a large index has, and a probe after as large a share of changes."""
    monkeypatch.setattr("lakewake.store.lance.upkeep.PARTITION", 32)
    monkeypatch.setattr("lakewake.store.lance.upkeep.MIN_WAITING", 100)
    monkeypatch.setattr("lakewake.store.lance.recall.MIN_CHANGED", 100)


def topics(first: int, count: int) -> np.ndarray:
    """`PER_TOPIC` vectors for each topic, around a centre of its own."""
    rng = np.random.default_rng(first)
    centres = rng.normal(size=(count, DIMENSION))
    noise = rng.normal(size=(count, PER_TOPIC, DIMENSION))
    made = centres[:, None] / np.linalg.norm(centres, axis=1)[:, None, None] * 7 + noise
    vectors: np.ndarray = made.reshape(-1, DIMENSION).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ids(first: int, count: int) -> list[str]:
    return [f"c{n}" for n in range(first * PER_TOPIC, (first + count) * PER_TOPIC)]


def chunks(first: int, count: int, *, deletes: tuple[str, ...] = ()) -> Batch:
    """All chunks of this many topics."""
    names = ids(first, count)
    text = dict.fromkeys(("_id", "_key", "_hash", "_source_hash", "_payload_hash", "_text"), names)
    values = {
        **text,
        "_partition": [""] * len(names),
        "_field": ["text"] * len(names),
        "_chunk": [0] * len(names),
        "_instant": ["1"] * len(names),
        "_vector": list(topics(first, count)) if count else [],
        "_checkpoint": [None] * len(names),
        "topic": [first + n // PER_TOPIC for n in range(len(names))],
    }
    table = pa.table(values, SCHEMA)
    return Batch(SCHEMA, lambda: table.to_reader(), deletes)


def build(folder: Path, **options: float) -> LanceStore:
    store = LanceStore(
        str(folder), "wines", ann_min_chunks=LEAST, words_min_chunks=10**9, **options
    )
    store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
    return store


@pytest.fixture
def indexed(tmp_path: Path) -> LanceStore:
    store = build(tmp_path)
    store.maintain()
    return store


def change(store: LanceStore, sync: int, batch: Batch, *, upkeep: bool = True) -> None:
    store.commit(batch, frontier(sync), frontier(sync + 1))
    if upkeep:
        store.maintain()


def reader_of(store: LanceStore) -> LanceReader:
    reader = store.open()
    assert reader is not None
    return reader


def searching(store: LanceStore) -> Searching:
    return reader_of(store).searching()


def recall(
    store: LanceStore, questions: np.ndarray, where: Compare | None = None, few: bool = False
) -> np.ndarray:
    """The share of the ten nearest that each question finds; by few partitions, as once."""
    reader, shares = reader_of(store), []
    if few:
        reader = LanceReader(store._dataset(1), 1, "wines")
        reader._effort = lambda filtered: FEW  # type: ignore[method-assign]
    for question in questions:
        near, exact = (
            {*reader.search(Query(question, 10, where, exact=e))["_id"].to_pylist()}
            for e in (False, True)
        )
        shares.append(len(near & exact) / 10)
    return np.array(shares)


GONE = TOPICS // 3


def test_a_new_index_is_probed_and_searched_by_few_of_its_partitions(indexed: LanceStore) -> None:
    how = searching(indexed)
    assert (how.mode, how.probes, how.partitions) == ("approximate", 20, CHUNKS // 32)
    assert how.recall == RECALL <= (how.recall_mean or 0)
    assert (how.recall_worst_tenth or 0) >= 0.9
    assert how.questions == 24
    assert {*how.kinds} == {"stored", "midpoints"}
    assert how.probed_at[:2] == "20"
    assert indexed.maintain() == {}


def test_questions_about_deleted_topics_find_the_nearest_that_are_left(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    shares = recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 20])
    assert shares.mean() >= RECALL
    assert np.sort(shares)[: len(shares) // 10].mean() >= 0.9
    assert recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 20], few=True).mean() < 0.9
    how = searching(indexed)
    assert how.probes > 20
    assert "deleted" in how.kinds
    assert min(how.kinds.values()) >= RECALL


def test_they_do_so_before_upkeep_has_come_round(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))), upkeep=False)
    assert recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 20]).mean() >= RECALL
    how = searching(indexed)
    assert how.probes == how.partitions
    assert "deleted since" in how.why


def test_topics_that_took_the_place_of_others_are_found(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(TOPICS, GONE, deletes=tuple(ids(0, GONE))))
    for asked in (topics(TOPICS, GONE), topics(0, TOPICS)):
        shares = recall(indexed, asked[::40])
        assert shares.mean() >= RECALL
        assert np.sort(shares)[: len(shares) // 10].mean() >= 0.9


def test_a_filter_that_leaves_out_the_topic_asked_about_costs_no_recall(
    indexed: LanceStore,
) -> None:
    others = Compare("topic", ">=", GONE)
    asked = topics(0, TOPICS)[: GONE * PER_TOPIC : 20]
    assert recall(indexed, asked, others).mean() >= RECALL
    assert recall(indexed, asked, others, few=True).mean() < 0.9


def test_a_reader_of_a_former_version_goes_by_what_was_decided_for_it(
    indexed: LanceStore, tmp_path: Path
) -> None:
    former, location = reader_of(indexed), tmp_path / "wines.g1.lance"
    version = lance.dataset(str(location)).version
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    again = LanceReader(lance.dataset(str(location), version=version), 1, "wines")
    assert again.searching() == former.searching()
    assert again.searching().probes == 20 < searching(indexed).probes


def test_below_its_own_bound_an_index_is_searched_exactly(indexed: LanceStore) -> None:
    most = TOPICS - LEAST // PER_TOPIC
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, most))))
    assert searching(indexed).mode == "approximate"
    gone = (f"c{most * PER_TOPIC}",)
    indexed.commit(chunks(0, 0, deletes=gone), frontier(2), frontier(3))
    # At once; upkeep leaves the partitions, which a few more chunks would make useful again.
    assert searching(indexed).mode == "exact"
    assert indexed.maintain() == {}
    assert searching(indexed).recall_mean == 1
    assert standing_of(indexed._dataset(1)).partitions


def test_far_below_it_the_approximate_index_is_dropped(indexed: LanceStore) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, 40))), upkeep=False)
    assert indexed.maintain()["approximate_dropped"] == 1
    assert indexed.maintain() == {}
    dataset = indexed._dataset(1)
    assert standing_of(dataset) == Situation(20 * PER_TOPIC)
    assert KEY not in dataset.config()
    assert searching(indexed).why == "it has no approximate index"
    assert recall(indexed, topics(0, TOPICS)[::500]).mean() == 1


def test_partitions_that_no_longer_fit_are_trained_again(
    indexed: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few that what takes the place of the others lies across them.
    monkeypatch.setattr("lakewake.store.lance.recall.PROBES", 1)
    monkeypatch.setattr("lakewake.store.lance.recall.PROBED", 0)
    trained = standing_of(indexed._dataset(1))
    assert trained.trained == 0
    change(indexed, 1, chunks(TOPICS, 50, deletes=tuple(ids(0, 50))), upkeep=False)
    assert indexed.maintain()["questions_probed"] == 12 + 12 + 32
    there = standing_of(indexed._dataset(1))
    assert (there.trained, there.changed) == (0, 0)
    assert recall(indexed, topics(0, TOPICS)[::100]).mean() >= RECALL
    assert indexed.maintain() == {}


def test_recall_1_means_that_no_approximate_index_is_made(tmp_path: Path) -> None:
    store = build(tmp_path, recall=1.0)
    assert store.maintain() == {"pointer_written": 1} or store.maintain() == {}
    assert standing_of(store._dataset(1)).partitions == 0
    assert searching(store).mode == "exact"


def test_recall_1_drops_an_approximate_index_and_another_promise_probes_again(
    indexed: LanceStore, tmp_path: Path
) -> None:
    lower = LanceStore(str(tmp_path), "wines", ann_min_chunks=LEAST, recall=0.9)
    assert lower.maintain()["questions_probed"] == 24
    # What was judged by a lower promise and does not keep the higher one is not relied on.
    assert searching(indexed).recall == RECALL
    exact = LanceStore(str(tmp_path), "wines", ann_min_chunks=LEAST, recall=1.0)
    assert searching(exact).mode == "exact"
    assert exact.maintain() == {"approximate_dropped": 1}


def test_an_index_that_was_never_probed_is_searched_in_all_its_partitions(
    indexed: LanceStore, tmp_path: Path
) -> None:
    lance.dataset(str(tmp_path / "wines.g1.lance")).update_config({}, replace=True)
    how = searching(indexed)
    assert (how.mode, how.probes, how.recall_mean) == ("approximate", how.partitions, None)
    assert recall(indexed, topics(0, TOPICS)[::500]).mean() >= RECALL
    # Those that were just asked are among them.
    assert indexed.maintain()["questions_probed"] == 36
    assert searching(indexed).recall_mean is not None


def test_a_decision_that_cannot_be_read_counts_as_none(indexed: LanceStore, tmp_path: Path) -> None:
    for text in ("", "no json", "[]", "{}", '{"plain": 1, "filtered": 2}'):
        lance.dataset(str(tmp_path / "wines.g1.lance")).update_config({KEY: text})
        assert searching(indexed).recall_mean is None


def test_small_changes_are_not_probed_and_many_are(indexed: LanceStore) -> None:
    for n in range(3):
        indexed.commit(chunks(0, 0, deletes=(f"c{n}",)), frontier(n + 1), frontier(n + 2))
        assert "questions_probed" not in indexed.maintain()
    indexed.commit(chunks(TOPICS, 1), frontier(4), frontier(5))
    assert "questions_probed" not in indexed.maintain()
    indexed.commit(chunks(TOPICS + 1, 2), frontier(5), frontier(6))
    assert indexed.maintain()["questions_probed"] >= 24
    assert indexed.maintain() == {}


def test_what_is_taken_in_does_not_hide_what_was_deleted(
    indexed: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.lance.recall.MIN_CHANGED", 10_000)
    change(indexed, 1, chunks(TOPICS, 5))
    change(indexed, 2, chunks(0, 0, deletes=tuple(ids(0, 5))), upkeep=False)
    there = standing_of(indexed._dataset(1))
    assert there.decision is not None
    # The checkpoint row may be among them.
    for changed in (there.decision.deleted(there.covered), there.decision.taken):
        assert 5 * PER_TOPIC <= changed <= 5 * PER_TOPIC + 2


def test_questions_of_the_syncing_process_are_asked_again(indexed: LanceStore) -> None:
    reader = reader_of(indexed)
    for question in topics(7, 1)[:30]:
        reader.search(Query(question, 3))
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    assert {*searching(indexed).kinds} == {"stored", "midpoints", "deleted", "recent"}
    assert searching(indexed).questions == 12 + 12 + 32 + 12


@pytest.mark.parametrize("seed", range(3))
def test_recall_is_kept_after_any_history(indexed: LanceStore, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, there = {0: topics(0, TOPICS)}, {*range(TOPICS)}
    gone: set[int] = set()
    for step in range(6):
        first = TOPICS * (step + 1)
        leave = sorted(rng.choice(sorted(there), rng.integers(0, 15), replace=False).tolist())
        come = int(rng.integers(0, 15))
        deletes = tuple(name for topic in leave for name in ids(topic, 1))
        batch = chunks(first, come, deletes=deletes)
        change(indexed, step + 1, batch, upkeep=bool(rng.integers(0, 2)))
        vectors[first] = topics(first, come) if come else np.empty((0, DIMENSION), np.float32)
        there = (there - {*leave}) | {*range(first, first + come)}
        gone |= {*leave}
    every = {
        t: made[(t - f) * PER_TOPIC]
        for f, made in vectors.items()
        for t in there | gone
        if 0 <= t - f < len(made) // PER_TOPIC
    }
    for asked in (there, gone):
        shares = recall(indexed, np.array([every[t] for t in sorted(asked)]))
        assert shares.mean() >= RECALL
        assert np.sort(shares)[: max(1, len(shares) // 10)].mean() >= 0.9


class TestDeletedVectors:
    """The file beside the index."""

    def test_it_holds_deleted_vectors_and_outlives_the_process(
        self, indexed: LanceStore, tmp_path: Path
    ) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        kept = self.read(tmp_path)
        assert len(kept) == KEPT // 2
        former = topics(0, TOPICS)[: GONE * PER_TOPIC]
        assert all(np.isclose(former, one, atol=1e-6).all(axis=1).any() for one in kept)

    def test_it_has_a_bound(self, indexed: LanceStore, tmp_path: Path) -> None:
        for n in range(4):
            gone = tuple(ids(n * 5, 5))
            change(indexed, n + 1, chunks(0, 0, deletes=gone))
        assert len(self.read(tmp_path)) == KEPT

    @pytest.mark.parametrize("content", [b"", b"{}\n", b"no json", b"\xff\xfe\n1"])
    def test_one_that_is_damaged_or_gone_is_an_empty_one(
        self, indexed: LanceStore, tmp_path: Path, content: bytes
    ) -> None:
        (tmp_path / "wines.deleted").write_bytes(content)
        assert len(self.read(tmp_path)) == 0
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        assert len(self.read(tmp_path)) == KEPT // 2

    def test_vectors_of_another_recipe_are_not_asked(
        self, indexed: LanceStore, tmp_path: Path
    ) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        head, _, body = (tmp_path / "wines.deleted").read_bytes().partition(b"\n")
        other = json.dumps({**json.loads(head), "fingerprint": "another"}).encode()
        (tmp_path / "wines.deleted").write_bytes(other + b"\n" + body)
        assert len(self.read(tmp_path)) == 0

    def read(self, folder: Path) -> np.ndarray:
        from lakewake.store.location import location_at

        sample = DeletedVectors(location_at(str(folder)), "wines")
        return sample.read(RECIPE.fingerprint, DIMENSION)


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
def test_a_promise_is_kept_by_the_mean_by_each_kind_and_by_the_worst_tenth(
    found: Probed, keeps: bool
) -> None:
    assert found.keeps(0.99) is keeps


def test_efforts_go_from_few_partitions_to_all() -> None:
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

        decision = decide(measure, 200, recall=0.99, may_train=may_train)
        self.measured = measured
        return decision

    def test_the_cheapest_that_keeps_the_promise_is_taken(self) -> None:
        fine = {e: probed(e) for e in efforts(200)}
        assert self.decided(fine) == (fine[FEW], fine[ALL])
        assert self.measured == [FEW, ALL]

    def test_more_partitions_are_searched_where_few_are_not_enough(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[2:]}
        assert self.decided(fine) == (fine[Effort(80, 10)], fine[ALL])

    def test_more_are_compared_where_all_partitions_are_not_enough(self) -> None:
        fine = {MOST: probed(MOST)}
        assert self.decided(fine) == (fine[MOST], fine[MOST])

    def test_a_sample_that_just_keeps_it_is_not_relied_on(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[1:]}
        assert self.decided({**fine, FEW: probed(FEW, 0.994)}) == (fine[Effort(40, 5)], fine[ALL])
        all_just = {e: probed(e, 0.994) for e in efforts(200)}
        assert self.decided(all_just) == (all_just[MOST], all_just[MOST])

    def test_searches_are_exact_where_nothing_keeps_it(self) -> None:
        assert self.decided({}) == (None, None)

    def test_partitions_are_trained_again_for_what_is_there_and_not_for_what_is_gone(self) -> None:
        fine = {e: probed(e) for e in efforts(200)[1:]}
        gone = {**fine, FEW: probed(FEW, 0.95, stored=1.0, deleted=0.9)}
        there = {**fine, FEW: probed(FEW, 0.95, stored=0.9, deleted=1.0)}
        assert self.decided(gone, may_train=True) is not None
        assert self.decided(there, may_train=True) is None
        assert self.decided(there) is not None
        assert self.decided({}, may_train=True) is None


class TestChoose:
    decision = Decision(probed(FEW), probed(ALL), "2026", 24, 0.99, covered=100_000)
    there = Situation(100_000, 200, 100_000, decision)

    @pytest.fixture(autouse=True)
    def large(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakewake.store.lance.recall.MIN_CHANGED", 500)

    def chosen(
        self, there: Situation, filtered: bool = False, recall: float = 0.99
    ) -> Effort | None:
        return choose(there, recall=recall, least=100_000, filtered=filtered)[0]

    def test_few_partitions_without_a_filter_and_all_with_one(self) -> None:
        assert self.chosen(self.there) == FEW
        assert self.chosen(self.there, filtered=True) == ALL

    def test_a_probe_is_due_by_what_was_deleted_and_by_what_changed(self) -> None:
        assert not self.there.is_due(0.99)
        assert self.there.is_due(0.98)
        assert not replace(self.there, covered=99_500).is_due(0.99)
        assert replace(self.there, covered=99_499).is_due(0.99)
        for taken, due in ((1_000, False), (1_001, True)):
            last = replace(self.decision, covered=100_000, taken=taken)
            assert replace(self.there, decision=last).is_due(0.99) is due
        assert replace(self.there, decision=None).is_due(0.99)

    def test_all_partitions_when_much_was_deleted_since(self) -> None:
        assert self.chosen(replace(self.there, covered=99_500)) == FEW
        assert self.chosen(replace(self.there, covered=99_499)) == ALL

    def test_exactly_below_the_bound_and_where_recall_is_1(self) -> None:
        assert self.chosen(replace(self.there, chunks=99_999)) is None
        assert self.chosen(self.there, recall=1.0) is None
        assert self.chosen(replace(self.there, partitions=0)) is None

    def test_exactly_where_the_probe_did_not_find_what_is_promised(self) -> None:
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
