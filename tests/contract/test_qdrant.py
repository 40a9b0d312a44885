"""The contract for the Qdrant store, on three engines, and what it promises beyond it."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from qdrant_client.models import FieldCondition, Filter, MatchAny, MatchValue

from lakewake.errors import ConfigError, EmbedError, StaleFrontier, StoreError
from lakewake.model.chunks import Batch
from lakewake.model.query import Query, Question, Words
from lakewake.model.rows import RowId
from lakewake.model.where import Compare, IsNull, Like
from lakewake.search.run import search
from lakewake.spark.executors import closure, needed_packages
from lakewake.store import Removed, Store
from lakewake.store.qdrant import upkeep
from lakewake.store.qdrant.location import CONNECTIONS, QdrantFolder, QdrantLocation, server
from lakewake.store.qdrant.points import Points
from lakewake.store.qdrant.store import QdrantStore
from lakewake.store.registry import open_store
from lakewake.testing.answers import ByText
from lakewake.testing.joining import asked
from lakewake.testing.samples import (
    FULL,
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
    staged,
    vector_of,
)
from lakewake.testing.stores import StoreContract
from support.qdrant.edge_engine import EdgeLocation
from support.qdrant.locations import InMemory
from support.qdrant.rest_server import RestServer

BEFORE = Compare("bottled", "<", datetime.date(2030, 1, 1))


def opened(location: QdrantLocation) -> Iterator[QdrantStore]:
    yield QdrantStore(location, "wines", "wines")
    CONNECTIONS.close(location)


class QdrantContract(StoreContract):
    """What every store promises, except that Qdrant keeps no earlier versions."""

    def test_earlier_versions_are_read_as_of_their_instant(self, built: Store) -> None:
        with pytest.raises(ConfigError, match="keeps no earlier versions") as refused:
            built.as_of("20250101000001")
        assert "without as_of" in refused.value.hint

    test_an_instant_before_all_versions_is_refused_with_the_range = None
    test_no_version_is_read_as_of_an_instant_without_an_index = None

    @pytest.mark.parametrize("where", [Compare("country", "=", "Italy"), BEFORE, None])
    def test_a_date_after_9999_is_stored_and_disturbs_no_filter(
        self, store: Store, where: Any
    ) -> None:
        rows = [chunk(key, f"plum {key}", country="Italy") for key in ("soon", "late")]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        days, moments = [18_000, 3_000_000], [0, 300_000_000_000 * 10**6]
        for name, counts, whole in (
            ("bottled", days, pa.int32()),
            ("seen", moments, pa.int64()),
        ):
            field = SCHEMA.field(name)
            column = pa.array(counts, whole).cast(field.type)
            table = table.set_column(SCHEMA.get_field_index(name), field, column)
        store.create(recipe(), Batch(SCHEMA, table.to_reader), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        wanted = ["soon"] if where is BEFORE else ["late", "soon"]
        assert sorted(keys(reader.search(query("plum", 9, where=where)))) == wanted
        assert sorted(keys(reader.keyword(Words("plum", 9, where)))) == wanted
        held = [b["bottled"].cast(pa.int32()).to_pylist() for b in reader.scan(["bottled"])]
        assert sorted(n for some in held for n in some) == days


class TestQdrantInMemory(QdrantContract):
    many = 600

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        yield from opened(InMemory())


class TestQdrantEdge(QdrantContract):
    """The real engine."""

    many = 3_000

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        yield from opened(EdgeLocation(str(tmp_path / "edge")))


class TestQdrantOverHttp(QdrantContract):
    many = 300

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        served = RestServer()
        yield from opened(served.location())
        served.close()


@pytest.mark.parametrize("exact", [True, False])
def test_many_questions_are_sent_to_a_server_in_a_few_requests(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    many = Points.nearest_many

    def counted(points: Points, collection: str, requests: Sequence[Any]) -> list[list[Any]]:
        sent.append(len(requests))
        return many(points, collection, requests)

    served = RestServer()
    for store in opened(served.location()):
        rows = [chunk(str(n), f"text {n}", points=n) for n in range(60)]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        embedder = ByText(recipe().model, vector_of)
        shared = Question("wines", k=3, exact=exact, where="points < 50")
        texts = [f"question {n}" for n in range(20)]
        expected = [search(reader, embedder, replace(shared, text=text)).hits for text in texts]
        monkeypatch.setattr(Points, "nearest_many", counted)
        monkeypatch.setattr(Points, "nearest", None)
        found = asked(reader, texts, shared, partial(ByText, recipe().model, vector_of))
        monkeypatch.undo()
    served.close()
    assert [(row["n"], row["_key"]) for row in found] == [
        (n, hit.key) for n, hits in enumerate(expected) for hit in hits
    ]
    assert sent == [16, 4]


def test_the_real_engine_finds_every_row_by_its_payload_indexes(tmp_path: Path) -> None:
    location = EdgeLocation(str(tmp_path), indexed=True)
    store = QdrantStore(location, "wines", "wines")
    rows = [chunk(str(n), str(n), **{**FULL, "points": n, "country": f"c{n}"}) for n in range(20)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    changed = chunk("3", "changed", **{**FULL, "points": 30, "country": "c3"})
    store.commit(batch(changed, deletes=(rows[4]["_id"],)), frontier(1), frontier(2))
    reader = store.open()
    assert contents(reader) == as_stored(*rows[:3], changed, *rows[5:])
    assert set(reader.existing([RowId("p", "3"), RowId("p", "4")])) == {RowId("p", "3")}
    for where, found in [
        (Compare("points", ">=", 18), {"18", "19", "3"}),
        (Compare("country", "=", "c3"), {"3"}),
        (Compare("tax", "=", Decimal("1.50")), {str(n) for n in range(20) if n != 4}),
        (Compare("bottled", "<", datetime.date(2020, 2, 29)), set()),
        (Compare("seen", "=", FULL["seen"]), {str(n) for n in range(20) if n != 4}),
        (IsNull("country"), set()),
    ]:
        assert set(keys(reader.search(query("7", 20, where=where)))) == found
    CONNECTIONS.close(location)


@pytest.fixture
def location() -> Iterator[InMemory]:
    location = InMemory()
    yield location
    CONNECTIONS.close(location)


@pytest.fixture
def points(location: InMemory) -> Points:
    return Points(location)


@pytest.fixture
def store(location: InMemory) -> QdrantStore:
    return QdrantStore(location, "wines", "wines")


@pytest.fixture
def built(store: QdrantStore) -> QdrantStore:
    rows = [chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    return store


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let upkeep assume that no reader of an earlier version is left."""
    monkeypatch.setattr(upkeep, "KEEP_FOR", -1.0)


