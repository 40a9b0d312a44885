"""What operators ask of an index in S3: a server writes a file, and the syncing process does it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector
from starlette.testclient import TestClient

import lakewake
from lakewake.cli.sync import JobDesk
from lakewake.config.settings import ServeSettings
from lakewake.errors import TableError
from lakewake.history.jobs import EXPIRES, KEPT, Jobs
from lakewake.model.jobs import JobKind, JobState
from lakewake.serve.app import build_app
from lakewake.serve.keys import KeyRing, add_key
from lakewake.store.location import location_at
from support.hudi.tables import HudiTables, row
from support.on_s3 import make_table, write_config
from support.serving import URL

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1800)]


class Clock:
    """A clock that moves with each look."""

    def __init__(self) -> None:
        self.now = datetime(2025, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now


def jobs_in(bucket: str, clock: Clock | None = None) -> Jobs:
    """The jobs of an index, as another process opens them."""
    return Jobs("wines", location_at(f"s3://{bucket}/my index %20 ü"), "wines.history", clock)


def test_a_job_waits_is_taken_once_and_is_done(bucket: str) -> None:
    server, watch, other = jobs_in(bucket), jobs_in(bucket), jobs_in(bucket)
    assert server.newest(9) == ()
    asked = server.ask(JobKind.VERIFY, "key ops")
    assert server.ask(JobKind.VERIFY, "key other") == asked
    taken = watch.take()
    assert taken is not None
    assert (taken.id, taken.by, other.take()) == (asked.id, "key ops", None)
    assert server.newest(1)[0].state is JobState.RUNNING
    watch.finish(taken, {"agrees": True})
    (done,) = server.newest(9)
    assert (done.state, done.report) == (JobState.DONE, {"agrees": True})


def test_a_failed_job_keeps_its_error(bucket: str) -> None:
    jobs = jobs_in(bucket)
    jobs.ask(JobKind.SYNC, "key ops")
    jobs.fail(jobs.take(), TableError("the table is gone", hint="write it again"))
    (failed,) = jobs_in(bucket).newest(9)
    assert (failed.state, failed.error) == (JobState.FAILED, "the table is gone")
    assert failed.hint == "write it again"


def test_several_processes_never_take_the_same_job(bucket: str) -> None:
    for kind in JobKind:
        jobs_in(bucket).ask(kind, "key ops")
    watches = [jobs_in(bucket) for _ in range(8)]
    with ThreadPoolExecutor(len(watches)) as pool:
        taken = [job.id for job in pool.map(Jobs.take, watches) if job]
    while (more := watches[0].take()) is not None:
        taken.append(more.id)
    assert len(taken) == len(set(taken)) == len(JobKind)


def test_only_the_last_jobs_are_kept_and_old_ones_are_not_done(bucket: str, files: Any) -> None:
    clock = Clock()
    jobs = jobs_in(bucket, clock)
    for _ in range(KEPT + 3):
        jobs.ask(JobKind.PLAN, "key ops")
        jobs.finish(jobs.take(), {})
    assert len(jobs.newest(99)) == KEPT
    left = files.get_file_info(FileSelector(f"{bucket}/my index %20 ü/wines.history"))
    assert len(left) == 3 * KEPT
    jobs.ask(JobKind.SYNC, "key ops")
    clock.now += EXPIRES
    assert jobs.take() is None
    assert jobs.newest(1)[0].state is JobState.EXPIRED


@pytest.fixture(params=["lance+s3", "hudi+s3"])
def config(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> Path:
    return write_config(tmp_path, bucket, f"{request.param}://{bucket}/index")


@pytest.fixture
def table(spark: Any, bucket: str, small_tables: dict[str, str]) -> HudiTables:
    return make_table(spark, bucket, small_tables)


class Operators:
    """A server whose index is in S3, an admin key, and a watch that shares only the bucket."""

    def __init__(self, client: TestClient, watch: lakewake.Lakewake) -> None:
        self.client, self.said = client, list[str]()
        self.desk = JobDesk(watch["sample"], self.said.append, None)

    def ask(self, kind: str) -> dict[str, Any]:
        answer = self.client.post("/indexes/sample/jobs", json={"kind": kind})
        assert answer.status_code < 300, answer.text
        return answer.json()

    def jobs(self) -> list[dict[str, Any]]:
        return self.client.get("/indexes/sample/jobs").json()["jobs"]


@pytest.fixture
def operators(config: Path, spark: Any, table: HudiTables, tmp_path: Path) -> Iterator[Operators]:
    file = tmp_path / "keys.json"
    key = add_key(file, "ops", "admin")
    with lakewake.open(config, spark=spark) as watch, lakewake.open(config) as served:
        watch["sample"].sync()
        app = build_app(served, ServeSettings(), KeyRing(file))
        with TestClient(app, base_url=URL) as client:
            client.headers["Authorization"] = f"Bearer {key}"
            yield Operators(client, watch)


@pytest.mark.spark
def test_an_admin_asks_a_server_and_the_watch_does_it(
    operators: Operators, table: HudiTables, bucket: str, files: Any
) -> None:
    def objects() -> set[str]:
        return {
            f.path for f in files.get_file_info(FileSelector(f"{bucket}/index", recursive=True))
        }

    before = objects()
    assert operators.ask("verify")["state"] == "waiting"
    # The server itself writes nothing else.
    (asked,) = objects() - before
    assert asked.startswith(f"{bucket}/index/sample.history/")
    assert asked.endswith(".verify.asked.json")
    operators.desk.attend()
    (verified,) = operators.jobs()
    assert (verified["state"], verified["by"], verified["report"]["agrees"]) == (
        "done",
        "key ops",
        True,
    )
    table.write([row("k0", "changed", ts=2)])
    for kind in ("plan", "sync"):
        operators.ask(kind)
        operators.desk.attend()
    synced, planned, _ = operators.jobs()
    assert (planned["report"]["action"], planned["report"]["to_embed"]) == ("follow", 1)
    assert (synced["report"]["embedded"], synced["state"]) == (1, "done")
    found = operators.client.post("/indexes/sample/search", json={"text": "changed", "k": 1})
    assert found.json()["hits"][0]["key"].endswith("k0")
    assert [line.partition(",")[0] for line in operators.said] == [
        "sample: verify",
        "sample: plan",
        "sample: sync",
    ]
