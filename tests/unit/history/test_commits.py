"""The table's commits, and the sync that absorbed each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakewake.api import Index
from lakewake.model.frontier import Frontier
from lakewake.model.history import CommitMark, SyncRecord, mark_commits
from lakewake.model.timeline import Instant, Look, TableIdentity
from support.following import follow, table_of
from support.sampling import rid, values

TABLE = TableIdentity("t", "id", "", "COPY_ON_WRITE")


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = follow(f"memory://{tmp_path}")
    table_of(made).upsert({rid("a"): values("one")})
    table_of(made).upsert({rid("b"): values("two")})
    made.sync()
    return made


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine five hours behind UTC, in winter."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def absorbed_by(marks: tuple[CommitMark, ...]) -> list[tuple[str, bool, str | None]]:
    return [(m.instant, m.absorbed, m.record.action if m.record else None) for m in marks]


def test_each_commit_names_the_sync_that_absorbed_it(index: Index) -> None:
    first, second = sorted(table_of(index).look(None).completed)
    third = table_of(index).upsert({rid("c"): values("three")})
    index.sync()
    fourth = table_of(index).delete([rid("c")])
    marks = index.commits()
    assert absorbed_by(marks) == [
        (fourth, False, None),
        (third, True, "follow"),
        (second, True, "build"),
        (first, True, "build"),
    ]
    assert marks[1].synced == index.history(1)[0].time
    assert marks[0].synced is None


def test_commits_absorbed_together_name_the_same_sync(index: Index) -> None:
    some = [table_of(index).upsert({rid("c"): values(f"text {n}")}) for n in range(3)]
    index.sync()
    records = {m.instant: m.record for m in index.commits()}
    assert {records[i] and records[i].to_instant for i in some} == {some[-1]}
    assert records[some[0]] == index.history(1)[0]


def test_a_commit_that_was_requested_before_another_and_completed_later_names_its_own_sync(
    index: Index,
) -> None:
    slow = table_of(index).begin({rid("s"): values("slow")})
    quick = table_of(index).upsert({rid("q"): values("quick")})
    index.sync()
    assert absorbed_by(index.commits(2)) == [(quick, True, "follow"), (slow, False, None)]
    table_of(index).complete(slow)
    index.sync()
    newest, before = index.history(2)
    assert newest.from_instant > newest.to_instant
    by = {m.instant: m.record for m in index.commits()}
    assert (by[slow], by[quick]) == (newest, before)


def test_a_commit_in_flight_has_not_completed(index: Index) -> None:
    slow = table_of(index).begin({rid("s"): values("slow")})
    mark = index.commits(1)[0]
    assert (mark.instant, mark.completed, mark.absorbed) == (slow, None, False)
    assert mark.as_dict() == {
        "instant": slow,
        "action": "commit",
        "completed": None,
        "absorbed": False,
        "synced": None,
        "record": None,
    }


def test_a_rebuild_does_not_claim_commits_absorbed_earlier(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    index.sync()
    before = {m.instant: m.record for m in index.commits()}
    table_of(index).upsert({rid("c"): values("four")})
    index.sync(rebuild=True)
    after = {m.instant: m.record for m in index.commits()}
    assert {i: after[i] for i in before} == before
    assert after[max(after)] == index.history(1)[0]


def test_a_commit_without_its_sync_record_is_still_absorbed(index: Index) -> None:
    marks = mark_commits(
        table_of(index).look(None), index.parts.store.open().frontier(), iter(()), 50
    )
    assert [(m.absorbed, m.record) for m in marks] == [(True, None)] * 2


def test_without_an_index_no_commit_is_absorbed(tmp_path: Path) -> None:
    index = follow(f"memory://{tmp_path}")
    table_of(index).upsert({rid("a"): values("one")})
    assert [m.absorbed for m in index.commits()] == [False]


def test_only_the_newest_commits_are_listed(index: Index) -> None:
    assert [len(index.commits(n)) for n in (1, 2, 9)] == [1, 2, 2]


def test_an_instant_that_completed_again_at_another_time_is_another_commit() -> None:
    look = Look(TABLE, (Instant("20250301120000000", "20250301130000000", "commit"),), {})
    then = SyncRecord(datetime.now(UTC), "t", "follow", instants={"20250301120000000": "x"})
    stale = Frontier(TABLE, {"20250301120000000": "x"})
    assert [m.absorbed for m in mark_commits(look, stale, [then], 9)] == [False]
    fresh = Frontier(TABLE, {"20250301120000000": "20250301130000000"})
    assert [m.record for m in mark_commits(look, fresh, [then], 9)] == [None]


def test_records_are_read_only_until_all_commits_have_theirs(index: Index) -> None:
    def records() -> Iterator[SyncRecord]:
        yield from index.history()
        raise AssertionError("read on")

    frontier = index.parts.store.open().frontier()
    marks = mark_commits(table_of(index).look(None), frontier, records(), 50)
    assert all(m.record for m in marks)


def test_cleans_and_rollbacks_are_not_commits() -> None:
    done = [
        Instant(f"2025030112000000{n}", f"2025030112000100{n}", a)
        for n, a in enumerate(("commit", "clean", "rollback", "deltacommit", "replacecommit"))
    ]
    marks = mark_commits(Look(TABLE, tuple(done), {}), None, [], 50)
    assert [m.action for m in marks] == ["replacecommit", "deltacommit", "commit"]


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    ("properties", "utc"),
    [
        ({"hoodie.table.timeline.timezone": "UTC"}, "2025-03-01T12:00:01.123000Z"),
        ({"hoodie.table.timeline.timezone": "LOCAL"}, "2025-03-01T17:00:01.123000Z"),
        ({}, "2025-03-01T17:00:01.123000Z"),
    ],
)
def test_completion_times_are_in_utc(properties: dict[str, str], utc: str) -> None:
    instants = (Instant("20250301120000000", "20250301120001123", "commit"),)
    look = Look(TABLE, instants, {}, properties=properties)
    assert mark_commits(look, None, [], 5)[0].as_dict()["completed"] == utc


@pytest.mark.parametrize("name", ["", "x", "00000000000000", "20251399000000000"])
def test_an_instant_name_without_a_time_has_no_time(name: str) -> None:
    assert Look(TABLE, (), {}).time_of(name) is None


def test_an_instant_name_in_seconds_has_a_time() -> None:
    look = Look(TABLE, (), {}, properties={"hoodie.table.timeline.timezone": "utc"})
    assert look.time_of("20250301120001") == datetime(2025, 3, 1, 12, 0, 1, tzinfo=UTC)
