"""What every store promises, as tests. A store's own suite subclasses `StoreContract`."""

from __future__ import annotations

import datetime
import pickle
import random
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewake.errors import (
    ConfigError,
    EmbedError,
    FilterError,
    IndexMissing,
    StaleFrontier,
    StoreError,
)
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.query import Query, Words
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.model.where import And, Compare, In, IsNull
from lakewake.store import Removed, Staging, Store, StoreReader
from support.answers import Answering, ByText, built_of

DIMENSION = 8
TABLE = TableIdentity("wines", "wine_id", "country", "COPY_ON_WRITE")
PAYLOAD = pa.schema(
    [
        ("country", pa.string()),
        ("points", pa.int32()),
        ("stock", pa.int64()),
        ("price", pa.float64()),
        ("weight", pa.float32()),
        ("organic", pa.bool_()),
        ("tax", pa.decimal128(10, 2)),
        ("bottled", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
FULL = {
    "country": "Italy",
    "points": 90,
    "stock": 2**40,
    "price": 12.5,
    "weight": 0.75,
    "organic": True,
    "tax": Decimal("1.50"),
    "bottled": datetime.date(2020, 2, 29),
    "seen": datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
    "tags": ["red", None, "o'ak"],
}
STRANGE = ("o'brien", 'say "hi"', "two\nlines", "nul\x00byte", "𝄞 🍷", "back\\slash", "", "%_;--")


def recipe(metric: str = "cosine", dimension: int = DIMENSION) -> Recipe:
    model = ModelIdentity("hashing", "test", dimension)
    return Recipe(
        model, (TextField("text", "{text}"),), payload=tuple(PAYLOAD.names), metric=metric
    )


SCHEMA = index_schema(recipe(), PAYLOAD)


def frontier(sync: int, writer: str = "") -> Frontier:
    return Frontier(TABLE, {f"2025010100000{sync}{writer}": "1"}, sync=sync)


def vector_of(text: str, dimension: int = DIMENSION) -> list[float]:
    seed = int(text_hash(text)[:8], 16)
    return np.random.default_rng(seed).normal(size=dimension).astype(np.float32).tolist()


def chunk(key: str, text: str = "red", n: int = 0, **values: Any) -> dict[str, Any]:
    """A chunk as an index stores it; `values` sets payload columns or ours by name."""
    row = RowId(values.pop("_partition", "p"), key)
    return {
        "_id": chunk_id(row, "text", n),
        "_key": row.key,
        "_partition": row.partition,
        "_field": "text",
        "_chunk": n,
        "_hash": text_hash(text),
        "_source_hash": f"s-{key}",
        "_payload_hash": f"p-{key}",
        "_instant": "20250101000000000",
        "_text": text,
        "_vector": vector_of(text),
        **values,
    }


def batch(
    *rows: dict[str, Any], deletes: tuple[str, ...] = (), schema: pa.Schema = SCHEMA
) -> Batch:
    table = pa.Table.from_pylist(list(rows), schema=schema)
    return Batch(schema, lambda: table.to_reader(max_chunksize=100), deletes)


def contents(reader: StoreReader | None) -> dict[str, dict[str, Any]]:
    """Every chunk by id, with all its columns."""
    assert reader is not None
    rows = [r for b in reader.scan(reader.schema().names) for r in b.to_pylist()]
    by_id = {r["_id"]: r for r in rows}
    assert len(by_id) == len(rows), "an id is there twice"
    return by_id


def fetched(
    reader: StoreReader, rows: Collection[RowId], columns: Sequence[str]
) -> list[dict[str, Any]]:
    return [found for some in reader.chunks(rows, columns) for found in some.to_pylist()]


def opened(store: Store) -> StoreReader:
    reader = store.open()
    assert reader is not None
    return reader


def named(count: int) -> frozenset[RowId]:
    """Rows that a frontier names; more than its text holds."""
    return frozenset(RowId("p", f"twice {n}") for n in range(count))


def staged(staging: Staging, *rows: dict[str, Any] | str) -> bytes:
    """A staged write of a task; a key alone stands for its chunk."""
    chunks = [chunk(row) if isinstance(row, str) else row for row in rows]
    sent = pickle.loads(pickle.dumps(staging))
    return sent.write(SCHEMA, iter(batch(*chunks).rows()))


def as_stored(*rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {r["_id"]: r for r in pa.Table.from_pylist(list(rows), schema=SCHEMA).to_pylist()}


def query(text: str, limit: int = 3, **more: Any) -> Query:
    return Query(np.array(vector_of(text), np.float32), limit, **more)


def keys(found: pa.Table) -> list[str]:
    return found["_key"].to_pylist()


def some_rows(dice: random.Random, n: int) -> dict[str, dict[str, Any]]:
    """Chunks of up to twenty rows; texts are often equal, and words rare or common."""
    rows = {}
    for key in dice.sample([f"k{n}" for n in range(20)], n):
        for number in range(dice.choice((1, 1, 3))):
            words = dice.choices(WORDS, range(len(WORDS), 0, -1), k=dice.choice((1, 2, 2, 9)))
            one = chunk(key, " ".join(words), number, points=dice.randrange(3))
            rows[one["_id"]] = one
    return rows


WORDS = ("the", "red", "Plum", "fig", "crème", "smoke_taint", "straße", "42", "葡萄酒")
ASKED = Answering(
    ByText(recipe().model, vector_of),
    ("the red", "plum FIG creme the", "42 strasse smoke_taint 葡萄酒"),
    limits=(3, 50),
    wheres=((None, None), (Compare("points", "=", 1), "points = 1")),
)


def race(*calls: Any) -> list[BaseException | None]:
    """Run the calls at the same time; return what each raised."""
    gate = threading.Barrier(len(calls))
    outcomes: list[BaseException | None] = [None] * len(calls)

    def run(n: int) -> None:
        gate.wait()
        try:
            calls[n]()
        except Exception as error:
            outcomes[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


class StoreContract:
    """Promises of `Store` and `StoreReader`; a subclass provides the `store` fixture.

    Attributes:
        many: how many chunks one commit must be able to delete.
    """

    many = 50_000

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def built(self, store: Store) -> Store:
        """An index of three rows at frontier 1."""
        rows = [chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        return store

    def test_there_is_no_version_to_open_before_the_first_build(self, store: Store) -> None:
        assert store.open() is None

    def test_upkeep_without_an_index_does_nothing(self, store: Store) -> None:
        assert store.maintain() == {}

    def test_a_commit_without_an_index_is_refused(self, store: Store) -> None:
        with pytest.raises(IndexMissing):
            store.commit(batch(), frontier(1), frontier(2))
        assert store.open() is None

    def test_a_built_index_holds_exactly_its_batch(self, built: Store) -> None:
        expected = as_stored(chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé"))
        assert contents(built.open()) == expected

    def test_a_built_index_reports_its_recipe_and_frontier(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        assert reader.generation == 1
        assert reader.frontier() == frontier(1)
        assert reader.recipe() == recipe()
        assert reader.schema().equals(SCHEMA)

    def test_an_empty_index_can_be_built_and_searched(self, store: Store) -> None:
        store.create(recipe(), batch(), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert reader.counts() == (0, 0)
        assert reader.search(query("red")).num_rows == 0
        assert contents(reader) == {}

    def test_an_index_passes_its_probe_after_each_commit(self, store: Store) -> None:
        store.create(recipe(), batch(), frontier(1), after=0)
        store.open().probe()
        store.commit(batch(chunk("a"), chunk("b")), frontier(1), frontier(2))
        store.open().probe()
        store.commit(batch(chunk("a", "new")), frontier(2), frontier(3))
        store.maintain()
        store.open().probe()
        store.open().probe()

    def test_creating_an_index_twice_keeps_the_first(self, built: Store) -> None:
        with pytest.raises(StaleFrontier):
            built.create(recipe("dot"), batch(chunk("z")), frontier(9), after=0)
        reader = built.open()
        assert reader is not None
        assert (reader.recipe(), reader.frontier()) == (recipe(), frontier(1))
        assert reader.counts() == (3, 3)

    def test_a_second_generation_replaces_the_first(self, built: Store) -> None:
        built.create(recipe("dot"), batch(chunk("z")), frontier(9), after=1)
        reader = built.open()
        assert reader is not None
        assert (reader.generation, reader.recipe()) == (2, recipe("dot"))
        assert contents(reader) == as_stored(chunk("z"))

    def test_the_active_generation_is_known_without_reading_it(self, store: Store) -> None:
        assert store.generation() == 0
        for after in range(2):
            store.create(recipe(), batch(), frontier(after), after)
            assert store.generation() == after + 1

    def test_a_build_that_began_before_the_last_one_is_refused(self, built: Store) -> None:
        built.create(recipe(), batch(chunk("z")), frontier(9), after=1)
        with pytest.raises(StaleFrontier):
            built.create(recipe(), batch(), frontier(10), after=1)
        assert contents(built.open()) == as_stored(chunk("z"))

    def test_exactly_one_of_two_racing_builders_wins(self, store: Store) -> None:
        def build(writer: str) -> Any:
            mine = batch(chunk(writer))
            return lambda: store.create(recipe(), mine, frontier(1, writer), after=0)

        outcomes = race(build("1"), build("2"), build("3"))
        winner = [i for i, e in enumerate(outcomes) if e is None]
        assert len(winner) == 1, outcomes
        assert all(e is None or isinstance(e, StaleFrontier) for e in outcomes)
        reader = store.open()
        assert reader is not None
        assert contents(reader) == as_stored(chunk(str(winner[0] + 1)))
        assert reader.frontier() == frontier(1, str(winner[0] + 1))

    def test_a_commit_upserts_deletes_and_moves_the_frontier(self, built: Store) -> None:
        gone = chunk("c", "rosé")["_id"]
        changed = batch(chunk("a", "orange"), chunk("d", "sparkling"), deletes=(gone,))
        built.commit(changed, frontier(1), frontier(2))
        reader = built.open()
        expected = as_stored(chunk("a", "orange"), chunk("b", "white"), chunk("d", "sparkling"))
        assert contents(reader) == expected
        assert reader is not None
        assert reader.frontier() == frontier(2)
        assert reader.counts() == (3, 3)

    def test_an_empty_batch_moves_only_the_frontier(self, built: Store) -> None:
        before = contents(built.open())
        built.commit(batch(), frontier(1), frontier(2))
        reader = built.open()
        assert reader is not None
        assert reader.frontier() == frontier(2)
        assert contents(reader) == before

    def test_the_same_batch_twice_changes_nothing(self, built: Store) -> None:
        twice = batch(chunk("d"), deletes=(chunk("a")["_id"],))
        built.commit(twice, frontier(1), frontier(2))
        once = contents(built.open())
        built.commit(twice, frontier(1), frontier(2))
        reader = built.open()
        assert reader is not None
        assert contents(reader) == once
        assert reader.frontier() == frontier(2)

    def test_a_commit_that_expects_an_older_frontier_lands_nothing(self, built: Store) -> None:
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
        before = contents(built.open())
        with pytest.raises(StaleFrontier):
            built.commit(batch(chunk("e")), frontier(1), frontier(3))
        reader = built.open()
        assert reader is not None
        assert contents(reader) == before
        assert reader.frontier() == frontier(2)

    def test_frontiers_that_differ_only_by_token_are_different_commits(self, built: Store) -> None:
        mine, theirs = (replace(frontier(2), token=token) for token in ("mine", "theirs"))
        built.commit(batch(chunk("d")), frontier(1), theirs)
        with pytest.raises(StaleFrontier):
            built.commit(batch(chunk("e")), frontier(1), mine)
        built.commit(batch(chunk("f")), theirs, replace(frontier(3), token="mine"))
        assert set(contents(built.open())) == {chunk(key)["_id"] for key in "abcdf"}

    def test_deleting_an_unknown_id_is_not_an_error(self, built: Store) -> None:
        built.commit(batch(deletes=("nothing", "o'ther")), frontier(1), frontier(2))
        assert len(contents(built.open())) == 3

    def test_an_id_that_is_both_deleted_and_written_is_written(self, built: Store) -> None:
        gone = chunk("a")["_id"]
        both = batch(chunk("a", "orange"), deletes=(gone, chunk("b")["_id"], gone))
        built.commit(both, frontier(1), frontier(2))
        assert contents(built.open()) == as_stored(chunk("a", "orange"), chunk("c", "rosé"))

    def test_very_many_deletes_land_in_one_commit(self, store: Store) -> None:
        many = pa.array([f'["p","it\'s {n}","text",0]' for n in range(self.many)])
        columns = [many if f.name == "_id" else pa.nulls(len(many), f.type) for f in SCHEMA]
        table = pa.Table.from_arrays(columns, schema=SCHEMA)
        store.create(recipe(), Batch(SCHEMA, table.to_reader), frontier(1), after=0)
        deletes = tuple(many.to_pylist()[1:])
        store.commit(batch(chunk("a"), deletes=deletes), frontier(1), frontier(2))
        assert set(contents(store.open())) == {many[0].as_py(), chunk("a")["_id"]}

    def test_a_frontier_that_names_very_many_rows_is_kept_with_the_commit(
        self, built: Store
    ) -> None:
        first = replace(frontier(2), duplicates=named(5_000), token="a")
        built.commit(batch(chunk("d")), frontier(1), first)
        held = opened(built)
        assert held.frontier().duplicates == named(5_000)
        assert RowId("p", "twice 7") in held.frontier().duplicates
        refused = {row: Refusal("too odd", "1", 2) for row in named(3_000)}
        second = replace(frontier(3), duplicates=named(5_001), quarantine=refused, token="b")
        built.commit(batch(chunk("e")), held.frontier(), second)
        assert opened(built).frontier() == second
        assert held.frontier() == first, "a reader is pinned to its version"
        third = replace(opened(built).frontier(), sync=4, quarantine={}, token="c")
        built.commit(batch(deletes=(chunk("a")["_id"],)), opened(built).frontier(), third)
        built.maintain()
        reader = opened(built)
        assert (reader.frontier(), reader.counts()) == (third, (4, 4))
        assert {r["_key"] for r in contents(reader).values()} == set("bcde")
        assert sum(b.num_rows for b in reader.sample(3, ["_key"])) == 3
        assert set(keys(reader.search(query("red", 10)))) == set("bcde")
        assert set(reader.existing([RowId("p", k) for k in "abcde"])) == {
            RowId("p", k) for k in "bcde"
        }
        built.commit(batch(), third, frontier(5))
        assert opened(built).frontier() == frontier(5)

    def test_a_build_keeps_very_many_named_rows(self, store: Store) -> None:
        many = replace(frontier(1), duplicates=named(5_000))
        store.create(recipe(), batch(chunk("a")), many, after=0)
        assert opened(store).frontier() == many
        sent = pickle.loads(pickle.dumps(opened(store)))
        assert sent.frontier() == many

    def test_a_batch_with_other_columns_is_refused(self, built: Store) -> None:
        other = SCHEMA.set(SCHEMA.get_field_index("points"), pa.field("points", pa.string()))
        with pytest.raises(StoreError, match="points string"):
            built.commit(batch(chunk("d"), schema=other), frontier(1), frontier(2))
        assert len(contents(built.open())) == 3

    def test_an_error_while_rows_are_read_lands_nothing_and_is_raised_unchanged(
        self, built: Store
    ) -> None:
        def failing() -> pa.RecordBatchReader:
            def rows() -> Any:
                yield pa.RecordBatch.from_pylist([chunk("d")], schema=SCHEMA)
                raise ConfigError("the provider failed")

            return pa.RecordBatchReader.from_batches(SCHEMA, rows())

        with pytest.raises(ConfigError, match="the provider failed"):
            built.commit(Batch(SCHEMA, failing), frontier(1), frontier(2))
        reader = built.open()
        assert reader is not None
        assert reader.frontier() == frontier(1)
        assert reader.counts() == (3, 3)

    def test_exactly_one_of_several_racing_commits_lands_and_no_id_is_stored_twice(
        self, built: Store
    ) -> None:
        def commit(writer: str) -> Any:
            mine = batch(chunk("new", f"by {writer}"), chunk(f"only {writer}"))
            return lambda: built.commit(mine, frontier(1), frontier(2, writer))

        outcomes = race(*(commit(w) for w in "123"))
        winner = [str(i + 1) for i, e in enumerate(outcomes) if e is None]
        assert len(winner) == 1, outcomes
        assert all(e is None or isinstance(e, StaleFrontier) for e in outcomes)
        reader = built.open()
        assert reader is not None
        assert reader.frontier() == frontier(2, winner[0])
        landed = set(contents(reader)) - {chunk(k)["_id"] for k in "abc"}
        assert landed == {chunk("new")["_id"], chunk(f"only {winner[0]}")["_id"]}

    def test_the_same_commit_raced_by_two_writers_lands_once(self, built: Store) -> None:
        same = batch(chunk("new"))
        outcomes = race(*(lambda: built.commit(same, frontier(1), frontier(2)) for _ in range(2)))
        assert outcomes == [None, None]
        assert len(contents(built.open())) == 4

    def test_a_reader_keeps_its_version_while_others_write(self, built: Store) -> None:
        reader = built.open()
        built.commit(batch(chunk("d"), deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
        assert reader is not None
        assert reader.frontier() == frontier(1)
        assert {r["_key"] for r in contents(reader).values()} == {"a", "b", "c"}
        assert "d" not in keys(reader.search(query("red", 10)))

    def test_earlier_versions_are_read_as_of_their_instant(self, built: Store) -> None:
        built.commit(batch(chunk("d"), deletes=(chunk("a")["_id"],)), frontier(1), frontier(2))
        built.maintain()
        built.commit(batch(chunk("e")), frontier(2), frontier(4))
        for instant, held in [(1, "abc"), (2, "bcd"), (3, "bcd"), (4, "bcde"), (9, "bcde")]:
            reader = built.as_of(f"2025010100000{instant}")
            assert {r["_key"] for r in contents(reader).values()} == set(held)
            assert set(keys(reader.search(query("red", 10)))) == set(held)
            assert reader.counts() == (len(held), len(held))

    def test_an_instant_before_all_versions_is_refused_with_the_range(self, built: Store) -> None:
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
        with pytest.raises(ConfigError, match="from 20250101000001 to 20250101000002"):
            built.as_of("20250101000000")

    def test_no_version_is_read_as_of_an_instant_without_an_index(self, store: Store) -> None:
        with pytest.raises(IndexMissing):
            store.as_of("20250101000001")

    @pytest.mark.parametrize("strange", STRANGE)
    def test_odd_keys_and_texts_are_read_back_unchanged_by_every_method(
        self, built: Store, strange: str
    ) -> None:
        row = chunk(strange, strange, _partition=strange, country=strange, tags=[strange])
        built.commit(batch(row), frontier(1), frontier(2))
        reader = built.open()
        assert reader is not None
        assert contents(reader)[row["_id"]] == as_stored(row)[row["_id"]]
        assert list(reader.existing([RowId(strange, strange)])) == [RowId(strange, strange)]
        found = reader.search(query(strange, 1, where=Compare("country", "=", strange)))
        assert keys(found) == [strange]
        built.commit(batch(deletes=(row["_id"],)), frontier(2), frontier(3))
        assert len(contents(built.open())) == 3

    def test_a_text_of_a_megabyte_is_read_back_unchanged(self, built: Store) -> None:
        text = "wine 🍷 " * 120_000
        built.commit(batch(chunk("long", text)), frontier(1), frontier(2))
        assert contents(built.open())[chunk("long")["_id"]]["_text"] == text

    def test_payload_values_and_nulls_keep_their_types(self, store: Store) -> None:
        rows = (chunk("full", **FULL), chunk("nulls"))
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        store.commit(batch(chunk("later", **FULL)), frontier(1), frontier(2))
        held = contents(store.open())
        for key in ("full", "later"):
            assert {k: held[chunk(key)["_id"]][k] for k in FULL} == FULL
        assert [held[chunk("nulls")["_id"]][k] for k in FULL] == [None] * len(FULL)

    def test_counts_reports_rows_and_chunks(self, store: Store) -> None:
        rows = [chunk("a", "x", 0), chunk("a", "y", 1), chunk("b", "z"), chunk("a", _partition="q")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert reader.counts() == (3, 4)

    def test_existing_returns_the_chunks_of_the_given_rows(self, store: Store) -> None:
        rows = [chunk("a", "x", 0), chunk("a", "y", 1), chunk("b"), chunk("a", _partition="q")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = reader.existing([RowId("p", "a"), RowId("p", "missing")])
        assert list(found) == [RowId("p", "a")]
        hashes = {(s.id, s.hash, s.source_hash, s.payload_hash) for s in found[RowId("p", "a")]}
        columns = ("_id", "_hash", "_source_hash", "_payload_hash")
        assert hashes == {tuple(r[c] for c in columns) for r in rows[:2]}

    def test_all_chunks_of_the_given_rows_are_fetched_and_no_others(self, store: Store) -> None:
        rows = [chunk("a", "x", 0), chunk("a", "y", 1), chunk("b"), chunk("a", _partition="q")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        found = fetched(opened(store), [RowId("p", "a")], ["_id", "_text", "points"])
        wanted = [{"_id": r["_id"], "_text": r["_text"], "points": None} for r in rows[:2]]
        assert sorted(found, key=lambda c: c["_id"]) == wanted

    def test_a_row_whose_vector_is_all_zeros_is_fetched(self, store: Store) -> None:
        rows = [chunk("zero", _vector=[0.0] * DIMENSION), chunk("other", "white")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        (found,) = fetched(opened(store), [RowId("p", "zero")], ["_key", "_text"])
        assert found == {"_key": "zero", "_text": "red"}

    def test_rows_that_the_index_does_not_hold_have_no_chunks(self, built: Store) -> None:
        unknown = [RowId("p", "missing"), RowId("q", "a"), RowId("", "")]
        assert fetched(opened(built), unknown, ["_key"]) == []
        assert fetched(opened(built), [], ["_key"]) == []

    @pytest.mark.parametrize("most", [400, 3])
    def test_many_rows_are_fetched_at_once(
        self, store: Store, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("lance", "qdrant"):
            monkeypatch.setattr(f"lakewake.store.{module}.reader.LIST_LENGTH", most)
        many = [chunk(f"it's {n}", str(n)) for n in range(300)]
        store.create(recipe(), batch(*many), frontier(1), after=0)
        for some in (many[:20], many):
            rows = [RowId("p", r["_key"]) for r in some]
            found = fetched(opened(store), rows, ["_key", "_text"])
            assert {c["_key"]: c["_text"] for c in found} == {r["_key"]: r["_text"] for r in some}
            assert len(found) == len(some)

    def test_a_few_of_many_rows_are_found_and_so_are_all_of_them(self, store: Store) -> None:
        many = [chunk(f"it's {n}", str(n)) for n in range(300)]
        store.create(recipe(), batch(*many), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        for some in (many[:5], many):
            rows = {RowId("p", r["_key"]) for r in some}
            assert set(reader.existing(rows)) == rows
            vectors = reader.vectors([r["_hash"] for r in some])
            assert {h: v.tolist() for h, v in vectors.items()} == {
                r["_hash"]: r["_vector"] for r in some
            }

    def test_vectors_leaves_out_texts_that_the_index_does_not_hold(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        assert reader.vectors([text_hash("unheard of"), "it's"]) == {}
        assert reader.vectors([]) == {}

    def test_scan_returns_only_the_requested_columns(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        assert {tuple(b.schema.names) for b in reader.scan(["_key"])} == {("_key",)}
        assert sorted(k for b in reader.scan(["_key"]) for k in b["_key"].to_pylist()) == [*"abc"]

    def test_scan_parts_read_elsewhere_are_the_whole_index(self, built: Store) -> None:
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
        reader = built.open()
        assert reader is not None
        sent = pickle.loads(pickle.dumps(reader.scan_parts(["_key", "points"])))
        assert sent.schema.names == ["_key", "points"]
        assert all(b.schema.equals(sent.schema) for part in sent.parts for b in part)
        assert sorted(k for b in sent for k in b["_key"].to_pylist()) == [*"abcd"]

    def test_a_reader_sent_elsewhere_stays_at_its_version(self, built: Store) -> None:
        reader = built.open()
        sent = pickle.dumps(reader)
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
        again = pickle.loads(sent)
        assert again.frontier() == frontier(1)
        assert contents(again) == contents(reader)

    def test_a_new_generation_holds_the_staged_writes_of_several_tasks(self, store: Store) -> None:
        with store.staging(after=0) as staging:
            written = [staged(staging, *rows) for rows in ((chunk("a"), chunk("b")), (), ("c",))]
            whole = staging.batch(SCHEMA, written, Removed())
            store.create(recipe(), whole, frontier(1), after=0)
        assert contents(store.open()) == as_stored(chunk("a"), chunk("b"), chunk("c"))
        assert store.open().frontier() == frontier(1)

    def test_a_commit_holds_the_staged_writes_of_several_tasks(self, built: Store) -> None:
        before = contents(built.open())
        with built.staging() as staging:
            written = [staged(staging, chunk("a", "new")), staged(staging, "d")]
            gone = chunk("b")["_id"]
            removed = Removed((gone,), (chunk("a")["_id"], chunk("d")["_id"]))
            built.commit(staging.batch(SCHEMA, written, removed), frontier(1), frontier(2))
        wanted = {**before, **as_stored(chunk("a", "new"), chunk("d"))}
        del wanted[gone]
        assert contents(built.open()) == wanted

    def test_a_staged_batch_that_lost_the_race_lands_nothing(self, built: Store) -> None:
        with built.staging() as staging:
            written = [staged(staging, chunk("a", "late"))]
            late = staging.batch(SCHEMA, written, Removed((), (chunk("a")["_id"],)))
            built.commit(batch(chunk("d")), frontier(1), frontier(2))
            before = contents(built.open())
            with pytest.raises(StaleFrontier):
                built.commit(late, frontier(1), frontier(2, "b"))
        assert contents(built.open()) == before

    def test_the_same_staged_batch_twice_changes_nothing_more(self, built: Store) -> None:
        with built.staging() as staging:
            written = [staged(staging, chunk("a", "new"))]
            once = staging.batch(SCHEMA, written, Removed((), (chunk("a")["_id"],)))
            built.commit(once, frontier(1), frontier(2))
            before = contents(built.open())
            built.commit(once, frontier(1), frontier(2))
        assert contents(built.open()) == before

    def test_staged_writes_of_a_failed_task_are_in_no_batch(self, built: Store) -> None:
        with built.staging() as staging:
            staged(staging, chunk("a", "tried first"))
            written = [staged(staging, chunk("a", "tried again"))]
            whole = staging.batch(SCHEMA, written, Removed((), (chunk("a")["_id"],)))
            built.commit(whole, frontier(1), frontier(2))
        assert contents(built.open())[chunk("a")["_id"]]["_text"] == "tried again"

    def test_a_staged_batch_without_chunks_moves_only_the_frontier(self, built: Store) -> None:
        before = contents(built.open())
        with built.staging() as staging:
            whole = staging.batch(SCHEMA, [staged(staging)], Removed())
            built.commit(whole, frontier(1), frontier(2))
        assert contents(built.open()) == before
        assert built.open().frontier() == frontier(2)

    def test_an_error_while_rows_are_staged_is_raised_unchanged(self, store: Store) -> None:
        def failing() -> Iterator[pa.RecordBatch]:
            yield from batch(chunk("a")).rows()
            raise EmbedError("the provider is gone")

        with store.staging(after=0) as staging, pytest.raises(EmbedError, match="is gone"):
            pickle.loads(pickle.dumps(staging)).write(SCHEMA, failing())

    def test_a_sample_has_the_requested_columns_and_no_chunk_twice(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        two = [k for b in reader.sample(2, ["_key"]) for k in b["_key"].to_pylist()]
        assert len(set(two)) == len(two) == 2
        assert {tuple(b.schema.names) for b in reader.sample(2, ["_key"])} == {("_key",)}

    def test_a_sample_larger_than_the_index_is_all_of_it_without_the_checkpoint(
        self, built: Store
    ) -> None:
        reader = built.open()
        assert reader is not None
        every = [k for b in reader.sample(100, ["_key"]) for k in b["_key"].to_pylist()]
        assert sorted(every) == [*"abc"]

    def test_search_puts_the_same_text_first_with_cosine_one(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        found = reader.search(query("white"))
        assert keys(found)[0] == "b"
        assert found["_similarity"][0].as_py() == pytest.approx(1.0)
        hidden = ("_vector", "_checkpoint", "_source_hash", "_payload_hash", "_instant")
        shown = [n for n in SCHEMA.names if n not in hidden]
        assert found.column_names == [*shown, "_similarity"]

    @pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
    def test_search_ranks_by_the_metric_and_reports_the_cosine(
        self, store: Store, metric: str
    ) -> None:
        rows = [chunk(str(n), str(n)) for n in range(20)]
        store.create(recipe(metric), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = reader.search(query("anything", 20))
        q, all_of = np.array(vector_of("anything")), np.array([r["_vector"] for r in rows])
        cos = all_of @ q / np.linalg.norm(all_of, axis=1) / np.linalg.norm(q)
        near = {"cosine": cos, "dot": all_of @ q, "l2": -np.linalg.norm(all_of - q, axis=1)}[metric]
        assert keys(found) == [str(n) for n in np.argsort(-near)]
        np.testing.assert_allclose(
            found["_similarity"],
            np.sort(cos)[::-1] if metric == "cosine" else cos[np.argsort(-near)],
            atol=1e-6,
        )

    def test_search_finds_enough_rows_when_rows_have_many_chunks(self, store: Store) -> None:
        near = np.array(vector_of("red"))
        crowd = [chunk("crowd", f"c{n}", n, _vector=(near + n * 1e-4).tolist()) for n in range(200)]
        others = [chunk(str(n), str(n)) for n in range(5)]
        store.create(recipe(), batch(*crowd, *others), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = reader.search(query("red", 4))
        assert keys(found)[0] == "crowd"
        assert len(set(keys(found))) == 4
        assert len(set(keys(reader.search(query("red", 100))))) == 6

    def test_search_filters_before_it_ranks(self, store: Store) -> None:
        rows = [
            chunk(str(n), str(n), country="Italy" if n % 10 == 0 else "France", points=n)
            for n in range(50)
        ]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        italian = Compare("country", "=", "Italy")
        assert set(keys(reader.search(query("7", 5, where=italian)))) == {*"0"} | {
            "10",
            "20",
            "30",
            "40",
        }
        both = And((italian, Compare("points", ">", 25)))
        assert set(keys(reader.search(query("7", 5, where=both)))) == {"30", "40"}
        listed = In("points", (1, 2))
        assert set(keys(reader.search(query("7", 5, where=listed)))) == {"1", "2"}

    def test_a_filter_that_matches_nulls_never_returns_the_checkpoint(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        found = reader.search(query("red", 10, where=IsNull("country")))
        assert sorted(keys(found)) == [*"abc"]

    def test_a_filter_on_a_column_that_is_not_there_is_refused(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        with pytest.raises(FilterError):
            reader.search(query("red", where=Compare("colour", "=", "red")))

    def test_a_query_of_another_dimension_is_refused(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        with pytest.raises(ConfigError, match="3 dimensions, the index has 8"):
            reader.search(Query(np.ones(3, np.float32), 1))

    def test_a_zero_vector_has_no_cosine_and_is_not_found(self, store: Store) -> None:
        rows = (chunk("a"), chunk("zero", _vector=[0.0] * DIMENSION))
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert keys(reader.search(query("red", 10))) == ["a"]

    def test_words_find_the_chunks_that_have_any_of_them_best_first(self, store: Store) -> None:
        texts = {
            "both": "smoky leather",
            "one": "Smoky citrus honey plum cherry",
            "other": "LEATHER",
            "none": "fresh lime",
        }
        store.create(
            recipe(), batch(*(chunk(k, t) for k, t in texts.items())), frontier(1), after=0
        )
        reader = store.open()
        assert reader is not None
        found = reader.keyword(Words("leather, SMOKY!", 10))
        assert keys(found)[0] == "both"
        assert sorted(keys(found)) == ["both", "one", "other"]
        scores = found["_relevance"].to_pylist()
        assert scores == sorted(scores, reverse=True)
        assert min(scores) > 0
        shown = reader.search(query("red")).column_names
        assert found.column_names == [*shown[:-1], "_relevance"]

    @pytest.mark.parametrize("text", ["", "!?", "zeppelin", "'; --", 'a" OR "b', "x" * 5000])
    def test_words_that_no_chunk_has_find_nothing(self, built: Store, text: str) -> None:
        reader = built.open()
        assert reader is not None
        assert reader.keyword(Words(text, 3)).num_rows == 0

    def test_words_are_filtered_before_they_are_ranked(self, store: Store) -> None:
        rows = [chunk(str(n), f"smoky {n}", points=n) for n in range(40)]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        wanted = Compare("points", ">=", 37)
        assert sorted(keys(reader.keyword(Words("smoky", 2, wanted)))) <= ["37", "38", "39"]
        assert len(keys(reader.keyword(Words("smoky", 9, wanted)))) == 3
        with pytest.raises(FilterError):
            reader.keyword(Words("smoky", 2, Compare("colour", "=", "red")))

    def test_words_find_enough_rows_when_rows_have_many_chunks(self, store: Store) -> None:
        crowd = [chunk("crowd", "smoky", n) for n in range(50)]
        others = [chunk(str(n), f"smoky and many other words {n}") for n in range(5)]
        store.create(recipe(), batch(*crowd, *others), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = keys(reader.keyword(Words("smoky", 4)))
        assert found[0] == "crowd"
        assert len(set(found)) == 4

    def test_words_of_replaced_or_deleted_chunks_are_not_found(self, built: Store) -> None:
        built.maintain()
        rows = (chunk("a", "PLUM"), chunk("n", "fig"))
        built.commit(batch(*rows), frontier(1), frontier(2))
        gone = chunk("n")["_id"]
        built.commit(batch(chunk("b", "cherry"), deletes=(gone,)), frontier(2), frontier(3))
        reader = built.open()
        assert reader is not None
        assert keys(reader.keyword(Words("plum", 3))) == ["a"]
        assert keys(reader.keyword(Words("cherry", 3))) == ["b"]
        for former in ("fig", "white"):
            assert keys(reader.keyword(Words(former, 3))) == []

    @pytest.fixture
    def small_parts(self) -> None:
        """Make the parts of an index so small that there are several."""

    @pytest.mark.usefixtures("small_parts")
    @pytest.mark.parametrize(("seed", "metric"), [(0, "cosine"), (1, "dot"), (2, "l2")])
    def test_all_answers_equal_those_of_a_fresh_build_after_any_history(
        self, store: Store, seed: int, metric: str
    ) -> None:
        dice, held = random.Random(seed), dict[str, dict[str, Any]]()
        held |= some_rows(dice, 12)
        store.create(recipe(metric), batch(*held.values()), frontier(0), after=0)
        for n in range(6):
            rows = some_rows(dice, dice.randrange(1, 4))
            again = {c["_key"] for c in (*rows.values(), *dice.sample(list(held.values()), 2))}
            gone = [i for i, c in held.items() if c["_key"] in again and i not in rows]
            store.commit(batch(*rows.values(), deletes=tuple(gone)), frontier(n), frontier(n + 1))
            held = {i: c for i, c in held.items() if i not in gone} | rows
            if dice.random() < 0.5:
                store.maintain()
            if n % 2:
                index = store.open()
                assert index is not None
                ASKED.assert_alike(index, built_of(index, held.values()))

    def test_chunks_with_equal_scores_are_ordered_by_id(self, store: Store) -> None:
        rows = [chunk(f"{n:02}", "red") for n in range(40)]
        store.create(recipe(), batch(*rows[20:]), frontier(1), after=0)
        store.commit(batch(*rows[:20]), frontier(1), frontier(2))
        index = store.open()
        assert index is not None
        first = [f"{n:02}" for n in range(5)]
        assert keys(index.search(query("red", 5, exact=True))) == first
        assert keys(index.keyword(Words("red", 5))) == first

    def test_a_filter_does_not_change_keyword_scores(self, built: Store) -> None:
        rows = [chunk("d", "red plum", points=1), chunk("e", "plum", points=2)]
        built.commit(batch(*rows), frontier(1), frontier(2))
        index = built.open()
        assert index is not None
        scores = [
            dict(zip(keys(found), found["_relevance"].to_pylist(), strict=True))
            for found in (
                index.keyword(Words("red plum", 9, where))
                for where in (None, Compare("points", "=", 1))
            )
        ]
        assert set(scores[0]) == {"a", "d", "e"}
        assert scores[1] == {"d": scores[0]["d"]}

    def test_upkeep_changes_no_answer_of_the_index(self, built: Store) -> None:
        for n in range(1, 4):
            built.commit(batch(chunk(f"k{n}")), frontier(n), frontier(n + 1))
        before = contents(built.open())
        built.maintain()
        reader = built.open()
        assert reader is not None
        assert contents(reader) == before
        assert reader.frontier() == frontier(4)
