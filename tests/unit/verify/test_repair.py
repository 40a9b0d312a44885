"""Verify finds what differs, and repair corrects exactly that."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakewake.errors import OutcomeUnknown, TableError
from lakewake.model.recipe import TextField
from lakewake.model.rows import RowId
from lakewake.source.memory import MemoryTable
from lakewake.sync import ATTEMPTS, sync
from lakewake.verify import repair, verify
from lakewake.verify.vectors import Vectors
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values


@pytest.fixture
def parts() -> SampleParts:
    """An index of three rows, built, the embedder's count at zero."""
    made = sample_parts()
    made.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(3)})
    sync(made)
    made.embedder.received.clear()
    return made


def spoil(parts: SampleParts, row: RowId, column: str, value: object) -> None:
    """Put something else into an index without a sync, as a faulty tool would."""
    index = parts.memory.open()
    chunks = index.held.to_pylist()
    for chunk in chunks:
        if chunk["_key"] == row.key:
            chunk[column] = value(chunk[column]) if callable(value) else value
    spoilt = pa.Table.from_pylist(chunks, schema=index.schema())
    parts.memory._version = replace(index, held=spoilt)


def lose(parts: SampleParts, **where: object) -> None:
    """Remove chunks from an index without a sync."""
    index = parts.memory.open()
    chunks = [c for c in index.held.to_pylist() if any(c[k] != v for k, v in where.items())]
    kept = pa.Table.from_pylist(chunks, schema=index.schema())
    parts.memory._version = replace(index, held=kept)


def turned(vector: list[float]) -> list[float]:
    return list(reversed(vector))


def test_a_repair_corrects_what_differs_and_embeds_only_unknown_texts(parts):
    other = sample_parts()
    other.table.upsert(
        {rid("k0"): values("text 0"), rid("k1"): values("otherwise"), rid("k9"): values("9")}
    )
    sync(other)
    mixed = replace(parts, store=other.store)
    report = repair(mixed, Vectors.NONE)
    assert (report.agrees, report.repaired) == (True, 3)
    assert indexed(mixed) == built_from_nothing(mixed)
    assert parts.embedder.received == []  # the vector cache had both


@pytest.mark.parametrize(
    ("column", "value"), [("_text", "forged"), ("num", 99), ("_payload_hash", "x")]
)
def test_a_forged_column_is_found_and_repaired(parts, column, value):
    spoil(parts, rid("k1"), column, value)
    report = verify(parts)
    assert report.stale == (rid("k1"),)
    mended = repair(parts)
    assert (mended.agrees, mended.repaired) == (True, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_lost_text_field_is_found_and_repaired():
    recipe = replace(
        sample_recipe(), fields=(TextField("text", "{txt}"), TextField("number", "{num}"))
    )
    parts = sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe)
    parts.table.upsert({rid("a"): values("text", 1), rid("b"): values(None, 2)})
    sync(parts)
    lose(parts, _key="a", _field="number")
    assert verify(parts).stale == (rid("a"),)
    assert repair(parts).agrees
    assert indexed(parts) == built_from_nothing(parts)


def test_a_wrong_vector_is_found_and_embedded_again(parts):
    spoil(parts, rid("k1"), "_vector", turned)
    assert verify(parts, Vectors.NONE).agrees
    assert verify(parts, Vectors.ALL).stale == (rid("k1"),)
    mended = repair(parts, Vectors.ALL)
    assert (mended.agrees, mended.repaired) == (True, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_sample_of_a_small_index_checks_all_of_it(parts):
    spoil(parts, rid("k1"), "_vector", turned)
    report = verify(parts)
    assert (report.stale, report.vectors_checked) == ((rid("k1"),), 3)


def test_a_repair_while_rows_are_pending_leaves_those_to_the_next_sync(parts):
    spoil(parts, rid("k1"), "_vector", turned)
    parts.table.upsert({rid("k0"): values("newer")})
    report = repair(parts, Vectors.ALL)
    assert (report.agrees, report.pending, report.repaired) == (True, 1, 1)
    assert sync(parts).rows_changed == 1
    assert indexed(parts) == built_from_nothing(parts)


def test_a_repair_without_differences_writes_nothing(parts):
    before = parts.store.open()
    assert repair(parts).agrees
    assert parts.store.open() is before


def test_a_repair_that_loses_a_race_compares_again(parts):
    spoil(parts, rid("k1"), "_text", "forged")
    parts.table.upsert({rid("k0"): values("newer")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.store.fail_before_commit = lambda: None
        sync(rival)

    parts.store.fail_before_commit = another_comes_first
    assert repair(parts).agrees
    assert indexed(parts) == built_from_nothing(parts)


def test_a_repair_overtaken_by_another_counts_nothing_as_its_own(parts):
    spoil(parts, rid("k1"), "_text", "forged")
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.store.fail_before_commit = lambda: None
        assert repair(rival).repaired == 1

    parts.store.fail_before_commit = another_comes_first
    report = repair(parts)
    assert (report.agrees, report.repaired) == (True, 0)


def test_a_repair_whose_answer_was_lost_counts_what_it_corrected(parts):
    spoil(parts, rid("k1"), "_text", "forged")

    def lose() -> None:
        parts.store.fail_after_commit = lambda: None
        raise OutcomeUnknown("cut off")

    parts.store.fail_after_commit = lose
    report = repair(parts)
    assert (report.agrees, report.repaired) == (True, 1)


def test_a_repair_that_never_catches_up_reports_what_it_repaired(parts):
    def spoil_again() -> None:
        spoil(parts, rid("k0"), "_text", "forged")

    spoil_again()
    parts.store.fail_after_commit = spoil_again
    with pytest.raises(TableError, match="faster than it can be repaired") as stopped:
        repair(parts)
    assert stopped.value.landed.startswith(f"{ATTEMPTS} rows were repaired")


def test_an_index_of_another_model_is_not_repaired_row_by_row(parts):
    model = replace(parts.recipe.model, precision="int8")
    other = replace(parts, recipe=replace(parts.recipe, model=model))
    report = repair(other)
    assert (report.agrees, report.wrong_model, report.repaired) == (False, 3, 0)
