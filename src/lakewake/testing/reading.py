"""What every store promises to readers: what was written is read back, at one version."""

from __future__ import annotations

import pickle

import pytest

from lakewake.model.chunks import text_hash
from lakewake.model.rows import RowId
from lakewake.model.where import Compare
from lakewake.store import Store
from lakewake.testing.samples import (
    DIMENSION,
    FULL,
    STRANGE,
    as_stored,
    batch,
    chunk,
    contents,
    fetched,
    frontier,
    keys,
    opened,
    query,
    recipe,
)


class ReadingContract:
    """Tests of `StoreContract`, which has their fixtures."""

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
