"""Jobs: what operators ask of the syncing process, in files beside the history."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewake.errors import StoreError, TableError
from lakewake.history.jobs import KEPT, Jobs, MemoryFiles
from lakewake.history.log import LocationLog
from lakewake.model.jobs import JobKind, JobState
from lakewake.store.location import Folder

START = datetime(2025, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "folder"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Jobs:
    files = MemoryFiles() if request.param == "memory" else Folder(tmp_path / "index")
    return Jobs("wines", files, "wines.history", clock)


def test_a_job_waits_is_taken_once_and_is_done(jobs: Jobs) -> None:
    asked = jobs.ask(JobKind.VERIFY, "key ops")
    assert jobs.newest(9) == (asked,)
    assert (asked.state, asked.by) == (JobState.WAITING, "key ops")
    taken = jobs.take()
    assert taken is not None
    assert (taken.id, taken.kind, taken.by) == (asked.id, JobKind.VERIFY, "key ops")
    assert jobs.take() is None
    assert jobs.newest(1)[0].state is JobState.RUNNING
    jobs.finish(taken, {"agrees": True, "rows": 3})
    (done,) = jobs.newest(9)
    assert (done.state, done.report) == (JobState.DONE, {"agrees": True, "rows": 3})
    assert done.ended is not None
    assert done.ended > done.asked


def test_jobs_are_taken_in_the_order_in_which_they_were_asked_for(jobs: Jobs) -> None:
    kinds = [JobKind.VERIFY, JobKind.SYNC, JobKind.PLAN, JobKind.RETRY]
    for kind in kinds:
        jobs.ask(kind, "ops")
    assert [job.kind for job in iter(jobs.take, None)] == kinds


def test_a_kind_that_waits_already_is_not_asked_for_twice(jobs: Jobs) -> None:
    first = jobs.ask(JobKind.SYNC, "ops")
    assert jobs.ask(JobKind.SYNC, "another").id == first.id
    jobs.take()
    # The running one may have looked at the table already.
    assert jobs.ask(JobKind.SYNC, "ops").id != first.id


def test_a_failed_job_keeps_the_fact_and_the_hint_without_secrets(jobs: Jobs) -> None:
    jobs.ask(JobKind.SYNC, "ops")
    taken = jobs.take()
    assert taken is not None
    jobs.fail(taken, TableError("s3a://KEY:SECRETSECRET@bucket is gone", hint="look"))
    (failed,) = jobs.newest(1)
    assert (failed.state, failed.hint) == (JobState.FAILED, "look")
    assert "SECRETSECRET" not in (failed.error or "")
    assert "is gone" in (failed.error or "")


def test_a_job_that_nobody_did_for_an_hour_is_not_done_any_more(jobs: Jobs, clock: Clock) -> None:
    jobs.ask(JobKind.VERIFY, "ops")
    clock.now += timedelta(hours=2)
    assert jobs.take() is None
    assert jobs.newest(1)[0].state is JobState.EXPIRED
    assert jobs.ask(JobKind.VERIFY, "ops").state is JobState.WAITING
    assert jobs.take() is not None


def test_a_job_that_is_being_done_may_take_hours(jobs: Jobs, clock: Clock) -> None:
    jobs.ask(JobKind.VERIFY, "ops")
    taken = jobs.take()
    clock.now += timedelta(hours=9)
    assert jobs.newest(1)[0].state is JobState.RUNNING
    clock.now += timedelta(hours=20)
    assert jobs.newest(1)[0].state is JobState.EXPIRED
    assert taken is not None
    jobs.finish(taken, {"agrees": True})
    assert jobs.newest(1)[0].state is JobState.DONE


def test_only_the_last_jobs_are_kept(jobs: Jobs, clock: Clock) -> None:
    for _ in range(KEPT + 7):
        jobs.ask(JobKind.SYNC, "ops")
        taken = jobs.take()
        assert taken is not None
        jobs.finish(taken, {})
    assert len(jobs.newest(99)) == KEPT


def test_several_processes_never_take_the_same_job(tmp_path: Path) -> None:
    desks = [Jobs("wines", Folder(tmp_path), "wines.history") for _ in range(8)]
    for kind in JobKind:
        desks[0].ask(kind, "ops")
    with ThreadPoolExecutor(8) as pool:
        taken = [job for job in pool.map(lambda desk: desk.take(), desks * 3) if job]
    assert sorted(job.kind for job in taken) == sorted(JobKind)


FILES = st.sampled_from(
    [
        "20250301T120000000000Z.00000000.drop.asked.json",
        "20250301T120000000000Z.00000000.rebuild.asked.json",
        "20250301T120000000000Z.00000000.sync.done.json",
        "20250301T120000000000Z.00000000.sync.taken.json",
        "20250301T120000000000Z.0000000g.sync.asked.json",
        "99999999T999999999999Z.00000000.sync.asked.json",
        "../20250301T120000000000Z.00000000.sync.asked.json",
        "sync.asked.json",
    ]
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(FILES, st.binary(max_size=20), max_size=5))
def test_other_files_are_neither_done_nor_shown(found: dict[str, bytes]) -> None:
    files = MemoryFiles()
    for name, content in found.items():
        files.create(f"wines.history/{name}", content)
    jobs = Jobs("wines", files, "wines.history", lambda: START)
    assert jobs.take() is None
    assert jobs.newest(9) == ()


KEYS = st.sampled_from(["by", "report", "error", "hint", "ended", "format", "x"])
contents = st.one_of(
    st.binary(max_size=30),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=200, deadline=None)
@given(contents, contents)
def test_no_content_of_a_file_breaks_the_list(asked: bytes, done: bytes) -> None:
    files = MemoryFiles()
    name = "wines.history/20250301T120000000000Z.00000000.sync"
    files.create(f"{name}.asked.json", asked)
    files.create(f"{name}.done.json", done)
    (job,) = Jobs("wines", files, "wines.history", lambda: START).newest(9)
    assert job.state in (JobState.DONE, JobState.FAILED)
    json.dumps(job.as_dict())


def test_a_drop_of_the_history_removes_the_jobs_and_leaves_other_files(tmp_path: Path) -> None:
    jobs = Jobs("wines", Folder(tmp_path), "wines.history")
    jobs.ask(JobKind.SYNC, "ops")
    (tmp_path / "wines.history" / "mine.asked.json").write_text("{}")
    found = LocationLog(Folder(tmp_path), "wines.history").drop()
    assert os.listdir(tmp_path / "wines.history") == ["mine.asked.json"]
    assert found.foreign == (str(tmp_path / "wines.history" / "mine.asked.json"),)


def test_a_job_is_not_a_sync_record(tmp_path: Path) -> None:
    Jobs("wines", Folder(tmp_path), "wines.history").ask(JobKind.SYNC, "ops")
    assert list(LocationLog(Folder(tmp_path), "wines.history").records()) == []


def test_a_folder_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file")
    jobs: Any = Jobs("wines", Folder(tmp_path / "index"), "wines.history")
    with pytest.raises(StoreError, match="jobs of index 'wines' cannot be written") as refused:
        jobs.ask(JobKind.SYNC, "ops")
    assert refused.value.hint
