"""Rows that the embedder refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import EmbedError, HistoryLost, TextRefused
from lakewake.model.chunks import chunk_id
from lakewake.model.frontier import Refusal
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking
from lakewake.model.rows import Changes
from lakewake.source.memory import MemoryTable
from lakewake.sync import SyncOptions, plan_next, sync
from lakewake.sync.situation import assess_version, preparation
from lakewake.verify import verify
from support.oracle import built_from_nothing, indexed
from support.sampling import HASHING, SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values


class Choosy(HashingEmbedder):
    """An embedder that refuses texts with a certain word, as a provider does."""

    word = "refused"

    def embed(self, texts):
        reasons = {n: "too odd" for n, t in enumerate(texts) if self.word and self.word in t}
        vectors = super().embed(texts)
        if reasons:
            raise TextRefused("some are refused", reasons, vectors)
        return vectors


@pytest.fixture
def choosy() -> SampleParts:
    """An index of twenty rows whose embedder refuses some texts."""
    made = replace(sample_parts(), embedder=Choosy(HASHING))
    made.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(20)})
    sync(made)
    made.embedder.received.clear()
    return made


def test_a_refused_row_is_quarantined_and_its_old_vector_is_removed(choosy):
    instant = choosy.table.upsert({rid("k0"): values("refused"), rid("k1"): values("fine")})
    report = sync(choosy)
    assert report.quarantined == 1
    assert report.embedded == len(choosy.embedder.received) == 2
    frontier = choosy.store.open().frontier()
    assert frontier.quarantine == {rid("k0"): Refusal("too odd", instant, 1)}
    assert chunk_id(rid("k0"), "text", 0) not in indexed(choosy)
    assert indexed(choosy)[chunk_id(rid("k1"), "text", 0)][0]["_text"] == "fine"
    assert sync(choosy).action is Action.NOTHING


def test_reused_counts_only_chunks_that_are_written():
    recipe = sample_recipe(Chunking(tokens=10))
    parts = replace(
        sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe), embedder=Choosy(HASHING)
    )
    known, new = "This is a sentence of some ten words or so.", "And this is one more of about ten."
    parts.table.upsert({rid("a"): values(known)})
    sync(parts)
    refused = "This one is refused by the model."
    parts.table.upsert(
        {rid("b"): values(f"{known} {new} {refused}"), rid("c"): values(f"{known} {new}")}
    )
    report = sync(parts)
    assert (report.quarantined, report.chunks_upserted) == (1, 2)
    assert (report.embedded, report.reused) == (2, 1)


def test_verify_counts_quarantined_rows_and_agrees(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    report = verify(choosy)
    assert report.agrees
    assert report.quarantined == 1


def test_a_later_change_of_a_quarantined_row_clears_it(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    choosy.table.upsert({rid("k0"): values("mended")})
    sync(choosy)
    assert choosy.store.open().frontier().quarantine == {}
    assert indexed(choosy) == built_from_nothing(choosy)


def test_a_quarantined_row_that_is_deleted_is_forgotten(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    choosy.table.delete([rid("k0")])
    sync(choosy)
    assert choosy.store.open().frontier().quarantine == {}
    assert indexed(choosy) == built_from_nothing(choosy)


def test_other_changes_leave_the_quarantine_alone(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    before = choosy.store.open().frontier().quarantine
    choosy.embedder.received.clear()
    choosy.table.upsert({rid("k1"): values("other")})
    sync(choosy)
    assert list(before) == [rid("k0")]
    assert choosy.store.open().frontier().quarantine == before
    assert choosy.embedder.received == ["other"]


def test_a_reconcile_tries_quarantined_rows_again(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    sync(choosy, SyncOptions(reconcile=True))
    assert choosy.store.open().frontier().quarantine[rid("k0")].attempts == 2
    choosy.embedder.word = ""
    sync(choosy, SyncOptions(reconcile=True))
    assert choosy.store.open().frontier().quarantine == {}
    assert indexed(choosy) == built_from_nothing(choosy)


def test_quarantined_rows_are_tried_again_on_request(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    sync(choosy, SyncOptions(retry_quarantined=True))
    assert choosy.store.open().frontier().quarantine[rid("k0")].attempts == 2
    choosy.embedder.word = ""
    report = sync(choosy, SyncOptions(retry_quarantined=True))
    assert report.rows_changed == 1
    assert choosy.store.open().frontier().quarantine == {}
    assert indexed(choosy) == built_from_nothing(choosy)


def test_new_commits_and_quarantined_rows_are_handled_in_one_sync_on_request(choosy):
    choosy.table.upsert({rid("k0"): values("refused")})
    sync(choosy)
    choosy.embedder.word = ""
    choosy.table.upsert({rid("k1"): values("other")})
    report = sync(choosy, SyncOptions(retry_quarantined=True))
    assert (report.rows_changed, report.quarantined) == (2, 0)
    assert indexed(choosy) == built_from_nothing(choosy)


def test_many_refusals_fail_the_sync_and_nothing_lands(choosy):
    before = indexed(choosy), choosy.store.open().frontier()
    choosy.table.upsert({rid(f"k{n}"): values(f"refused {n}") for n in range(11)})
    with pytest.raises(EmbedError, match="refused 11 of 11 rows"):
        sync(choosy)
    assert (indexed(choosy), choosy.store.open().frontier()) == before


def test_a_tenth_of_a_large_batch_may_be_refused():
    parts = replace(sample_parts(), embedder=Choosy(HASHING))
    rows = {rid(f"k{n}"): values(f"text {n}") for n in range(200)}
    rows |= {rid(f"r{n}"): values(f"refused {n}") for n in range(20)}
    parts.table.upsert(rows)
    report = sync(parts)
    assert (report.quarantined, len(indexed(parts))) == (20, 200)


def test_a_row_with_one_refused_chunk_is_quarantined_whole():
    recipe = sample_recipe(Chunking(tokens=10))
    parts = sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe)
    parts = replace(parts, embedder=Choosy(HASHING))
    text = "This first sentence is fine as it is. This one is refused by everybody."
    parts.table.upsert({rid("a"): values(text), rid("b"): values("fine")})
    assert sync(parts).quarantined == 1
    assert list(indexed(parts)) == [chunk_id(rid("b"), "text", 0)]


def test_quarantined_rows_do_not_prevent_a_reconcile():
    parts = replace(sample_parts(), embedder=Choosy(HASHING))
    rows = {rid(f"k{n}"): values(f"text {n}") for n in range(200)}
    rows |= {rid(f"r{n}"): values(f"refused {n}") for n in range(12)}
    parts.table.upsert(rows)
    assert sync(parts).quarantined == 12
    again = sync(parts, SyncOptions(reconcile=True))
    assert (again.action, again.quarantined) == (Action.RECONCILE, 12)
    assert sync(parts, SyncOptions(retry_quarantined=True)).quarantined == 12
    assert len(parts.store.open().frontier().quarantine) == 12


class BrokenBytes(MemoryTable):
    """A table in which the bytes of some rows are not valid Unicode."""

    broken = frozenset({rid("broken")})

    def _batch(self, rows, schema):
        made = super()._batch(rows, schema)
        return replace(made, undecodable=self.broken.intersection(made.ids))


@pytest.mark.parametrize("together", [True, False])
def test_a_row_with_a_valid_replacement_character_is_indexed(together):
    parts = sample_parts(BrokenBytes(sample_recipe(), SCHEMA))
    parts.table.upsert({rid("broken"): values("caf\ufffd"), rid("a"): values("other")})
    if not together:
        sync(parts)
    parts.table.upsert({rid("valid"): values("caf\ufffd")})
    sync(parts)
    assert sorted(parts.embedder.received) == ["caf\ufffd", "other"]
    assert chunk_id(rid("valid"), "text", 0) in indexed(parts)
    assert list(parts.store.open().frontier().quarantine) == [rid("broken")]


def test_a_delete_of_an_older_version_than_the_indexed_one_raises(choosy):
    work = preparation(choosy, assess_version(choosy, choosy.store.open()))
    held = choosy.store.open().existing([rid("k0")])[rid("k0")][0]
    newer = Changes((), (rid("k0"),), removed={rid("k0"): held.instant + "1"})
    assert list(work.gone(newer)) == [held.id]
    older = replace(newer, removed={rid("k0"): "2000"})
    with pytest.raises(HistoryLost, match="the table held it twice"):
        work.gone(older)


class TwoCopies(MemoryTable):
    """A table in which the deleted version of a row is an older copy; another one stays."""

    def changes(self, look, frontier, pending, shared=None):
        found = super().changes(look, frontier, pending, shared)
        return replace(found, deleted=(rid("k0"),), removed={rid("k0"): "2000"})


@pytest.mark.parametrize("work", [sync, plan_next])
def test_a_row_whose_older_copy_was_deleted_is_compared_with_the_table(work):
    parts = sample_parts(TwoCopies(sample_recipe(), SCHEMA))
    parts.table.upsert({rid("k0"): values("newer copy"), rid("k1"): values("text")})
    sync(parts)
    parts.table.upsert({rid("k1"): values("changed")})
    report = work(parts)
    assert (report.action, report.rows_changed, report.rows_deleted) == (Action.RECONCILE, 1, 0)
    assert "the table held it twice" in report.why
    if work is sync:
        assert report.embedded == 1
        assert indexed(parts) == built_from_nothing(parts)
