"""The recall contract for Qdrant: its real engine, with a graph that really loses recall."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from lakewake.model.recall import Effort
from lakewake.model.where import Compare
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.store.qdrant.fence import POINT
from lakewake.store.qdrant.location import CONNECTIONS
from lakewake.store.qdrant.reader import QdrantReader
from lakewake.store.qdrant.recall import Coverage, coverage_of, deleted_of, read_kept
from lakewake.store.qdrant.store import QdrantStore
from lakewake.testing.samples import frontier
from support.qdrant.edge_engine import EdgeClient, EdgeLocation
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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe after the same share of changes as in a large index."""
    monkeypatch.setattr("lakewake.store.recall.MIN_CHANGED", 100)


def location(folder: Path) -> EdgeLocation:
    return EdgeLocation(str(folder / "edge"), indexed=True, graph=True)


def opened(folder: Path, **options: float) -> QdrantStore:
    return QdrantStore(location(folder), "wines", "wines", ann_min_chunks=LEAST, **options)


def client(folder: Path) -> EdgeClient:
    connected: Any = CONNECTIONS.get(location(folder))[0]
    assert isinstance(connected, EdgeClient)
    return connected


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new index before its first upkeep, whose graph the engine has built."""
    folder = tmp_path_factory.mktemp("built")
    opened(folder).create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
    client(folder).optimize()
    CONNECTIONS.close(location(folder))
    return folder


@pytest.fixture
def fresh(built: Path, tmp_path: Path) -> Iterator[QdrantStore]:
    shutil.copytree(built / "edge", tmp_path / "edge")
    yield opened(tmp_path)
    CONNECTIONS.close(location(tmp_path))


@pytest.fixture
def indexed(fresh: QdrantStore) -> QdrantStore:
    fresh.maintain()
    return fresh


class AsOnce(QdrantReader):
    """Search with the server's default: as many candidates as the graph was built with."""

    def _effort(self, filtered: bool) -> Effort:
        return Effort(100, 1)


class TestQdrant(RecallContract):
    once = 0.98

    def opened(self, folder: Path, **options: float) -> QdrantStore:
        return opened(folder, **options)

    def as_once(self, store: QdrantStore) -> QdrantReader:
        reader = reader_of(store)
        assert isinstance(reader, QdrantReader)
        return AsOnce(reader.fence, reader.head)

    def decide(self, store: QdrantStore, text: str) -> None:
        head = store._read()
        assert store._fence.move(head, replace(head, searching=text))

    def coverage(self, store: QdrantStore) -> Coverage:
        return coverage_of(store._points, store._read(), store._asking)

    def sample(self, store: QdrantStore) -> DeletedVectors:
        return deleted_of(store._fence)


def test_a_search_considers_more_candidates_after_deletes(indexed: QdrantStore) -> None:
    before = searching(indexed)
    assert (before.probes, before.partitions) == (128, 0)
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))), upkeep=False)
    assert searching(indexed).mode == "exact"
    indexed.maintain()
    how = searching(indexed)
    assert how.mode == "exact" or how.probes > 128


def test_searches_are_exact_if_no_number_of_candidates_is_enough(
    indexed: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.qdrant.recall.EFFORTS", (Effort(10, 1),))
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))))
    how = searching(indexed)
    assert (how.mode, how.questions) == ("exact", 12 + 12 + KEPT)
    assert "did not reach" in how.why
    assert recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 40]).mean() == 1


def test_searches_with_a_filter_are_exact(indexed: QdrantStore) -> None:
    others = Compare("topic", ">=", GONE)
    assert recall(indexed, topics(0, TOPICS)[: GONE * PER_TOPIC : 40], others).min() == 1


def test_a_graph_that_is_still_being_built_is_not_probed(
    fresh: QdrantStore, tmp_path: Path
) -> None:
    client(tmp_path).status = models.CollectionStatus.YELLOW
    assert "questions_probed" not in fresh.maintain()
    assert "not probed yet" in searching(fresh).why
    client(tmp_path).status = models.CollectionStatus.GREEN
    assert fresh.maintain()["questions_probed"] == 24


def test_a_graph_built_since_the_probe_is_probed_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.create(RECIPE, chunks(0, 40), frontier(1), after=0)
    store.maintain()
    assert searching(store).mode == "approximate"
    client(tmp_path).optimize()
    again = opened(tmp_path)
    assert "not probed yet" in searching(again).why
    assert again.maintain()["questions_probed"] == 24
    CONNECTIONS.close(location(tmp_path))


def test_a_probe_does_not_disturb_a_concurrent_writer(
    indexed: QdrantStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(indexed, 1, chunks(0, 0, deletes=tuple(ids(0, GONE))), upkeep=False)
    other, real = opened(tmp_path), deleted_of

    def overtaken(fence: Any) -> DeletedVectors:
        monkeypatch.setattr("lakewake.store.qdrant.recall.deleted_of", real)
        other.commit(chunks(TOPICS, 1), frontier(2), frontier(3))
        return real(fence)

    kept = read_kept(indexed._read().searching)
    monkeypatch.setattr("lakewake.store.qdrant.recall.deleted_of", overtaken)
    monkeypatch.setattr("lakewake.store.qdrant.recall.sample_deleted", lambda *_: 0)
    indexed.maintain()
    assert reader_of(indexed).frontier() == frontier(3)
    assert read_kept(indexed._read().searching) == kept
    assert indexed.maintain()["questions_probed"]


def test_a_rebuilt_index_gets_its_own_probe(indexed: QdrantStore) -> None:
    indexed.create(RECIPE, chunks(TOPICS, 40), frontier(2), after=1)
    assert "not probed yet" in searching(indexed).why


def test_a_pickled_reader_searches_with_the_same_effort(indexed: QdrantStore) -> None:
    reader = reader_of(indexed)
    assert isinstance(reader, QdrantReader)
    sent = pickle.loads(pickle.dumps(QdrantReader(reader.fence, reader.head, reader.asking)))
    assert sent == reader
    assert sent.searching() == reader.searching()


def test_an_index_with_a_frontier_of_an_earlier_version_is_probed(indexed: QdrantStore) -> None:
    head = indexed._read()
    before = {name: v for name, v in head.payload().items() if name != "searching"}
    indexed._points.overwrite(
        indexed._fence.collection,
        before,
        models.Filter(must=[models.HasIdCondition(has_id=[POINT])]),
    )
    assert indexed._read() == replace(head, searching="")
    assert recall(indexed, topics(0, TOPICS)[::1000]).mean() == 1
    assert indexed.maintain()["questions_probed"] == 24 + 12
