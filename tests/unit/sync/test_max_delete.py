"""A sync that would remove most of an index is refused unless that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lakewake.errors import TooManyDeletes
from lakewake.model.plan import Action
from lakewake.model.rows import RowId
from lakewake.source.memory import MemoryTable
from lakewake.sync import NO_OPTIONS, SyncOptions, plan_next, sync
from lakewake.verify import verify
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

ROWS = 2_400
#: Deletes that are refused: more than half of the rows, and more than 1,000.
GONE = 1_201
ALLOWED = SyncOptions(allow_deletes=True)


def rows(first: int, last: int, text: str | None = "text") -> dict[RowId, dict[str, object]]:
    return {rid(f"k{n}"): values(text and f"{text} {n}", n) for n in range(first, last)}


@pytest.fixture
def parts() -> SampleParts:
    """An index of 2,400 rows, in step, the embedder's count at zero."""
    made = sample_parts()
    made.table.upsert(rows(GONE, ROWS))
    made.table.upsert(rows(0, GONE))
    sync(made)
    made.embedder.received.clear()
    return made


def replace_table(parts: SampleParts) -> SampleParts:
    """Put another table of the same size at the same location, with other keys and texts."""
    other = MemoryTable(sample_recipe(), SCHEMA)
    other.upsert(rows(ROWS, 2 * ROWS, "foreign"))
    return replace(parts, table=other)


def retype(parts: SampleParts) -> SampleParts:
    """The same, with another type of a used column, which needs a new generation."""
    other = MemoryTable(sample_recipe(), SCHEMA)
    other.retype("num", pa.float64())
    other.upsert(rows(ROWS, 2 * ROWS, "foreign"))
    return replace(parts, table=other)


def shrink(table: MemoryTable) -> None:
    table.delete(rid(f"k{n}") for n in range(GONE))


def overwrite(table: MemoryTable) -> None:
    table.overwrite(rows(GONE, ROWS))


def truncate(table: MemoryTable) -> None:
    table.overwrite({})


def undo(table: MemoryTable) -> None:
    """A savepoint restore, which is reconciled."""
    table.restore(1)


def empty_texts(table: MemoryTable) -> None:
    table.upsert(rows(0, GONE, None))


def refused(parts: SampleParts, options: SyncOptions = NO_OPTIONS) -> TooManyDeletes:
    """The refusal; check that nothing is embedded and the index is unchanged."""
    before, stands = indexed(parts), parts.store.open().frontier()
    with pytest.raises(TooManyDeletes) as caught:
        sync(parts, options)
    assert indexed(parts) == before
    assert parts.store.open().frontier() == stands
    assert parts.store.generation() == 1
    return caught.value


@pytest.mark.parametrize("change", [shrink, overwrite, truncate, undo, empty_texts])
def test_a_change_that_removes_most_rows_is_refused_and_then_allowed(
    parts: SampleParts, change: Callable[[MemoryTable], None]
) -> None:
    change(parts.table)
    error = refused(parts)
    assert parts.embedder.received == []
    assert error.exit_code == 3
    assert error.landed == "nothing was written"
    gone = ROWS if change is truncate else GONE
    assert f"{gone:,} of the {ROWS:,} rows" in error.fact
    assert "`lakewake sync sample --allow-deletes`" in error.hint
    sync(parts, ALLOWED)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_a_replaced_table_is_refused_before_anything_is_embedded(parts: SampleParts) -> None:
    parts = replace_table(parts)
    error = refused(parts)
    assert f"{ROWS:,} of the {ROWS:,} rows" in error.fact
    assert parts.embedder.received == []
    assert sync(parts, ALLOWED).rows_deleted == ROWS
    assert indexed(parts) == built_from_nothing(parts)


def test_a_replaced_table_with_another_type_is_refused_as_well(parts: SampleParts) -> None:
    parts = retype(parts)
    assert f"{ROWS:,} of the {ROWS:,} rows" in refused(parts).fact
    sync(parts, ALLOWED)
    assert parts.store.generation() == 2
    assert indexed(parts) == built_from_nothing(parts)


def test_a_rebuild_of_a_table_that_shrank_is_refused_before_anything_is_embedded(
    parts: SampleParts,
) -> None:
    truncate(parts.table)
    parts.table.upsert(rows(0, 10, "new"))
    assert f"{ROWS - 10:,} of the {ROWS:,} rows" in refused(parts, SyncOptions(rebuild=True)).fact
    assert parts.embedder.received == []
    assert sync(parts, SyncOptions(rebuild=True, allow_deletes=True)).rows_changed == 10


def test_a_rebuild_of_a_table_with_other_keys_is_refused(parts: SampleParts) -> None:
    assert f"{ROWS:,} of" in refused(replace_table(parts), SyncOptions(rebuild=True)).fact


def test_a_rebuild_of_the_same_rows_is_allowed(parts: SampleParts) -> None:
    shrink_a_little(parts.table)
    assert sync(parts, SyncOptions(rebuild=True)).action is Action.BUILD


def shrink_a_little(table: MemoryTable) -> None:
    table.delete(rid(f"k{n}") for n in range(GONE - 1))


def test_half_of_the_rows_may_be_deleted_by_default(parts: SampleParts) -> None:
    shrink_a_little(parts.table)
    assert sync(parts).rows_deleted == GONE - 1


def test_a_thousand_rows_may_be_deleted_whatever_their_share() -> None:
    parts = sample_parts()
    parts.table.upsert(rows(0, 1_000))
    sync(parts)
    truncate(parts.table)
    assert sync(parts).rows_deleted == 1_000


def test_rows_that_are_overwritten_with_the_same_keys_are_not_removed(parts: SampleParts) -> None:
    parts.table.overwrite(rows(0, ROWS, "other"))
    assert sync(parts).rows_changed == ROWS


@pytest.mark.parametrize(("share", "asks"), [(0.4, True), (0.6, False), (1.0, False), (0.0, True)])
def test_the_share_that_may_be_deleted_can_be_set(
    parts: SampleParts, share: float, asks: bool
) -> None:
    parts = replace(parts, max_delete=share)
    parts.table.delete(rid(f"k{n}") for n in range(1_100 if asks else GONE))
    if asks:
        refused(parts)
    else:
        assert sync(parts).rows_deleted == GONE


def test_a_plan_reports_that_the_sync_would_be_refused(parts: SampleParts) -> None:
    assert plan_next(parts).refused == ""
    shrink(parts.table)
    planned = plan_next(parts)
    assert (planned.rows_deleted, planned.as_dict()["refused"]) == (GONE, planned.refused)
    assert f"{GONE:,} of the {ROWS:,} rows" in planned.refused
    assert f"{ROWS:,} of the {ROWS:,} rows" in plan_next(retype(parts)).refused
