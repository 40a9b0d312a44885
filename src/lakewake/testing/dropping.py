"""What every store promises about drops: nothing of an index comes back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakewake.errors import (
    IndexDropped,
    IndexMissing,
    StoreError,
)
from lakewake.model.chunks import Batch
from lakewake.store import Store
from lakewake.testing.samples import (
    SCHEMA,
    as_stored,
    batch,
    chunk,
    contents,
    frontier,
    race,
    recipe,
)


class DroppingContract:
    """Tests of `StoreContract`, which has their fixtures."""

    drops: int

    def test_a_dropped_index_is_gone_and_dropping_it_again_does_nothing(self, built: Store) -> None:
        built.commit(batch(chunk("d")), frontier(1), frontier(2))
        assert not built.was_dropped()
        assert built.drop().removed
        assert built.open() is None
        assert built.was_dropped()
        assert built.maintain() == {}
        assert built.drop().removed == ()
        with pytest.raises(IndexMissing):
            built.commit(batch(chunk("e")), frontier(2), frontier(3))
        assert built.open() is None

    def test_there_is_nothing_to_drop_before_the_first_build(self, store: Store) -> None:
        dropped = store.drop()
        assert (dropped.removed, dropped.marks, dropped.foreign) == ((), (), ())
        assert store.generation() == 0

    def test_a_dry_run_of_a_drop_names_what_goes_and_removes_nothing(self, built: Store) -> None:
        would = built.drop(dry_run=True)
        assert contents(built.open()) == as_stored(
            chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")
        )
        assert would.removed == built.drop().removed

    def test_an_index_can_be_built_again_after_a_drop(self, built: Store) -> None:
        for times in range(2):
            built.drop()
            built.create(recipe(), batch(chunk("z")), frontier(times), after=built.generation())
            built.maintain()
            assert not built.was_dropped()
            assert contents(built.open()) == as_stored(chunk("z"))
            built.commit(batch(chunk("y")), frontier(times), frontier(5))
            assert len(contents(built.open())) == 2

    @pytest.mark.parametrize("after", [0, 1])
    def test_a_build_during_a_drop_is_refused_and_leaves_nothing(
        self, store: Store, after: int
    ) -> None:
        if after:
            store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
        reader = batch(chunk("z")).rows

        def rows() -> pa.RecordBatchReader:
            first = store.generation()
            if not first:
                # There is nothing to drop yet: another builder is quicker.
                store.create(recipe(), batch(chunk("b")), frontier(1), after=0)
            store.drop()
            return reader()

        with pytest.raises(IndexDropped) as refused:
            store.create(recipe(), Batch(SCHEMA, rows, ()), frontier(9), after=after)
        assert "lakewake sync" in refused.value.hint
        assert store.open() is None
        assert store.drop().removed == ()

    def test_a_commit_and_a_drop_at_the_same_time_leave_no_index(self, built: Store) -> None:
        for n in range(self.drops):
            race(
                lambda: built.commit(batch(chunk("d", "new " * 100)), frontier(1), frontier(2)),
                lambda: built.drop(),
            )
            assert built.open() is None
            built.drop()
            built.create(recipe(), batch(chunk("a")), frontier(1), after=built.generation())
            assert contents(built.open()) == as_stored(chunk("a")), n

    def test_a_commit_during_a_drop_fails_and_leaves_nothing(self, built: Store) -> None:
        reader = batch(chunk("z")).rows

        def rows() -> pa.RecordBatchReader:
            built.drop()
            return reader()

        with pytest.raises(StoreError):
            built.commit(Batch(SCHEMA, rows, ()), frontier(1), frontier(2))
        assert built.open() is None
        assert built.generation() != 1
