"""What every store promises to writers: a build or a commit lands whole or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakewake.errors import (
    ConfigError,
    EmbedError,
    IndexMissing,
    StaleFrontier,
    StoreError,
)
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Refusal
from lakewake.model.rows import RowId
from lakewake.store import Removed, Store
from lakewake.testing.samples import (
    SCHEMA,
    as_stored,
    batch,
    chunk,
    contents,
    frontier,
    keys,
    named,
    opened,
    query,
    race,
    recipe,
    staged,
)


class WritingContract:
    """Tests of `StoreContract`, which has their fixtures."""

    many: int

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

    def test_a_build_is_refused_if_two_others_end_before_it(self, store: Store) -> None:
        reader = batch(chunk("z")).rows

        def rows() -> pa.RecordBatchReader:
            store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
            store.create(recipe(), batch(chunk("b")), frontier(2), after=1)
            # It removes the first generation, whose number the build wants.
            store.maintain()
            return reader()

        with pytest.raises(StaleFrontier):
            store.create(recipe(), Batch(SCHEMA, rows, ()), frontier(9), after=0)
        assert contents(store.open()) == as_stored(chunk("b"))
        store.commit(batch(chunk("c")), frontier(2), frontier(3))
        assert len(contents(store.open())) == 2

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
