"""Approximate searches of every store keep the promised recall, whatever was deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewake.model.chunks import Batch, index_schema
from lakewake.model.query import Query
from lakewake.model.recall import RECALL, Searching
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.where import Compare
from lakewake.store import Store, StoreReader
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.testing.samples import frontier

DIMENSION, TOPICS, PER_TOPIC = 48, 60, 100
CHUNKS = TOPICS * PER_TOPIC
#: Below this size an index is searched exactly; in the product it is 100,000.
LEAST = 3_000
RECIPE = Recipe(
    ModelIdentity("hashing", "test", DIMENSION), (TextField("text", "{text}"),), payload=("topic",)
)
SCHEMA = index_schema(RECIPE, pa.schema([("topic", pa.int32())]))


def topics(first: int, count: int) -> np.ndarray:
    """`PER_TOPIC` vectors for each topic, around the topic's own centre."""
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


GONE = TOPICS // 3


def change(store: Store, sync: int, batch: Batch, *, upkeep: bool = True) -> None:
    store.commit(batch, frontier(sync), frontier(sync + 1))
    if upkeep:
        store.maintain()


def reader_of(store: Store) -> StoreReader:
    reader = store.open()
    assert reader is not None
    return reader


def searching(store: Store) -> Searching:
    return reader_of(store).searching()


def shares(reader: StoreReader, questions: np.ndarray, where: Compare | None = None) -> np.ndarray:
    """The share of the ten nearest chunks that each query finds."""
    found = []
    for question in questions:
        near, exact = (
            {*reader.search(Query(question, 10, where, exact=e))["_id"].to_pylist()}
            for e in (False, True)
        )
        found.append(len(near & exact) / 10)
    return np.array(found)


def recall(store: Store, questions: np.ndarray, where: Compare | None = None) -> np.ndarray:
    return shares(reader_of(store), questions, where)


