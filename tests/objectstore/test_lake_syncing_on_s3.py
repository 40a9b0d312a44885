"""Table and index in a bucket, the index as a Hudi table: from the shell, raced, killed, paused."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakewake
from lakewake.api.index import Index
from lakewake.model.plan import Action
from lakewake.store.hudi.lease import LEASE
from lakewake.store.hudi.reader import HudiReader
from support import environment
from support.gateway import Gateway
from support.hudi.tables import HudiTables, row
from support.killing import DYING
from support.on_s3 import make_table, run, write_config
from support.oracle import built_from_nothing, indexed

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]

SEED = 20_261_118
#: What a sync of this table takes at most, besides the time that a dead writer holds it up.
SYNC_SECONDS = 60


@pytest.fixture
def config(bucket: str, tmp_path: Path) -> Path:
    return write_config(tmp_path, bucket, f"hudi+s3://{bucket}/my index")


@pytest.fixture
def table(spark: SparkSession, bucket: str, small_tables: dict[str, str]) -> HudiTables:
    return make_table(spark, bucket, small_tables)


def change(table: HudiTables, n: int) -> None:
    table.write([row(f"k{m}", f"change {n} of {m}", ts=n + 2) for m in range(9)])
    table.delete(f"k{10 + n}")


def syncing(config: Path) -> subprocess.Popen[str]:
    """A process that syncs, and prints where it is."""
    return subprocess.Popen(
        [sys.executable, *DYING, "hudi", str(config)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def until_it_writes(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait this long after a sync began to write; it may have ended then."""
    assert process.stdout is not None
    assert "write begin\n" in process.stdout
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def exact(index: Index) -> bool:
    return indexed(index.parts) == built_from_nothing(index.parts)


def test_an_index_is_built_searched_followed_and_verified_from_the_shell(
    table: HudiTables, config: Path, tmp_path: Path
) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    built = run(config, "sync")["indexes"][0]
    assert (built["action"], built["embedded"]) == ("build", 40)
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    assert run(config, "sync", **without_java)["indexes"][0]["action"] == "nothing"
    change(table, 0)
    status = run(config, "status", ends=3, **without_java)["indexes"][0]
    assert (status["lag_commits"], status["rows"], status["would"]) == (2, 40, "follow")
    hit = run(config, "search", "sample", "text of k20", "-k", "1", **without_java)["hits"][0]
    assert hit["key"] == "k20"
    followed = run(config, "sync")["indexes"][0]
    assert (followed["action"], followed["embedded"]) == ("follow", 9)
    words = run(config, "search", "sample", "change", "--mode", "keyword", "-k", "20")
    assert len(words["hits"]) == 9
    assert run(config, "verify")["indexes"][0]["agrees"] is True
    assert len(run(config, "history", "sample")["indexes"][0]["history"]) == 2
    # Only the vector cache is on this machine.
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "index"])
    assert {p.suffix for p in (tmp_path / "index").iterdir()} <= {
        ".sqlite",
        ".sqlite-wal",
        ".sqlite-shm",
    }


def test_earlier_states_are_searched_from_the_shell(
    table: HudiTables, config: Path, tmp_path: Path
) -> None:
    first = run(config, "sync")["indexes"][0]["to_instant"]
    change(table, 0)
    second = run(config, "sync")["indexes"][0]["to_instant"]
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}

    def keys(text: str, *options: str) -> tuple[str, list[str]]:
        asked = ("search", "sample", text, "--mode", "keyword", "-k", "20", *options)
        answer = run(config, *asked, **without_java)
        return answer["instant"], [hit["key"] for hit in answer["hits"]]

    assert keys("k10") == (second, [])
    assert keys("k10", "--as-of", first) == (first, ["k10"])
    assert keys("change", "--as-of", first) == (first, [])
    assert len(keys("change", "--as-of", second)[1]) == 9
    near = ("search", "sample", "text of k10", "-k", "1", "--as-of", first)
    assert run(config, *near, **without_java)["hits"][0]["key"] == "k10"
    refused = run(config, *near[:-1], "2020-01-01", ends=2, **without_java)
    assert f"from {first} to {second}" in refused["fact"]


