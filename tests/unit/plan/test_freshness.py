"""How far an index may lag, and whether it does."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakewake.api import Index
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action, Plan
from lakewake.model.timeline import Instant, Look, TableIdentity
from lakewake.plan import behind_since
from lakewake.sync import sync
from support.following import follow, table_of
from support.sampling import rid, values
from support.serving import DiskLake, asking, served_index

TABLE = TableIdentity("t", "id", "", "COPY_ON_WRITE")
LONG = 100 * 365 * 86_400


def aged(folder: Path, limit: float | None):
    """An index that lacks a commit of the first of January 2025."""
    index = follow(f"memory://{folder}", freshness=limit)
    table_of(index).upsert({rid("a"): values("one")})
    index.sync()
    table_of(index).upsert({rid("a"): values("two")})
    return index


@pytest.mark.parametrize(("limit", "fresh"), [(None, True), (1.0, False), (LONG, True)])
def test_an_index_is_fresh_while_nothing_it_lacks_is_older_than_the_limit(
    tmp_path: Path, limit: float | None, fresh: bool
) -> None:
    index = aged(tmp_path, limit)
    report = index.status()
    assert (report.fresh, report.freshness_limit, report.lag_commits) == (fresh, limit, 1)
    fields = report.as_dict()
    assert (fields["fresh"], fields["freshness_limit"]) == (fresh, limit)
    index.sync()
    assert index.status().fresh


def test_the_oldest_missing_commit_decides_freshness(tmp_path: Path) -> None:
    index = aged(tmp_path, 1.0)
    lag = index.status().lag_seconds
    table_of(index)._clock += 86_400_000
    table_of(index).upsert({rid("a"): values("three")})
    assert index.status().lag_seconds == pytest.approx(lag, abs=60)


@pytest.mark.parametrize("limit", [None, 30.0])
def test_an_unbuilt_index_is_not_fresh(tmp_path: Path, limit: float | None) -> None:
    assert not follow(f"memory://{tmp_path}", freshness=limit).status().fresh


def test_an_index_exactly_at_the_limit_is_fresh(tmp_path: Path) -> None:
    report = aged(tmp_path, 30.0).status()
    assert replace(report, lag_seconds=30.0).fresh
    assert not replace(report, lag_seconds=30.1).fresh


def test_status_reports_the_last_sync_that_did_something(tmp_path: Path) -> None:
    index = aged(tmp_path, None)
    index.sync()
    index.sync()
    last = index.status().last_sync
    assert last == index.history(1)[0]
    assert index.status().as_dict()["last_sync"] == last.as_dict()


def test_before_the_first_sync_there_is_no_last_one(tmp_path: Path) -> None:
    assert follow(f"memory://{tmp_path}").status().as_dict()["last_sync"] is None


def test_status_works_without_a_readable_history(tmp_path: Path) -> None:
    index = follow(f"lance://{tmp_path}")
    table_of(index).upsert({rid("a"): values("one")})
    index.sync()
    for file in (tmp_path / "sample.history").iterdir():
        file.unlink()
        file.mkdir()
    status = index.status()
    assert (status.rows, status.last_sync) == (1, None)


UP_TO_TWO = Frontier(TABLE, {"1": "10", "2": "20"})
RECONCILE = Plan(Action.RECONCILE, "because", UP_TO_TWO)


def look(*instants: tuple[str, str, str]) -> Look:
    return Look(TABLE, tuple(Instant(*i) for i in instants), {})


@pytest.mark.parametrize(
    ("instants", "since"),
    [
        ([("1", "10", "commit"), ("3", "30", "restore"), ("4", "40", "clean")], "30"),
        ([("1", "10", "commit"), ("0", "5", "rollback"), ("3", "30", "rollback")], "30"),
        ([("1", "10", "commit"), ("4", "40", "commit"), ("3", "30", "restore")], "40"),
        ([("1", "10", "commit")], "10"),
        ([], "20"),
    ],
)
def test_an_index_is_behind_since_its_commits_were_undone(
    instants: list[tuple[str, str, str]], since: str
) -> None:
    assert behind_since(RECONCILE, look(*instants), UP_TO_TWO) == since


def test_an_index_in_step_has_no_lag() -> None:
    plan = Plan(Action.NOTHING, "because", UP_TO_TWO)
    assert behind_since(plan, look(("1", "10", "commit"), ("3", "30", "restore")), UP_TO_TWO) == ""
    assert behind_since(RECONCILE, look(), None) == ""


def test_an_index_that_waits_for_a_restored_table_goes_stale(tmp_path: Path) -> None:
    index = aged(tmp_path, 1.0)
    index.sync()
    table_of(index).restore(1)
    report = index.status()
    assert (report.would, report.lag_commits, report.fresh) == (Action.RECONCILE, 0, False)
    assert report.lag_seconds > time.time() - time.mktime((2025, 1, 3, 0, 0, 0, 0, 0, -1))


def dated(lake: DiskLake, when: datetime, written: float) -> None:
    """Make a commit with this date, in a file with another modification time."""
    lake.table._clock = int(when.astimezone().strftime("%Y%m%d%H%M%S000"))
    lake.table.upsert({rid("late"): values(f"late {when}")})
    timeline = lake.config.parent / "table" / ".hoodie" / "timeline"
    newest = max(timeline.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    os.utime(newest, (written, written))


def lake_index(lake: DiskLake, limit: float | None = 60.0) -> Index:
    return served_index(lake.table, freshness=limit, parts=lambda _: lake.parts)


@pytest.fixture
def lake(tmp_path: Path) -> DiskLake:
    made = DiskLake(tmp_path)
    made.write()
    return made


@pytest.mark.parametrize(("age", "fresh"), [(10, True), (3600, False)])
def test_a_commit_dated_in_the_future_is_as_old_as_its_file(
    lake: DiskLake, age: float, fresh: bool
) -> None:
    dated(lake, datetime.now(UTC) + timedelta(hours=1), time.time() - age)
    report = lake_index(lake).status()
    assert report.fresh is fresh
    assert report.lag_seconds == pytest.approx(age, abs=30)
    assert report.ahead_seconds == pytest.approx(3600, abs=30)
    assert "ahead of this machine's clock" in report.why
    assert report.as_dict()["ahead_seconds"] == pytest.approx(3600, abs=30)


def test_a_commit_dated_in_the_future_is_judged_beside_later_correct_ones(
    lake: DiskLake,
) -> None:
    now = datetime.now(UTC)
    dated(lake, now + timedelta(days=2), time.time() - 3600)
    dated(lake, now - timedelta(seconds=5), time.time() - 5)
    report = lake_index(lake).status()
    assert report.lag_seconds == pytest.approx(3600, abs=30)
    assert not report.fresh


def test_readiness_reports_a_commit_dated_in_the_future(lake: DiskLake) -> None:
    dated(lake, datetime.now(UTC) + timedelta(hours=1), time.time() - 3600)
    with asking(lake_index(lake)) as client:
        answer = client.get("/ready")
    assert answer.status_code == 503
    assert "ahead of this machine's clock" in answer.json()["indexes"][0]["why"]


def test_a_file_dated_in_the_future_counts_since_the_index_was_in_step(lake: DiskLake) -> None:
    # The clock of the storage is wrong too: only the last time in step is known.
    dated(lake, datetime.now(UTC) + timedelta(hours=1), time.time() + 3600)
    report = lake_index(lake).status()
    assert not report.fresh
    assert report.lag_seconds > 86_400


def test_an_absorbed_commit_dated_in_the_future_causes_no_lag(lake: DiskLake) -> None:
    dated(lake, datetime.now(UTC) + timedelta(hours=1), time.time() - 3600)
    sync(lake.parts)
    report = lake_index(lake).status()
    assert (report.lag_seconds, report.ahead_seconds, report.fresh) == (0, 0, True)