def generations(points: Points) -> list[str]:
    return sorted(n for n in points.names() if upkeep.generation_number("wines", n))


def held(points: Points) -> int:
    (collection,) = generations(points)
    return points.count(collection, Filter())


def test_an_index_on_disk_can_be_opened_again(tmp_path: Path) -> None:
    location = QdrantFolder(str(tmp_path / "index"))
    store = QdrantStore(location, "wines", "wines")
    store.create(recipe(), batch(chunk("a"), chunk("b")), frontier(1), after=0)
    store.commit(batch(chunk("c"), deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
    CONNECTIONS.close(location)
    again = QdrantStore(location, "wines", "wines")
    assert contents(again.open()) == as_stored(chunk("b"), chunk("c"))
    assert again.open().frontier() == frontier(2)
    CONNECTIONS.close(location)


def test_a_folder_open_in_another_client_is_a_clear_error(tmp_path: Path) -> None:
    other = QdrantFolder(str(tmp_path)).connect()
    try:
        with pytest.raises(StoreError, match="in use by another process") as error:
            QdrantStore(QdrantFolder(str(tmp_path)), "wines", "wines").open()
        assert "qdrant://" in error.value.hint
    finally:
        other.close()


def test_the_plain_name_of_the_collection_is_an_alias_of_the_active_generation(
    built: QdrantStore, points: Points
) -> None:
    assert [points.alias("wines")] == generations(points)
    built.create(recipe(), batch(chunk("z")), frontier(2), after=1)
    assert points.alias("wines") == generations(points)[1]


def test_a_foreign_collection_is_left_alone(store: QdrantStore, points: Points) -> None:
    points.create("wines", 4, {})
    with pytest.raises(StoreError, match="not an index of Lakewake"):
        store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert points.names() == ["wines"]


def test_a_collection_of_another_index_is_refused(built: QdrantStore, location: InMemory) -> None:
    other = QdrantStore(location, "beers", "wines")
    create = lambda: other.create(recipe(), batch(), frontier(1), after=0)  # noqa: E731
    for call in (other.open, other.generation, create, other.maintain):
        with pytest.raises(StoreError, match="belongs to index 'wines'"):
            call()
    assert len(contents(built.open())) == 3


def test_a_changed_chunk_is_a_new_point_and_the_old_one_stays_for_its_readers(
    built: QdrantStore, points: Points
) -> None:
    before = built.open()
    built.commit(batch(chunk("a", "orange")), frontier(1), frontier(2))
    built.maintain()
    assert held(points) == 4
    assert contents(before)[chunk("a")["_id"]]["_text"] == "red"
    assert contents(built.open())[chunk("a")["_id"]]["_text"] == "orange"


def test_points_that_no_reader_sees_are_removed(
    built: QdrantStore, points: Points, at_once: None
) -> None:
    built.commit(
        batch(chunk("a", "orange"), deletes=(chunk("b")["_id"],)), frontier(1), frontier(2)
    )
    before = contents(built.open())
    assert built.maintain() == {"points_abandoned": 1, "points_removed": 2}
    assert held(points) == 2
    assert contents(built.open()) == before
    assert built.maintain() == {}


def test_a_reader_whose_points_may_be_gone_raises_instead_of_returning_half(
    built: QdrantStore, at_once: None
) -> None:
    old = built.open()
    built.commit(batch(deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
    built.maintain()
    for read in (
        lambda: contents(old),
        lambda: old.search(query("red")),
        lambda: old.existing([RowId("p", "a")]),
        lambda: old.counts(),
        lambda: list(old.sample(2, ["_key"])),
    ):
        with pytest.raises(StoreError, match="no longer kept"):
            read()


def test_a_pinned_version_outlives_upkeep(
    built: QdrantStore, points: Points, at_once: None
) -> None:
    old = built.open()
    with old.pinned():
        built.commit(batch(deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
        assert "points_removed" not in built.maintain()
        assert len(contents(old)) == 3
    assert built.maintain() == {"points_removed": 1}


def test_the_pin_of_a_killed_reader_expires_after_a_day(
    built: QdrantStore, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with built.open().pinned():
        built.commit(batch(deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
        monkeypatch.setattr("lakewake.store.qdrant.fence.PINNED_FOR", -1.0)
        assert built.maintain()["points_removed"] == 1


def test_a_failed_batch_leaves_no_point(built: QdrantStore, points: Points) -> None:
    def failing() -> pa.RecordBatchReader:
        def rows() -> Any:
            yield from batch(*(chunk(str(n)) for n in range(300))).rows()
            raise ConfigError("the provider failed")

        return pa.RecordBatchReader.from_batches(SCHEMA, rows())

    with pytest.raises(ConfigError):
        built.commit(Batch(SCHEMA, failing), frontier(1), frontier(2))
    assert held(points) == 3
    with pytest.raises(ConfigError):
        built.create(recipe(), Batch(SCHEMA, failing), frontier(2), after=1)
    assert held(points) == 3


def test_upkeep_removes_older_generations_and_abandoned_builds(
    built: QdrantStore, points: Points
) -> None:
    with built.staging(after=1) as staging:
        staged(staging, "never used")
    built.create(recipe("dot"), batch(chunk("z")), frontier(2), after=1)
    assert len(generations(points)) == 3
    assert built.maintain() == {"generations_removed": 2}
    assert contents(built.open()) == as_stored(chunk("z"))


def test_upkeep_leaves_a_running_build_alone(built: QdrantStore, points: Points) -> None:
    with built.staging(after=1) as staging:
        written = [staged(staging, "z")]
        assert built.maintain() == {}
        whole = staging.batch(SCHEMA, written, Removed())
        built.create(recipe(), whole, frontier(2), after=1)
    assert contents(built.open()) == as_stored(chunk("z"))


def build_staged(store: QdrantStore, after: int, error: BaseException | None = None) -> None:
    """A build with staged rows, which fails at the end if `error` is given."""
    with store.staging(after=after) as staging:
        whole = staging.batch(SCHEMA, [staged(staging, "z")], Removed())
        store.create(recipe(), whole, frontier(2), after=after)
        if error:
            raise error


def stage_and_fail(store: QdrantStore, points: Points) -> None:
    """A build whose embedder fails after some of its rows were staged."""
    with store.staging(after=1) as staging:
        staged(staging, "z")
        assert len(generations(points)) == 2
        raise EmbedError("the provider is gone")


def test_a_build_that_fails_while_staging_leaves_no_collection(
    built: QdrantStore, points: Points
) -> None:
    for _ in range(2):
        with pytest.raises(EmbedError):
            stage_and_fail(built, points)
    assert held(points) == 3
    assert len(contents(built.open())) == 3


def test_a_staged_build_that_is_refused_leaves_no_collection(
    built: QdrantStore, points: Points
) -> None:
    with pytest.raises(StaleFrontier):
        build_staged(built, after=2)
    assert held(points) == 3


def test_an_active_staged_build_stays_if_a_later_step_fails(built: QdrantStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_staged(built, after=1, error=KeyboardInterrupt())
    assert contents(built.open()) == as_stored(chunk("z"))


def test_a_staged_build_that_may_be_active_stays(
    built: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite = Points.overwrite

    def cut_off(self: Points, *args: Any) -> None:
        overwrite(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(Points, "overwrite", cut_off)
    with pytest.raises(KeyboardInterrupt):
        build_staged(built, after=1)
    assert contents(built.open()) == as_stored(chunk("z"))


def test_upkeep_restores_a_lost_alias(built: QdrantStore, points: Points) -> None:
    points.create("other", 4, {})
    points.set_alias("wines", "other")
    assert built.maintain() == {"alias_set": 1}
    assert [points.alias("wines")] == generations(points)


def test_upkeep_removes_old_pages_that_no_frontier_names(
    built: QdrantStore, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pages() -> int:
        where = Filter(must=[FieldCondition(key="kind", match=MatchValue(value="page"))])
        return points.count("wines.frontier", where)

    many = replace(frontier(2), duplicates=named(5_000))
    built.commit(batch(), frontier(1), many)
    more = replace(frontier(3), duplicates=named(5_001))
    built.commit(batch(), many, more)
    built.maintain()
    assert pages() == len(many.pages | more.pages) == len(more.pages) + 1
    monkeypatch.setattr("lakewake.store.qdrant.fence.PAGES_FOR", -1.0)
    assert built.maintain()["pages_removed"] == 1
    assert pages() == len(more.pages)
    reader = QdrantStore(built._points.location, "wines", "wines").open()
    assert reader is not None
    assert reader.frontier() == more


def test_upkeep_keeps_an_old_page_that_a_frontier_names_again(
    built: QdrantStore, points: Points
) -> None:
    many = replace(frontier(2), duplicates=named(5_000))
    built.commit(batch(), frontier(1), many)
    built.commit(batch(), many, frontier(3))
    old = Filter(must=[FieldCondition(key="kind", match=MatchValue(value="page"))])
    points.set("wines.frontier", {"at": 0.0}, old)
    again = replace(frontier(4), duplicates=named(5_000))
    built._fence.keep_pages(again.new_pages(()))
    built.maintain()
    built.commit(batch(), frontier(3), again)
    assert QdrantStore(built._points.location, "wines", "wines").open().frontier() == again


def test_points_with_long_texts_are_read_a_few_at_a_time(
    built: QdrantStore, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"k{n}" for n in range(9)]
    built.commit(batch(*(chunk(key, "long " * 100) for key in keys)), frontier(1), frontier(2))
    monkeypatch.setattr("lakewake.store.qdrant.points.PAGE", 4)
    monkeypatch.setattr("lakewake.store.qdrant.points.PAGE_BYTES", 1_000)
    # Ids are random, so that the short texts of `built` would come at any point in between.
    long = Filter(must=[FieldCondition(key="_key", match=MatchAny(any=keys))])
    pages = list(points.pages(generations(points)[0], long, ["_text"]))
    assert [len(page) for page in pages] == [4, 2, 2, 1]


def test_staged_writes_are_stale_once_the_index_has_moved_on(built: QdrantStore) -> None:
    with built.staging() as staging:
        written = [staged(staging, "late")]
    built.commit(batch(chunk("d")), frontier(1), frontier(2))
    late = staging.batch(SCHEMA, written, Removed())
    with pytest.raises(StaleFrontier):
        built.commit(late, frontier(2), frontier(3))


def test_a_staged_write_with_missing_points_is_not_committed(
    built: QdrantStore, points: Points
) -> None:
    with built.staging() as staging:
        write = json.loads(staged(staging, "d"))
        whole = staging.batch(SCHEMA, [json.dumps({**write, "points": 2}).encode()], Removed())
        with pytest.raises(StoreError, match="accepted 2 points"):
            built.commit(whole, frontier(1), frontier(2))
    assert built.open().frontier() == frontier(1)


@pytest.mark.parametrize("damage", [{"format": 2}, {"version": "x"}, {"schema": "?"}])
def test_a_damaged_frontier_is_an_error_and_a_rebuild_replaces_it(
    built: QdrantStore, points: Points, damage: dict[str, Any]
) -> None:
    points.set("wines.frontier", damage, Filter())
    with pytest.raises(StoreError, match="has no readable frontier") as error:
        built.open()
    assert "--rebuild" in error.value.hint
    assert built.generation() == 1
    built.create(recipe(), batch(chunk("z")), frontier(5), after=1)
    assert contents(built.open()) == as_stored(chunk("z"))
    assert built.maintain() == {"generations_removed": 1}


def test_a_deleted_collection_is_an_error_and_can_be_built_again(
    built: QdrantStore, points: Points
) -> None:
    reader = built.open()
    points.drop(generations(points)[0])
    fresh = QdrantStore(points.location, "wines", "wines")
    with pytest.raises(StoreError, match="is gone") as error:
        fresh.open()
    assert "--rebuild" in error.value.hint
    with pytest.raises(StoreError):
        reader.search(query("red"))
    with pytest.raises(StoreError):
        built.commit(batch(), frontier(1), frontier(2))
    fresh.create(recipe(), batch(chunk("z")), frontier(5), after=fresh.generation())
    assert contents(fresh.open()) == as_stored(chunk("z"))


def test_a_deleted_frontier_leaves_no_index_and_can_be_built_again(
    built: QdrantStore, points: Points
) -> None:
    points.drop("wines.frontier")
    assert built.open() is None
    built.create(recipe(), batch(chunk("z")), frontier(5), after=0)
    assert contents(built.open()) == as_stored(chunk("z"))
    assert built.maintain() == {"generations_removed": 1}


def test_an_index_is_opened_again_only_if_it_has_moved(built: QdrantStore) -> None:
    first = built.open()
    assert built.open() is first
    built.commit(batch(chunk("d")), frontier(1), frontier(2))
    assert built.open().frontier() == frontier(2)


def test_a_large_index_is_read_in_ranges_that_do_not_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakewake.store.qdrant.reader.SCAN_PARTS_FROM", 10)
    served = RestServer()
    store = QdrantStore(served.location(), "wines", "wines")
    rows = [chunk(str(n), str(n)) for n in range(60)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    scan = pickle.loads(pickle.dumps(store.open().scan_parts(["_key"])))
    parts = [[k for b in part for k in b["_key"].to_pylist()] for part in scan.parts]
    assert len(parts) == 16
    assert sum(map(bool, parts)) > 8
    assert sorted(k for part in parts for k in part) == sorted(str(n) for n in range(60))
    CONNECTIONS.close(served.location())
    served.close()


def test_vectors_of_any_length_are_read_back_unchanged(store: QdrantStore) -> None:
    unit = np.zeros(8, np.float32)
    unit[3] = 1
    vectors = {
        "unit": unit.tolist(),
        "long": (unit * 1e30).tolist(),
        "short": (unit * 1e-30).tolist(),
        "none": [0.0] * 8,
    }
    rows = [chunk(name, name, _vector=vector) for name, vector in vectors.items()]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    assert {c["_key"]: c["_vector"] for c in contents(store.open()).values()} == {
        name: np.array(vector, np.float32).tolist() for name, vector in vectors.items()
    }
    found = store.open().search(Query(unit, 4))
    assert set(keys(found)) == {"unit", "long", "short"}


def test_a_zero_query_vector_finds_nothing(built: QdrantStore) -> None:
    assert built.open().search(Query(np.zeros(8, np.float32), 3)).num_rows == 0


def test_a_filter_that_qdrant_cannot_evaluate_still_finds_k_rows(store: QdrantStore) -> None:
    rows = [chunk(str(n), str(n), country="odd" if n % 10 else "even") for n in range(60)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    found = store.open().search(query("7", 6, where=Like("country", "e%n")))
    assert set(keys(found)) == {"0", "10", "20", "30", "40", "50"}


@pytest.mark.parametrize(
    ("url", "address", "collection"),
    [
        ("qdrant://host:6333/wines", "http://host:6333", "wines"),
        ("qdrant://host", "http://host:6333", "the-index"),
        ("qdrant://host:7000/", "http://host:7000", "the-index"),
        ("qdrants://host:6333/wines", "https://host:6333", "wines"),
        ("qdrant+https://host/a.b", "https://host:6333", "a.b"),
        ("qdrant://[::1]:6333/w", "http://[::1]:6333", "w"),
    ],
)
def test_an_address_names_the_server_and_the_collection(
    url: str, address: str, collection: str
) -> None:
    scheme, _, location = url.partition("://")
    found, name = server(scheme, location, "the-index")
    assert (found.url, name) == (address, collection)


@pytest.mark.parametrize(
    "url",
    [
        "qdrant://",
        "qdrant:///wines",
        "qdrant://host:0x/wines",
        "qdrant://host/a/b",
        "qdrant://host/wi nes",
        "qdrant://host/wines?api_key=x",
        "qdrants://user:s3cr3t@host/wines",
    ],
)
def test_an_address_with_missing_or_extra_parts_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(url, "wines")
    assert error.value.hint
    assert "s3cr3t" not in str(error.value)


def test_the_registry_opens_a_folder(tmp_path: Path) -> None:
    store = open_store(f"qdrant+local://{tmp_path}/index", "wines")
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert (tmp_path / "index" / "qdrant" / "meta.json").exists()
    CONNECTIONS.close(QdrantFolder(f"{tmp_path}/index/qdrant"))


def test_without_the_client_the_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['qdrant_client'] = None\n"
        "from lakewake.store.registry import open_store\n"
        "open_store('qdrant://host:6333/wines', 'wines')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "SetupError: the Qdrant client is not installed" in done.stderr
    assert "pip install 'lakewake[qdrant]'" in done.stderr


def test_executors_are_sent_the_client_and_its_dependencies() -> None:
    assert {"qdrant-client", "pydantic", "httpx"} <= closure(needed_packages())


def test_a_recall_of_1_makes_every_search_exact(tmp_path: Path) -> None:
    location = EdgeLocation(str(tmp_path), indexed=True)
    exact, near = (QdrantStore(location, "wines", "wines", recall=r) for r in (1.0, 0.99))
    near.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert near.open().searching().why == "it has fewer than 100,000 chunks"
    assert exact.open().searching().mode == "exact"
    assert exact.open().searching().why == "its recall is 1"
    assert keys(exact.open().search(query("red"))) == ["a"]
    CONNECTIONS.close(location)


def test_a_qdrant_without_indexes_reports_exact_search() -> None:
    location = InMemory()
    store = QdrantStore(location, "wines", "wines")
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert store.open().searching().mode == "exact"
    CONNECTIONS.close(location)
