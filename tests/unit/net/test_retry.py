"""How a sync continues after a failed attempt: decided without doing anything."""

from __future__ import annotations

import pytest

from lakewake.errors import HistoryLost, StaleFrontier, StoreError, StoreUnreachable
from lakewake.model.frontier import Frontier
from lakewake.model.options import SyncOptions
from lakewake.model.plan import Action, Plan
from lakewake.model.timeline import TableIdentity
from lakewake.plan.retry import options_after

AFTER = Frontier(TableIdentity("t", "id", "", "COPY_ON_WRITE"))
FOLLOW, RECONCILE = (Plan(a, "because", AFTER) for a in (Action.FOLLOW, Action.RECONCILE))


def after(error, options=None, plan=FOLLOW, *, copied=True, moved=False) -> SyncOptions:
    return options_after(
        error, options or SyncOptions(), plan, copied=copied, moved_on=lambda: moved
    )


def test_a_lost_race_is_run_again_with_the_same_options():
    asked = SyncOptions(rebuild=True, allow_deletes=True)
    assert after(StaleFrontier("late"), asked) == asked


def test_a_rebuild_for_damage_is_dropped_once_another_writer_has_built():
    healed = after(StaleFrontier("late"), SyncOptions(rebuild=True, why="a file is missing"))
    assert not healed.rebuild


def test_lost_history_leads_to_a_reconcile_that_names_it():
    options = after(HistoryLost("a file is gone"))
    assert (options.reconcile, options.why) == (True, "a file is gone")


@pytest.mark.parametrize(
    ("options", "plan"), [(SyncOptions(reconcile=False), FOLLOW), (SyncOptions(), RECONCILE)]
)
def test_lost_history_is_an_error_if_a_reconcile_is_ruled_out_or_failed_itself(options, plan):
    lost = HistoryLost("a file is gone")
    with pytest.raises(HistoryLost) as raised:
        after(lost, options, plan)
    assert raised.value is lost


def test_an_index_that_moved_on_is_read_again():
    assert after(StoreError("a file is missing"), moved=True) == SyncOptions()


def test_a_rebuild_that_cannot_read_the_old_index_goes_on_without_it():
    assert after(StoreError("a file is missing"), SyncOptions(rebuild=True)).alone


@pytest.mark.parametrize(
    ("error", "options", "copied"),
    [
        (StoreError("the disk is full"), SyncOptions(), True),
        (StoreError("the disk is full"), SyncOptions(rebuild=True), False),
        (StoreUnreachable("no answer"), SyncOptions(rebuild=True), True),
    ],
)
def test_other_store_errors_end_the_sync(error, options, copied):
    with pytest.raises(StoreError) as raised:
        after(error, options, copied=copied)
    assert raised.value is error
