"""The reference table: slow writers, older copies, and how a sync handles them."""

from __future__ import annotations

import pytest

from lakewake.model.plan import Action
from lakewake.source.memory import History
from lakewake.sync import IndexParts, sync
from support.oracle import built_from_nothing, indexed
from support.sampling import rid, sample_parts, values


@pytest.fixture
def parts() -> IndexParts:
    """A built index of one row."""
    made = sample_parts()
    made.table.upsert({rid("a"): values("first")})
    sync(made)
    return made


def test_a_slow_writer_is_seen_in_flight_and_its_rows_are_not(parts):
    slow = parts.table.begin({rid("b"): values("slow")})
    assert parts.table.look(None).in_flight == (slow,)
    assert sync(parts).action is Action.NOTHING


def test_a_slow_writer_that_completes_after_a_later_one_is_followed(parts):
    slow = parts.table.begin({rid("b"): values("slow")})
    fast = parts.table.upsert({rid("c"): values("fast")})
    sync(parts)
    parts.table.complete(slow)
    assert slow < fast
    assert parts.table.look(None).newest == slow
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_slow_writer_completed_and_archived_between_two_syncs_is_not_lost(parts):
    slow = parts.table.begin({rid("b"): values("slow")})
    parts.table.upsert({rid("c"): values("fast")})
    sync(parts)
    parts.table.complete(slow)
    parts.table.archive(keep=1)
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert slow in report.why
    assert indexed(parts) == built_from_nothing(parts)


def test_no_commit_after_a_slow_writer_is_archived(parts):
    slow = parts.table.begin({rid("b"): values("slow")})
    parts.table.upsert({rid("c"): values("fast")})
    parts.table.upsert({rid("c"): values("faster")})
    parts.table.archive(keep=1)
    assert parts.table.look(None).instants[0].requested == slow


def test_an_aborted_writer_leaves_nothing_behind(parts):
    parts.table.abort(parts.table.begin({rid("b"): values("slow")}))
    assert parts.table.look(None).in_flight == ()
    assert sync(parts).action is Action.NOTHING


def test_an_older_copy_of_the_table_is_noticed(parts):
    copy = parts.table.history
    parts.table.upsert({rid("a"): values("second")})
    sync(parts)
    parts.table.history = copy
    assert sync(parts).action is Action.RECONCILE
    assert indexed(parts) == built_from_nothing(parts)


def test_a_table_created_again_is_noticed(parts):
    parts.table.history = History()
    parts.table.upsert({rid("z"): values("of the new table")})
    assert sync(parts).action is Action.RECONCILE
    assert list(indexed(parts)) == ['["p","z","text",0]']