@pytest.mark.usefixtures("table")
def test_keys_and_endpoint_in_the_aws_files_are_enough(
    config: Path, gateway: Gateway, tmp_path: Path
) -> None:
    files = {**dict.fromkeys(gateway.environment()), **gateway.profile(tmp_path)}
    assert run(config, "sync", **files)["indexes"][0]["embedded"] == 40
    assert run(config, "status", **files)["indexes"][0]["rows"] == 40


def test_two_processes_that_sync_at_once_leave_one_exact_index(
    table: HudiTables, spark: SparkSession, config: Path
) -> None:
    for n in range(3):
        both = [syncing(config) for _ in range(2)]
        for process in both:
            process.communicate(timeout=600)
        # Both end well: the one that came second finds the work done, or goes on from there.
        assert [process.returncode for process in both] == [0, 0]
        with lakewake.open(config, spark=spark) as lake:
            assert lake["sample"].sync().action is Action.NOTHING
            assert exact(lake["sample"])
        change(table, n)


def test_writers_killed_while_spark_writes_are_finished_by_the_next(
    table: HudiTables, spark: SparkSession, config: Path
) -> None:
    print(f"seed {SEED}")
    dice, took = random.Random(SEED), []
    with lakewake.open(config, spark=spark) as lake:
        lake["sample"].sync()
    for n in range(3):
        change(table, n)
        with syncing(config) as process:
            until_it_writes(process, dice.uniform(0.5, 3.0))
            process.kill()
        began = time.monotonic()
        with lakewake.open(config, spark=spark) as lake:
            lake["sample"].sync()
            took.append(round(time.monotonic() - began, 1))
            assert lake["sample"].verify(vectors="all").agrees
            assert exact(lake["sample"])
    print("the next sync took", took, "s")
    assert max(took) < LEASE + SYNC_SECONDS


def stop(process: subprocess.Popen[str], sent: signal.Signals) -> None:
    """Send a signal to a sync and to its JVM, which is the leader of its own process group."""
    os.kill(process.pid, sent)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        if os.getpgid(int(child)) == int(child):
            os.killpg(int(child), sent)


@contextmanager
def asleep_while_it_writes(config: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A sync that is stopped this long after it began to write, and goes on afterwards."""
    with syncing(config) as process:
        until_it_writes(process, seconds)
        awake = process.poll() is None
        if awake:
            stop(process, signal.SIGSTOP)
        try:
            yield process
        finally:
            if awake:
                stop(process, signal.SIGCONT)
            process.communicate(timeout=300)


def frontiers(index: Index) -> list[str]:
    """The frontiers of the commits after the build, each once, in the order of their instants."""
    reader = index.parts.store.open()
    assert isinstance(reader, HudiReader)
    timeline = reader.table._table.get_timeline()
    commits = timeline.get_completed_deltacommits()
    metadata = [json.loads(timeline.get_instant_metadata_in_json(commit)) for commit in commits]
    return list(dict.fromkeys(m["extraMetadata"]["lakewake.frontier"] for m in metadata))


def test_a_writer_that_wakes_up_after_its_lease_was_taken_over_commits_nothing(
    table: HudiTables, spark: SparkSession, config: Path
) -> None:
    print(f"seed {SEED}")
    dice, waited = random.Random(SEED), []
    with lakewake.open(config, spark=spark) as lake:
        lake["sample"].sync()
    for n in range(6):
        change(table, n)
        with asleep_while_it_writes(config, dice.uniform(0, 3.0)) as asleep:
            began = time.monotonic()
            with lakewake.open(config, spark=spark) as lake:
                lake["sample"].sync()
                waited.append(round(time.monotonic() - began, 1))
                assert exact(lake["sample"])
                after = frontiers(lake["sample"])
        assert asleep.returncode == 0
        with lakewake.open(config, spark=spark) as lake:
            assert exact(lake["sample"])
            assert lake["sample"].sync().action is Action.NOTHING
            assert frontiers(lake["sample"]) == after
    print("the other sync took", waited, "s")
    # One for each change: no two commits began at the same frontier.
    assert len(after) == 6
    assert max(waited) < LEASE + SYNC_SECONDS
