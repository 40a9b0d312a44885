"""The flow, on a table and a store in memory."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pyarrow as pa
import pytest

from lakewake.embed.cache import MemoryVectorCache
from lakewake.errors import (
    ConfigError,
    HistoryLost,
    IndexMissing,
    OutcomeUnknown,
    RecipeMismatch,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking
from lakewake.source.memory import MemoryTable
from lakewake.store.memory import MemoryReader, MemoryStore
from lakewake.sync import SyncOptions, plan_next, sync
from lakewake.verify import verify
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


def test_a_build_embeds_every_text_once():
    parts = sample_parts()
    parts.table.upsert({rid("a"): values("same"), rid("b"): values("same"), rid("c"): values("x")})
    report = sync(parts)
    assert report.action is Action.BUILD
    assert sorted(parts.embedder.received) == ["same", "x"]
    assert (report.rows_changed, report.embedded, report.reused) == (3, 2, 1)
    assert len(indexed(parts)) == 3


def test_unchanged_text_is_not_embedded_again(parts):
    parts.table.upsert({rid("k0"): values("text 0")})
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 0)
    assert parts.embedder.received == []


def test_only_the_changed_text_is_embedded(parts):
    parts.table.upsert({rid("k0"): values("new"), rid("k1"): values("text 1")})
    report = sync(parts)
    assert parts.embedder.received == ["new"]
    assert (report.rows_changed, report.chunks_upserted) == (1, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_payload_change_patches_the_payload_and_embeds_nothing(parts):
    parts.table.upsert({rid("k0"): values("text 0", num=9)})
    report = sync(parts)
    assert parts.embedder.received == []
    assert (report.rows_changed, report.reused) == (1, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_text_that_another_row_has_is_copied_not_embedded():
    parts = sample_parts(vector_cache=Forgetful())
    parts.table.upsert({rid("a"): values("text")})
    sync(parts)
    parts.embedder.received.clear()
    parts.table.upsert({rid("b"): values("text")})
    assert sync(parts).reused == 1
    assert parts.embedder.received == []


class Forgetful(MemoryVectorCache):
    """A vector cache that is switched off."""

    def put(self, vectors):
        pass


def test_a_deleted_row_is_removed_and_embeds_nothing(parts):
    parts.table.delete([rid("k0")])
    report = sync(parts)
    assert (report.rows_deleted, report.chunks_deleted, report.embedded) == (1, 1, 0)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_row_deleted_and_inserted_again_is_not_embedded_again(parts):
    parts.table.delete([rid("k0")])
    sync(parts)
    parts.table.upsert({rid("k0"): values("text 0")})
    sync(parts)
    assert parts.embedder.received == []
    assert indexed(parts) == built_from_nothing(parts)


def test_nothing_new_reads_no_rows(parts):
    reads = parts.table.reads
    assert sync(parts).action is Action.NOTHING
    assert parts.table.reads == reads


def test_equal_keys_in_two_partitions_are_two_rows(parts):
    parts.table.upsert({rid("k0", "other"): values("of the other")})
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    parts.table.delete([rid("k0")])
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    assert len(indexed(parts)) == 3


def test_null_and_blank_texts_have_no_chunks_and_are_not_errors():
    parts = sample_parts()
    parts.table.upsert({rid("a"): values(None), rid("b"): values(" \n"), rid("c"): values("x")})
    assert sync(parts).rows_changed == 1
    assert verify(parts).agrees
    parts.table.upsert({rid("c"): values("")})
    assert sync(parts).chunks_deleted == 1
    assert indexed(parts) == {}
    assert verify(parts).agrees


def test_an_empty_table_makes_an_empty_index_that_the_first_commit_fills():
    parts = sample_parts()
    assert sync(parts).action is Action.BUILD
    assert sync(parts).action is Action.NOTHING
    parts.table.upsert({rid("a"): values("text", 3)})
    assert sync(parts).rows_changed == 1
    assert indexed(parts) == built_from_nothing(parts)


def test_an_edit_embeds_only_the_chunks_that_changed():
    recipe = sample_recipe(Chunking(tokens=10))
    parts = sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe)
    sentences = [f"This is sentence number {n} of the text." for n in range(8)]
    parts.table.upsert({rid("a"): values(" ".join(sentences))})
    chunks = sync(parts).embedded
    assert chunks >= 8
    parts.embedder.received.clear()
    sentences[7] = "Only the last one says something else."
    parts.table.upsert({rid("a"): values(" ".join(sentences))})
    report = sync(parts)
    assert parts.embedder.received == ["Only the last one says something else."]
    assert (report.chunks_upserted, report.reused) == (2, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_text_that_gets_shorter_loses_its_last_chunks():
    recipe = sample_recipe(Chunking(tokens=10))
    parts = sample_parts(MemoryTable(recipe, SCHEMA), recipe=recipe)
    parts.table.upsert({rid("a"): values(" ".join(f"Sentence {n} is here." for n in range(20)))})
    sync(parts)
    parts.table.upsert({rid("a"): values("Short now.")})
    report = sync(parts)
    assert report.chunks_deleted > 0
    assert list(indexed(parts)) == ['["p","a","text",0]']


def test_a_sync_that_lost_a_race_reads_again_and_finds_nothing_to_do(parts):
    parts.table.upsert({rid("k0"): values("new")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.memory.fail_before_commit = lambda: None
        parts.table.upsert({rid("k1"): values("newer still")})
        sync(rival)

    parts.memory.fail_before_commit = another_comes_first
    report = sync(parts)
    assert report.action is Action.NOTHING
    assert report.embedded == len(parts.embedder.received) == 1
    assert indexed(parts) == built_from_nothing(parts)


def test_two_syncers_with_the_same_batch_apply_it_once(parts):
    parts.table.upsert({rid("k0"): values("new")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.memory.fail_before_commit = lambda: None
        sync(rival)

    parts.memory.fail_before_commit = another_comes_first
    report = sync(parts)
    assert (report.action, report.rows_changed, report.instants) == (Action.NOTHING, 0, {})
    assert indexed(parts) == built_from_nothing(parts)
    assert sync(parts).action is Action.NOTHING


def test_a_reconcile_overtaken_by_a_follow_still_repairs_what_it_found(parts):
    lose_behind_our_back(parts, "k1")
    parts.table.upsert({rid("k9"): values("new")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.memory.fail_before_commit = lambda: None
        assert sync(rival).action is Action.FOLLOW

    parts.memory.fail_before_commit = another_comes_first
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 1)
    assert indexed(parts) == built_from_nothing(parts)


def lose_behind_our_back(parts: SampleParts, key: str) -> None:
    """Remove a row from an index without moving its frontier, as a faulty tool would."""
    index = parts.memory.open()
    chunks = [chunk for chunk in index.held.to_pylist() if chunk["_key"] != key]
    table = pa.Table.from_pylist(chunks, schema=index.schema())
    parts.memory._version = replace(index, held=table)


def lost_answer(parts: SampleParts) -> None:
    """Let the next commit land, but lose its answer."""

    def lose() -> None:
        parts.memory.fail_after_commit = lambda: None
        raise OutcomeUnknown("cut off")

    parts.memory.fail_after_commit = lose


@pytest.mark.parametrize(
    "options", [SyncOptions(), SyncOptions(reconcile=True), SyncOptions(rebuild=True)]
)
def test_a_commit_whose_answer_was_lost_is_recognised_and_reported(parts, options):
    instant = parts.table.upsert({rid("k0"): values("new"), rid("k1"): values("text 2")})
    generation = parts.store.generation() + options.rebuild
    changed, reused = (3, 2) if options.rebuild else (2, 1)
    lost_answer(parts)
    report = sync(parts, options)
    assert report.action is not Action.NOTHING
    assert (report.rows_changed, report.embedded, report.reused) == (changed, 1, reused)
    assert (list(report.instants), report.to_instant) == ([instant], instant)
    assert parts.store.generation() == generation
    assert indexed(parts) == built_from_nothing(parts)


def test_a_commit_of_another_sync_after_an_unknown_outcome_is_not_claimed(parts):
    parts.table.upsert({rid("k0"): values("new")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.memory.fail_before_commit = lambda: None
        sync(rival)
        raise OutcomeUnknown("cut off")

    parts.memory.fail_before_commit = another_comes_first
    report = sync(parts)
    assert (report.action, report.rows_changed, report.embedded) == (Action.NOTHING, 0, 1)


def test_a_commit_that_did_not_land_is_tried_again(parts):
    parts.table.upsert({rid("k0"): values("new")})

    def cut_off() -> None:
        parts.memory.fail_before_commit = lambda: None
        raise OutcomeUnknown("cut off")

    parts.memory.fail_before_commit = cut_off
    report = sync(parts)
    assert (report.action, report.rows_changed, report.embedded) == (Action.FOLLOW, 1, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_an_index_written_before_tokens_existed_is_followed(parts):
    index = parts.store.open()
    parts.memory._version = replace(index, absorbed=replace(index.frontier(), token=""))
    parts.table.upsert({rid("k0"): values("new")})
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)


def test_two_builders_make_one_index():
    parts = sample_parts()
    parts.table.upsert({rid("a"): values("text")})
    rival = sample_parts(parts.table, parts.store)

    def another_comes_first() -> None:
        parts.memory.fail_before_commit = lambda: None
        sync(rival)

    parts.memory.fail_before_commit = another_comes_first
    assert sync(parts).action is Action.NOTHING
    assert parts.store.open().generation == 1


def test_a_writer_that_always_loses_gives_up_with_an_error(parts):
    parts.table.upsert({rid("k0"): values("new")})

    def lose() -> None:
        raise StaleFrontier("another one was first")

    parts.memory.fail_before_commit = lose
    with pytest.raises(StoreError, match="5 times in a row") as stopped:
        sync(parts)
    assert stopped.value.landed == "nothing was written to 'sample'"


def test_a_commit_during_the_read_is_included(parts, monkeypatch):
    parts.table.upsert({rid("k0"): values("first")})
    look = parts.table.look

    def look_then_commit(frontier):
        seen = look(frontier)
        monkeypatch.setattr(parts.table, "look", look)
        parts.table.upsert({rid("k1"): values("second")})
        return seen

    monkeypatch.setattr(parts.table, "look", look_then_commit)
    assert sync(parts).rows_changed == 2
    assert indexed(parts) == built_from_nothing(parts)


def test_a_sync_cut_off_before_its_commit_changes_nothing_and_embeds_nothing_again(parts):
    before = indexed(parts)
    parts.table.upsert({rid("k0"): values("new")})

    def power_cut() -> None:
        raise KeyboardInterrupt

    parts.memory.fail_before_commit = power_cut
    with pytest.raises(KeyboardInterrupt) as stopped:
        sync(parts)
    assert stopped.value.__notes__ == ["nothing was written to 'sample'"]
    assert indexed(parts) == before
    parts.memory.fail_before_commit = lambda: None
    parts.embedder.received.clear()
    assert sync(parts).rows_changed == 1
    assert parts.embedder.received == []
    assert indexed(parts) == built_from_nothing(parts)


def test_a_sync_cut_off_after_its_commit_leaves_nothing_to_do(parts):
    parts.table.upsert({rid("k0"): values("new")})

    def power_cut() -> None:
        raise KeyboardInterrupt

    parts.memory.fail_after_commit = power_cut
    with pytest.raises(KeyboardInterrupt) as stopped:
        sync(parts)
    newest = parts.table.look(None).newest
    assert stopped.value.__notes__ == [f"the commit to 'sample' landed: the index is at {newest}"]
    parts.memory.fail_after_commit = lambda: None
    assert sync(parts).action is Action.NOTHING
    assert indexed(parts) == built_from_nothing(parts)


def test_a_sync_stopped_while_its_store_is_unreachable_does_not_guess(parts, monkeypatch):
    parts.table.upsert({rid("k0"): values("new")})

    def stop_and_lose_the_store() -> None:
        monkeypatch.setattr(parts.store, "open", away)
        raise SystemExit(143)

    def away() -> None:
        raise StoreUnreachable("it does not answer")

    parts.memory.fail_before_commit = stop_and_lose_the_store
    with pytest.raises(SystemExit) as stopped:
        sync(parts)
    assert stopped.value.__notes__ == ["whether the last commit to 'sample' landed is not known"]


def test_undone_commits_are_reconciled_and_named_and_nothing_known_is_embedded(parts):
    undone = parts.table.upsert({rid("k0"): values("to be undone"), rid("k7"): values("too")})
    sync(parts)
    parts.embedder.received.clear()
    parts.table.restore(1)
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert undone in report.why
    assert (report.rows_changed, report.rows_deleted) == (1, 1)
    assert parts.embedder.received == []
    assert indexed(parts) == built_from_nothing(parts)


def test_a_refused_reconcile_states_the_reason_and_writes_nothing(parts):
    undone = parts.table.upsert({rid("k0"): values("to be undone")})
    sync(parts)
    before = indexed(parts)
    parts.table.restore(1)
    with pytest.raises(HistoryLost) as error:
        sync(parts, SyncOptions(reconcile=False))
    assert undone in error.value.fact
    assert error.value.exit_code == 3
    assert indexed(parts) == before


def test_cleaned_files_are_an_error_if_reconcile_is_false(parts):
    parts.table.upsert({rid("k0"): values("new")})
    parts.table.clean(keep=1)
    with pytest.raises(HistoryLost, match="the cleaner"):
        sync(parts, SyncOptions(reconcile=False))


def test_a_requested_reconcile_of_an_index_in_step_changes_nothing(parts):
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 0)
    assert parts.embedder.received == []


def test_a_changed_type_of_a_used_column_makes_a_new_generation_and_embeds_nothing(parts):
    parts.table.retype("num", pa.float64())
    parts.table.upsert({rid(f"k{n}"): values(f"text {n}", 1.5) for n in range(3)})
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert "'num' went from" in report.why
    assert parts.embedder.received == []
    assert parts.store.open().generation == 2
    assert indexed(parts) == built_from_nothing(parts)


def test_a_rebuild_replaces_the_generation_and_embeds_nothing_it_knows(parts):
    parts.table.restore(1)
    report = sync(parts, SyncOptions(rebuild=True))
    assert (report.action, len(parts.embedder.received)) == (Action.BUILD, 0)
    assert parts.store.open().generation == 2
    assert indexed(parts) == built_from_nothing(parts)


class Unreadable:
    """An index whose vectors cannot be read."""

    def __init__(self, reader: MemoryReader, error: StoreError) -> None:
        self._reader, self._error = reader, error

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def vectors(self, hashes: object) -> dict:
        raise self._error


def with_an_unreadable_index(parts: SampleParts, error: StoreError, monkeypatch) -> SampleParts:
    index = Unreadable(parts.store.open(), error)
    monkeypatch.setattr(parts.store, "open", lambda: index)
    return replace(parts, vector_cache=MemoryVectorCache())


def test_a_rebuild_does_not_embed_again_what_an_unreachable_index_holds(parts, monkeypatch):
    away = StoreUnreachable("the store does not answer")
    other = with_an_unreadable_index(parts, away, monkeypatch)
    with pytest.raises(StoreUnreachable):
        sync(other, SyncOptions(rebuild=True))
    monkeypatch.undo()
    assert (parts.embedder.received, parts.store.generation()) == ([], 1)


def test_a_rebuild_embeds_again_what_a_damaged_index_held(parts, monkeypatch):
    damage = StoreError("a file is damaged")
    other = with_an_unreadable_index(parts, damage, monkeypatch)
    assert sync(other, SyncOptions(rebuild=True)).embedded == 3
    monkeypatch.undo()
    assert parts.store.generation() == 2
    assert indexed(parts) == built_from_nothing(parts)


def test_a_rebuild_waits_for_a_store_that_cannot_be_reached_at_all(parts, monkeypatch):
    def away() -> None:
        raise StoreUnreachable("the store does not answer")

    monkeypatch.setattr(parts.store, "open", away)
    with pytest.raises(StoreUnreachable):
        sync(replace(parts, vector_cache=MemoryVectorCache()), SyncOptions(rebuild=True))
    monkeypatch.undo()
    assert (parts.embedder.received, parts.store.generation()) == ([], 1)


def test_cleaned_files_are_reconciled_and_nothing_is_lost(parts):
    parts.table.upsert({rid("k0"): values("new")})
    parts.table.clean(keep=1)
    report = sync(parts)
    assert (report.action, report.embedded) == (Action.RECONCILE, 1)
    assert "the cleaner" in report.why
    assert indexed(parts) == built_from_nothing(parts)


def test_another_recipe_is_refused_with_what_differs(parts):
    other = replace(parts, recipe=replace(parts.recipe, metric="dot"))
    with pytest.raises(RecipeMismatch) as error:
        sync(other)
    assert "metric was 'cosine', is now 'dot'" in error.value.fact
    assert "--rebuild" in error.value.hint


def with_payload(parts, *columns):
    recipe = replace(parts.recipe, payload=columns)
    table = copy(parts.table)
    table._recipe = recipe
    return replace(parts, recipe=recipe, table=table, vector_cache=MemoryVectorCache())


@pytest.mark.parametrize("columns", [(), ("num", "txt"), ("txt", "num")])
def test_another_payload_alone_is_applied_by_a_sync_that_embeds_nothing(parts, columns):
    known = len(parts.embedder.received)
    parts.table.upsert({rid("k0"): values("new"), rid("k9"): values("newer")})
    other = with_payload(parts, *columns)
    plan = plan_next(other)
    assert (plan.action, plan.new_generation, plan.to_embed) == (Action.BUILD, True, 2)
    assert "the configured payload changed: " in plan.why
    report = sync(other)
    assert (report.action, report.embedded) == (Action.BUILD, 2)
    assert sorted(parts.embedder.received[known:]) == ["new", "newer"]
    assert indexed(other) == built_from_nothing(other)
    assert sync(other).action is Action.NOTHING


def test_a_payload_that_changes_with_another_part_of_the_recipe_needs_a_rebuild(parts):
    other = with_payload(parts)
    other = replace(other, recipe=replace(other.recipe, metric="dot"))
    with pytest.raises(RecipeMismatch, match=r"metric was .*; payload was|payload was .*; metric"):
        sync(other)


def test_a_change_of_payload_whose_outcome_is_unknown_lands_once(parts):
    def lost() -> None:
        parts.store.fail_after_commit = lambda: None
        raise OutcomeUnknown("the connection broke", hint="run the sync again")

    parts.store.fail_after_commit = lost
    other = with_payload(parts)
    generation = parts.store.generation()
    assert sync(other).embedded == 0
    assert parts.store.generation() == generation + 1
    assert indexed(other) == built_from_nothing(other)


def test_the_plan_of_a_rebuild_counts_all_texts_and_embeds_none(parts):
    known = len(parts.embedder.received)
    parts.table.upsert({rid("k0"): values("new")})
    plan = plan_next(parts, SyncOptions(rebuild=True))
    assert (plan.action, plan.to_embed, plan.reused) == (Action.BUILD, 1, 2)
    assert len(parts.embedder.received) == known
    assert sync(parts).action is Action.FOLLOW


def test_a_mistyped_column_is_not_reported_as_another_recipe(parts):
    other = replace(parts, recipe=replace(parts.recipe, payload=("nmu",)))
    with pytest.raises(ConfigError, match="no column 'nmu'"):
        sync(other)


def test_another_model_is_refused_with_what_differs(parts):
    model = replace(parts.recipe.model, precision="int8")
    other = replace(parts, recipe=replace(parts.recipe, model=model))
    with pytest.raises(RecipeMismatch, match=r"model\.precision was 'fp32', is now 'int8'"):
        sync(other)


def test_a_rebuild_with_another_model_embeds_everything_again(parts):
    model = replace(parts.recipe.model, precision="int8")
    other = replace(
        parts, recipe=replace(parts.recipe, model=model), vector_cache=MemoryVectorCache()
    )
    assert sync(other, SyncOptions(rebuild=True)).embedded == 3


def test_a_missing_column_is_refused(parts):
    other = replace(parts, recipe=replace(parts.recipe, payload=("nope",)))
    with pytest.raises(ConfigError, match="no column 'nope'"):
        sync(other, SyncOptions(rebuild=True))


def test_the_plan_counts_what_the_sync_then_does(parts):
    parts.table.upsert({rid("k0"): values("new"), rid("k5"): values("new"), rid("k6"): values("b")})
    parts.table.delete([rid("k1")])
    plan = plan_next(parts)
    assert parts.embedder.received == []
    report = sync(parts)
    assert (plan.to_embed, plan.reused) == (report.embedded, report.reused) == (2, 1)
    assert (plan.rows_changed, plan.rows_deleted) == (report.rows_changed, report.rows_deleted)
    assert (plan.from_instant, plan.to_instant) == (report.from_instant, report.to_instant)


def test_a_plan_writes_nothing(parts):
    parts.table.upsert({rid("k0"): values("new")})
    before = indexed(parts), parts.store.open().frontier()
    plan_next(parts)
    assert (indexed(parts), parts.store.open().frontier()) == before


def test_verify_agrees_after_a_sync(parts):
    report = verify(parts)
    assert report.agrees
    assert (report.rows, report.chunks, report.pending) == (3, 3, 0)


def test_verify_counts_rows_changed_since_the_frontier_as_pending(parts):
    parts.table.upsert({rid("k0"): values("new"), rid("new"): values("x")})
    parts.table.delete([rid("k1")])
    report = verify(parts)
    assert report.agrees
    assert report.pending == 3


def test_verify_names_missing_orphaned_and_stale_rows(parts):
    other = sample_parts()
    other.table.upsert(
        {rid("k0"): values("text 0"), rid("k1"): values("otherwise"), rid("k9"): values("9")}
    )
    sync(other)
    report = verify(replace(parts, store=other.store))
    assert not report.agrees
    assert (report.missing, report.orphaned) == ((rid("k2"),), (rid("k9"),))
    assert report.stale == (rid("k1"),)


def test_verify_reports_an_index_of_another_model(parts):
    model = replace(parts.recipe.model, precision="int8")
    report = verify(replace(parts, recipe=replace(parts.recipe, model=model)))
    assert not report.agrees
    assert report.wrong_model == 3


def test_verify_without_an_index_is_an_error():
    parts = sample_parts(store=MemoryStore())
    parts.table.upsert({rid("a"): values("x")})
    with pytest.raises(IndexMissing):
        verify(parts)


def test_verify_asks_to_sync_first_when_history_is_lost(parts):
    parts.table.upsert({rid("k0"): values("new")})
    sync(parts)
    parts.table.restore(1)
    with pytest.raises(HistoryLost, match="cannot be compared"):
        verify(parts)
