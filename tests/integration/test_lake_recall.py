"""Searches of an index in the lake keep the promised recall, on real Spark and Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakewake.model.recall import RECALL, Effort
from lakewake.store.deleted import DeletedVectors
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import Coverage
from lakewake.store.hudi.store import HudiStore
from lakewake.store.hudi.writer import SAMPLED_SHARE
from lakewake.testing.samples import frontier
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
    searching,
    topics,
)

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
FEW = Effort(1, 1)


def contents(store: HudiStore) -> dict[str, str]:
    batches = reader_of(store).scan(["_id", "_text"])
    return {
        id: text for batch in batches for id, text in zip(*batch.to_pydict().values(), strict=True)
    }


class TestHudi(RecallContract):
    once = 0.97
    asked = int(GONE * PER_TOPIC * SAMPLED_SHARE)
    # A cell that was split may have taken too many chunks from its neighbours.
    passes = 5
    uncounted = 20 * PER_TOPIC

    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        self.spark = spark

    @pytest.fixture
    def indexed(self, tmp_path: Path, spark: SparkSession) -> HudiStore:
        store = self.opened(tmp_path)
        store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
        store.maintain()
        return store

    def opened(self, folder: Path, **options: float) -> HudiStore:
        given: dict[str, Any] = {"ann_min_chunks": LEAST, "cell_chunks": PER_TOPIC, **options}
        return HudiStore(str(folder / "index"), "wines", lambda: self.spark, **given)

    def as_once(self, store: HudiStore) -> HudiReader:
        """Search one cell."""
        reader = store.open()
        assert reader is not None
        once = HudiReader(reader.table, 1)
        once._effort = lambda filtered: FEW  # type: ignore[method-assign]
        return once

    def decide(self, store: HudiStore, text: str) -> None:
        store._location.replace("searching-g1.json", text.encode())
        store._cached = None

    def coverage(self, store: HudiStore) -> Coverage:
        reader = store.open()
        assert reader is not None
        return reader.coverage

    def sample(self, store: HudiStore) -> DeletedVectors:
        return store._deleted

    def test_a_search_of_a_new_index_reads_few_cells(self, indexed: HudiStore) -> None:
        how = searching(indexed)
        assert TOPICS <= how.partitions < 2 * TOPICS
        assert 0 < how.probes <= TOPICS / 4

    def test_a_cell_that_grows_is_split_and_recall_stays(self, indexed: HudiStore) -> None:
        before = searching(indexed).partitions
        indexed.commit(chunks(TOPICS, 4 * GONE), frontier(1), frontier(2))
        held = contents(indexed)
        for _ in range(5):
            indexed.maintain()
        assert searching(indexed).partitions > before + 10
        assert contents(indexed) == held
        assert recall(indexed, topics(TOPICS, 4 * GONE)[::200]).mean() >= RECALL
        assert recall(indexed, topics(0, TOPICS)[::200]).mean() >= RECALL

    def test_cells_that_emptied_are_dissolved(self, indexed: HudiStore) -> None:
        change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, TOPICS // 2))))
        for _ in range(4):
            indexed.maintain()
        assert searching(indexed).partitions < TOPICS
        assert recall(indexed, topics(0, TOPICS)[TOPICS // 2 * PER_TOPIC :: 100]).mean() >= RECALL
