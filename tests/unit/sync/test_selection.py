"""An index of selected rows: they enter and leave with changes and with days."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from lakewake.config.settings import IndexSettings
from lakewake.errors import ConfigError, HistoryLost, RecipeMismatch
from lakewake.model.plan import Action
from lakewake.model.selection import parse_selection
from lakewake.source.memory import MemoryTable
from lakewake.sync import NO_OPTIONS, SyncOptions, plan_next, sync
from lakewake.sync.status import status_report
from lakewake.verify import repair, verify
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

#: Row `kN` enters on the first of January plus N days, and leaves two days later.
WINDOW = "date_add(DATE'2026-01-01', num) BETWEEN date_sub(current_date(), 1) AND current_date()"
SETTINGS = IndexSettings("sample", "table", "memory://")


def selecting(where: str, parts: SampleParts | None = None) -> SampleParts:
    """An index of the rows that a condition selects; the same index with another condition."""
    recipe = replace(sample_recipe(), where=where and parse_selection(where).text)
    table = MemoryTable(recipe, SCHEMA)
    if parts is None:
        table.upsert({rid(f"k{n}"): values(f"text {n}", n) for n in range(8)})
        return sample_parts(table, recipe=recipe)
    table.history, table._clock, table.date = (
        parts.table.history,
        parts.table._clock,
        parts.table.date,
    )
    return replace(parts, table=table, recipe=recipe)


@pytest.fixture
def parts() -> SampleParts:
    """The index on the third of January: it holds k1 and k2."""
    made = selecting(WINDOW)
    made.table.date = "2026-01-03"
    sync(made)
    made.embedder.received.clear()
    return made


def keys(parts: SampleParts) -> set[str]:
    assert indexed(parts) == built_from_nothing(parts)
    return {chunk["_key"] for chunk, _ in indexed(parts).values()}


def test_a_day_that_passes_is_a_sync_without_commits(parts):
    assert keys(parts) == {"k1", "k2"}
    parts.table.date = "2026-01-04"
    planned = plan_next(parts)
    assert (planned.action, planned.pending) == (Action.FOLLOW, ())
    assert (planned.rows_changed, planned.rows_deleted, planned.to_embed) == (1, 1, 1)
    report = sync(parts)
    assert report.why == "rows are selected on 2026-01-04, the index is at 2026-01-03"
    assert (report.embedded, report.rows_deleted) == (1, 1)
    assert keys(parts) == {"k2", "k3"}
    assert sync(parts).action is Action.NOTHING


def test_commits_are_followed_before_the_day_moves(parts):
    parts.table.upsert({rid("k2"): values("other", 2), rid("k3"): values("third", 3)})
    parts.table.date = "2026-01-05"
    assert plan_next(parts).why.endswith("rows are selected on 2026-01-05, which is not counted")
    report = sync(parts)
    assert report.why.startswith("1 new commit (upsert); rows are selected on 2026-01-05")
    assert keys(parts) == {"k3", "k4"}


def test_a_table_that_commits_all_the_time_does_not_hold_up_the_day(parts, monkeypatch):
    look = parts.table.look
    written = iter(range(100, 120))

    def look_after_a_commit(frontier):
        if frontier is not None and len(parts.table.history.commits) < 6:
            parts.table.upsert({rid(f"k{(n := next(written))}"): values("busy", n)})
        return look(frontier)

    parts.table.date = "2026-01-04"
    monkeypatch.setattr(parts.table, "look", look_after_a_commit)
    report = sync(parts)
    assert "commits keep coming" in report.why
    assert parts.store.open().frontier().date == "2026-01-04"


def test_rows_that_leave_need_consent_if_they_are_most_of_the_index(parts, monkeypatch):
    monkeypatch.setattr("lakewake.plan.deletes.UNASKED", 0)
    monkeypatch.setattr("lakewake.sync.deletes.UNASKED", 0)
    parts.table.date = "2026-02-01"
    assert "2 of the 2 rows" in plan_next(parts).refused
    assert sync(parts, SyncOptions(allow_deletes=True)).rows_deleted == 2


def test_verify_and_repair_compare_on_the_day_of_the_index(parts):
    parts.table.date = "2026-01-06"
    assert verify(parts).date == "2026-01-03"
    assert repair(parts).repaired == 0
    assert indexed(parts).keys() != built_from_nothing(parts).keys()


def test_the_status_counts_from_the_end_of_the_day(parts):
    status = status_report(parts, SETTINGS, None)
    assert (status.in_step, status.lag_seconds) == (True, 0)
    assert (status.where, status.date) == (parts.recipe.where, "2026-01-03")
    parts.table.date = "2026-01-04"
    status = status_report(parts, SETTINGS, None)
    assert (status.in_step, status.lag_commits) == (False, 0)
    # 2026-01-04 00:00 UTC.
    assert status.lag_seconds == pytest.approx(max(0.0, time.time() - 1_767_484_800), abs=60)


def test_another_condition_builds_the_index_again_without_embedding_what_is_known(parts):
    other = selecting("num < 4", parts)
    with pytest.raises(RecipeMismatch, match="where was") as refused:
        sync(other, SyncOptions(reconcile=False))
    assert refused.value.hint == "`lakewake sync sample` writes it again with the new one"
    with pytest.raises(RecipeMismatch):
        verify(other)
    planned = plan_next(other)
    assert (planned.action, planned.to_embed, planned.reused) == (Action.BUILD, 2, 2)
    report = sync(other)
    assert (report.embedded, report.reused) == (2, 2)
    assert keys(other) == {"k0", "k1", "k2", "k3"}
    assert sync(selecting("", other)).embedded == 4
    assert sync(selecting(WINDOW, other)).embedded == 0


def test_a_condition_and_a_payload_that_changed_are_applied_by_one_sync(parts):
    other = selecting("num < 4", parts)
    other = replace(other, recipe=replace(other.recipe, payload=()))
    report = sync(other)
    assert (report.embedded, report.reused) == (2, 2)
    assert keys(other) == {"k0", "k1", "k2", "k3"}
    assert parts.store.open().recipe() == other.recipe
    assert "payload" in report.why
    assert "selected by" in report.why


def test_a_condition_and_a_metric_that_changed_need_a_rebuild_that_is_asked_for(parts):
    other = selecting("num < 4", parts)
    other = replace(other, recipe=replace(other.recipe, metric="dot"))
    with pytest.raises(RecipeMismatch) as refused:
        sync(other)
    assert "--rebuild" in refused.value.hint


def test_a_row_that_enters_though_the_index_has_it_is_looked_up(parts, monkeypatch):
    moved = parts.table.moved

    def moved_with_a_copy(look, frontier):
        found = moved(look, frontier)
        rows = [replace(b, ids=(rid("k2"),), appeared=frozenset({rid("k2")})) for b in found.rows]
        return replace(found, rows=rows)

    monkeypatch.setattr(parts.table, "moved", moved_with_a_copy)
    parts.table.date = "2026-01-04"
    with pytest.raises(HistoryLost, match="twice"):
        sync(parts, SyncOptions(reconcile=False))
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert keys(parts) == {"k2", "k3"}


def test_a_first_try_holds_the_first_rows_and_says_so():
    parts = selecting("num > 1")
    report = sync(parts, SyncOptions(limit=3))
    assert (report.action, report.why) == (Action.BUILD, "the first 3 rows were asked for")
    assert {c["_key"] for c, _ in indexed(parts).values()} == {"k2", "k3", "k4"}
    found = verify(parts)
    assert (found.agrees, found.limit, found.as_dict()["limit"]) == (True, 3, 3)
    status = status_report(parts, SETTINGS, None)
    assert (status.in_step, status.limit, status.would) == (False, 3, Action.BUILD)
    assert sync(parts, SyncOptions(limit=3)).action is Action.NOTHING


def test_a_first_try_is_completed_and_embeds_nothing_twice():
    parts = selecting("")
    sync(parts, SyncOptions(limit=3))
    parts.table.upsert({rid("k1"): values("text 1 again", 1)})
    with pytest.raises(HistoryLost):
        verify(parts)
    report = sync(parts, SyncOptions(limit=5))
    assert (report.embedded, report.reused) == (3, 2)
    report = sync(parts)
    assert report.why == "the index holds the first 5 rows of a first try"
    assert (report.embedded, report.reused) == (3, 5)
    assert len(keys(parts)) == 8
    assert parts.store.open().frontier().limit == 0
    assert sync(parts).action is Action.NOTHING


def test_a_whole_index_is_not_replaced_by_a_first_try():
    parts = selecting("")
    sync(parts)
    with pytest.raises(ConfigError, match="holds all its rows already"):
        sync(parts, SyncOptions(limit=3))
    assert len(keys(parts)) == 8
    assert sync(parts, NO_OPTIONS).action is Action.NOTHING
