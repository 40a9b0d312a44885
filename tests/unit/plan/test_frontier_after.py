"""The frontier after a commit: decided without a store."""

from __future__ import annotations

from dataclasses import replace

from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.plan import Action, Plan
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.plan.after import Outcome, frontier_after_batch, frontier_after_repair

A, B, C = (RowId("", key) for key in "abc")
TOO_LONG = Refusal("too long", "1", attempts=2)
HELD = Frontier(
    TableIdentity("t", "id", "", "COPY_ON_WRITE"),
    {"1": "2"},
    duplicates=frozenset({C}),
    quarantine={A: TOO_LONG, B: TOO_LONG},
    sync=4,
)
NOTHING_SPECIAL = Outcome(HELD.duplicates, frozenset(), {}, frozenset())


def after(action: Action, outcome: Outcome) -> Frontier:
    return frontier_after_batch(Plan(action, "because", replace(HELD, sync=5)), HELD, outcome)


def test_a_follow_keeps_the_quarantine_as_the_same_object():
    assert after(Action.FOLLOW, NOTHING_SPECIAL).quarantine is HELD.quarantine


def test_a_quarantined_row_that_came_again_and_was_embedded_leaves_the_quarantine():
    outcome = replace(NOTHING_SPECIAL, seen_again={A})
    assert after(Action.FOLLOW, outcome).quarantine == {B: TOO_LONG}


def test_a_row_that_is_refused_again_counts_its_attempts():
    outcome = replace(NOTHING_SPECIAL, seen_again={A}, refused={A: Refusal("too long", "3")})
    assert after(Action.FOLLOW, outcome).quarantine[A].attempts == 3


def test_a_reconcile_reads_every_row_and_keeps_only_what_it_refused():
    outcome = replace(NOTHING_SPECIAL, refused={B: Refusal("too long", "3")})
    assert set(after(Action.RECONCILE, outcome).quarantine) == {B}


def test_rows_that_were_stored_twice_join_the_duplicates():
    assert after(Action.FOLLOW, replace(NOTHING_SPECIAL, stored_twice={A})).duplicates == {A, C}
    assert after(Action.FOLLOW, NOTHING_SPECIAL).duplicates is HELD.duplicates


def test_a_repair_absorbs_no_commit_and_adds_to_the_quarantine():
    repaired = frontier_after_repair(HELD, replace(HELD, quarantine={C: TOO_LONG}))
    assert repaired.instants == HELD.instants
    assert set(repaired.quarantine) == {A, B, C}
    assert repaired.sync == 5
