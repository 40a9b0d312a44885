"""A part of a long text changes: only the chunks that differ are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.model.recipe import Chunking, TextField
from lakewake.source.memory import MemoryTable
from lakewake.sync import SyncOptions, sync
from lakewake.verify import verify
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

RECIPE = sample_recipe(Chunking(tokens=14))
LINES = [f"Sentence number {n} speaks of wine and of its {n} friends." for n in range(100)]


def text(**edited: str) -> str:
    """A hundred sentences, some of them replaced by number."""
    return " ".join(edited.get(f"n{n}", line) for n, line in enumerate(LINES))


@pytest.fixture
def parts() -> SampleParts:
    """An index of one long row."""
    made = sample_parts(recipe=RECIPE)
    made.table.upsert({rid("a"): values(text())})
    assert sync(made).chunks_upserted == 100
    made.embedder.received.clear()
    return made


def test_an_edited_sentence_writes_only_its_chunk_and_the_first(parts):
    parts.table.upsert(
        {rid("a"): values(text(n50="One edit here, which is as long as the others are."))}
    )
    report = sync(parts)
    assert (report.rows_changed, report.embedded, report.chunks_upserted) == (1, 1, 2)
    assert (report.reused, report.chunks_deleted) == (1, 0)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_a_long_row_written_again_unchanged_is_left_alone(parts):
    parts.table.upsert({rid("a"): values(text())})
    report = sync(parts)
    assert (report.rows_changed, report.chunks_upserted) == (0, 0)


def test_an_undone_edit_is_noticed_and_embeds_nothing(parts):
    edited = text(n50="One edit here, which is as long as the others are.")
    for said in (edited, text(), edited):
        parts.table.upsert({rid("a"): values(said)})
        assert sync(parts).chunks_upserted == 2
        assert indexed(parts) == built_from_nothing(parts)
    assert len(parts.embedder.received) == 1


def test_a_shortened_text_loses_only_its_last_chunks(parts):
    parts.table.upsert({rid("a"): values(" ".join(LINES[:90]))})
    report = sync(parts)
    assert (report.chunks_upserted, report.chunks_deleted, report.embedded) == (1, 10, 0)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_changed_payload_is_written_to_every_chunk(parts):
    edited = text(n50="One edit here, which is as long as the others are.")
    parts.table.upsert({rid("a"): values(edited, num=7)})
    report = sync(parts)
    assert (report.embedded, report.chunks_upserted) == (1, 100)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_reconcile_after_an_edit_finds_nothing_to_do(parts):
    parts.table.upsert({rid("a"): values(text(n50="Short."))})
    sync(parts)
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.rows_changed, report.chunks_upserted) == (0, 0)


def test_the_first_chunk_of_each_field_holds_the_source_hash():
    two = (TextField("head", "{num}"), TextField("body", "{txt}"))
    recipe = replace(RECIPE, fields=two, payload=())
    parts = sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe)
    parts.table.upsert({rid("a"): values(text(), num=1)})
    sync(parts)
    parts.table.upsert({rid("a"): values(text(n99="The end."), num=1)})
    assert sync(parts).chunks_upserted == 3
    parts.table.upsert({rid("a"): values(text(n99="The end."), num=2)})
    assert sync(parts).chunks_upserted == 2
    parts.table.upsert({rid("a"): values(text(), num=1)})
    assert sync(parts).embedded == 0
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_an_older_index_with_a_source_hash_on_every_chunk_is_followed(parts):
    """An earlier version wrote such indexes."""
    version = parts.store._version
    source = next(c["_source_hash"] for c in version.held.to_pylist() if c["_chunk"] == 0)
    at = version.held.schema.get_field_index("_source_hash")
    old = version.held.set_column(at, "_source_hash", [[source] * 100])
    parts.store._version = replace(version, held=old.cast(version.held.schema))
    assert verify(parts).agrees
    parts.table.upsert(
        {rid("a"): values(text(n50="One edit here, which is as long as the others are."))}
    )
    report = sync(parts)
    assert (report.embedded, report.chunks_upserted) == (1, 2)
    assert verify(parts).agrees
    assert sync(parts, SyncOptions(reconcile=True)).rows_changed == 0