class RecallContract:
    """`indexed` is a store with all topics of `chunks(0, TOPICS)`, after upkeep.

    Attributes:
        once: the highest recall of queries about deleted topics before probes existed.
        asked: how many questions a probe asks about `GONE` deleted topics.
        passes: how many times upkeep runs at most until nothing is left to do.
        uncounted: how many chunks besides those of a commit may count as changed: the checkpoint
            row, and in some stores chunks that upkeep moved.
    """

    once = 0.9
    asked = KEPT
    passes = 1
    uncounted = 2

    def opened(self, folder: Path, **options: float) -> Store:
        """Another store of the same index."""
        raise NotImplementedError

    def as_once(self, store: Any) -> StoreReader:
        """A reader that searches as before probes existed."""
        raise NotImplementedError

    def decide(self, store: Any, text: str) -> None:
        """Replace the stored result of the last probe."""
        raise NotImplementedError

    def coverage(self, store: Any) -> Any:
        """The coverage of the index."""
        raise NotImplementedError

    def sample(self, store: Any) -> DeletedVectors:
        """The sample of deleted vectors that is kept."""
        raise NotImplementedError

    def test_a_new_index_is_probed(self, indexed: Store) -> None:
        how = searching(indexed)
        assert how.mode == "approximate"
        assert how.recall == RECALL <= (how.recall_mean or 0)
        assert (how.recall_worst_tenth or 0) >= 0.9
        assert how.questions == 24
        assert {*how.kinds} == {"stored", "midpoints"}
        assert how.probed_at[:2] == "20"
        assert indexed.maintain() == {}

    def test_queries_about_deleted_topics_find_the_nearest_remaining_chunks(
        self, indexed: Store
    ) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        asked = topics(0, TOPICS)[: GONE * PER_TOPIC : 20]
        found = recall(indexed, asked)
        assert found.mean() >= RECALL
        assert np.sort(found)[: len(found) // 10].mean() >= 0.9
        assert shares(self.as_once(indexed), asked).mean() < self.once
        assert searching(indexed).questions == 12 + 12 + self.asked

    def test_queries_about_deleted_topics_keep_recall_before_upkeep_runs(
        self, indexed: Store
    ) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))), upkeep=False)
        assert recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 20]).mean() >= RECALL
        assert "deleted since" in searching(indexed).why

    def test_topics_that_replaced_others_are_found(self, indexed: Store) -> None:
        change(indexed, 1, chunks(TOPICS, GONE, deletes=tuple(ids(0, GONE))))
        for asked in (topics(TOPICS, GONE), topics(0, TOPICS)):
            found = recall(indexed, asked[::40])
            assert found.mean() >= RECALL
            assert np.sort(found)[: len(found) // 10].mean() >= 0.9

    def test_a_filter_that_excludes_the_queried_topic_costs_no_recall(self, indexed: Store) -> None:
        others = Compare("topic", ">=", GONE)
        asked = topics(0, TOPICS)[: GONE * PER_TOPIC : 20]
        assert recall(indexed, asked, others).mean() >= RECALL
        assert shares(self.as_once(indexed), asked, others).mean() < self.once

    def test_a_reader_of_an_older_version_uses_the_decision_made_for_that_version(
        self, indexed: Store
    ) -> None:
        former = reader_of(indexed)
        before = former.searching()
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        assert former.searching() == before != searching(indexed)

    def test_an_index_below_its_size_bound_is_searched_exactly(self, indexed: Store) -> None:
        most = TOPICS - LEAST // PER_TOPIC
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, most))))
        assert "fewer than" not in searching(indexed).why
        gone = (f"c{most * PER_TOPIC}",)
        indexed.commit(chunks(0, 0, deletes=gone), frontier(2), frontier(3))
        # At once, and for as long as it stays small.
        for _ in range(2):
            how = searching(indexed)
            assert (how.mode, how.recall_mean) == ("exact", 1)
            assert "fewer than" in how.why
            assert "questions_probed" not in indexed.maintain()

    def test_a_changed_recall_setting_probes_again(self, indexed: Store, tmp_path: Path) -> None:
        lower = self.opened(tmp_path, recall=0.9)
        assert lower.maintain()["questions_probed"] == 24
        # A result that was good enough for a lower promise but not for this one is not used.
        assert searching(indexed).recall == RECALL
        assert searching(self.opened(tmp_path, recall=1.0)).mode == "exact"

    def test_an_index_that_was_never_probed_keeps_the_promised_recall(self, indexed: Store) -> None:
        self.decide(indexed, "")
        assert "not probed yet" in searching(indexed).why
        assert recall(indexed, topics(0, TOPICS)[::500]).mean() >= RECALL
        # The recent queries are among them.
        assert indexed.maintain()["questions_probed"] == 36
        assert searching(indexed).probed_at

    def test_an_unreadable_decision_is_ignored(self, indexed: Store) -> None:
        for text in ("", "no json", "[]", "{}", '{"plain": 1, "filtered": 2}', '{"decision": 1}'):
            self.decide(indexed, text)
            assert "not probed yet" in searching(indexed).why

    def test_few_changes_cause_no_probe_and_many_do(self, indexed: Store) -> None:
        for n in range(3):
            indexed.commit(chunks(0, 0, deletes=(f"c{n}",)), frontier(n + 1), frontier(n + 2))
            assert "questions_probed" not in indexed.maintain()
        indexed.commit(chunks(TOPICS, 1), frontier(4), frontier(5))
        assert "questions_probed" not in indexed.maintain()
        indexed.commit(chunks(TOPICS + 1, 2), frontier(5), frontier(6))
        assert indexed.maintain()["questions_probed"] >= 24
        left = [indexed.maintain() for _ in range(self.passes)]
        assert left[-1] == {}
        assert not any("questions_probed" in done for done in left)

    def test_added_chunks_do_not_hide_deleted_ones_from_the_probe(
        self, indexed: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakewake.store.recall.MIN_CHANGED", 10_000)
        change(indexed, 1, chunks(TOPICS, 5))
        change(indexed, 2, chunks(0, 0, deletes=tuple(ids(0, 5))), upkeep=False)
        there = self.coverage(indexed)
        for changed in (there.decision.deleted(there.covered), there.decision.taken):
            assert 5 * PER_TOPIC <= changed <= 5 * PER_TOPIC + self.uncounted

    def test_recent_queries_of_the_syncing_process_are_probed_too(self, indexed: Store) -> None:
        reader = reader_of(indexed)
        for question in topics(7, 1)[:30]:
            reader.search(Query(question, 3))
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        assert searching(indexed).questions == 12 + 12 + self.asked + 12

    @pytest.mark.parametrize("seed", range(3))
    def test_recall_is_kept_after_any_history(self, indexed: Store, seed: int) -> None:
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
            found = recall(indexed, np.array([every[t] for t in sorted(asked)]))
            assert found.mean() >= RECALL
            assert np.sort(found)[: max(1, len(found) // 10)].mean() >= 0.9

    def kept(self, store: Store) -> np.ndarray:
        return self.sample(store).read(RECIPE.fingerprint, DIMENSION)

    def test_some_deleted_vectors_are_kept_beside_the_index(self, indexed: Store) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        kept = self.kept(indexed)
        assert len(kept) == self.asked
        former = topics(0, TOPICS)[: GONE * PER_TOPIC]
        assert all(np.isclose(former, one, atol=1e-6).all(axis=1).any() for one in kept)
        file = self.sample(indexed)
        head, _, body = (file.location.read("wines.deleted") or b"").partition(b"\n")
        other = json.dumps({**json.loads(head), "fingerprint": "another"}).encode()
        file.location.replace("wines.deleted", other + b"\n" + body)
        assert len(self.kept(indexed)) == 0

    def test_the_number_of_kept_deleted_vectors_is_bounded(self, indexed: Store) -> None:
        for n in range(4):
            gone = tuple(ids(n * 5, 5))
            change(indexed, n + 1, chunks(0, 0, deletes=gone))
        assert len(self.kept(indexed)) == KEPT

    @pytest.mark.parametrize("content", [b"", b"{}\n", b"no json", b"\xff\xfe\n1"])
    def test_a_damaged_sample_of_deleted_vectors_counts_as_empty(
        self, indexed: Store, content: bytes
    ) -> None:
        self.sample(indexed).location.replace("wines.deleted", content)
        assert len(self.kept(indexed)) == 0
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
        assert len(self.kept(indexed)) == self.asked
