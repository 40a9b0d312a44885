"""An index in the lake, in a bucket: the store's contract, and what is only so in S3."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lakewake.config.settings import IndexSettings
from lakewake.errors import LakewakeError, StaleFrontier, StoreUnreachable
from lakewake.history.log import LocationLog, open_history
from lakewake.net.conditional import ConditionalBucket
from lakewake.net.s3 import find_s3
from lakewake.store import Store
from lakewake.store.hudi import lease
from lakewake.store.hudi.store import HudiStore
from lakewake.store.hudi.writer import IndexWriter
from lakewake.store.location import Bucket
from lakewake.store.registry import open_store
from lakewake.testing.samples import as_stored, batch, chunk, contents, frontier, query, recipe
from support.gateway import Gateway
from support.lake_contract import LakeContract

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]
FOLDER = "my index %20 #1 ü"


def opened(bucket: str, spark: SparkSession, folder: str = "index") -> HudiStore:
    """An index whose cells hold a few chunks."""
    return HudiStore(
        f"s3://{bucket}/{folder}", "wines", lambda: spark, cell_chunks=4, ann_min_chunks=0
    )


class TestLakeOnS3(LakeContract):
    """With cells of a few chunks, which upkeep splits and dissolves."""

    #: As many cells as 6,000 chunks of a real index have would take minutes to write.
    many = 60

    @pytest.fixture
    def store(self, bucket: str, spark: SparkSession) -> Store:
        return opened(bucket, spark, FOLDER)


def built(bucket: str, spark: SparkSession) -> HudiStore:
    store = opened(bucket, spark)
    rows = [chunk(f"k{n}", f"text {n}") for n in range(40)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    return store


def names(files: fs.FileSystem, folder: str) -> list[str]:
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted(f.base_name for f in found)


def test_objects_are_written_only_if_nobody_wrote_them_first(bucket: str) -> None:
    objects = ConditionalBucket(f"{bucket}/my folder %20 ü", find_s3())
    assert objects.read("lock") is None
    first = objects.put("lock", b"1", None)
    assert first
    assert objects.put("lock", b"2", None) is None
    second = objects.put("lock", b"3", first)
    assert second
    assert objects.put("lock", b"4", first) is None
    assert objects.read("lock") == (b"3", second)
    location = Bucket(f"{bucket}/my folder %20 ü", find_s3())
    assert location.read("lock") == b"3"
    assert not location.create("lock", b"5")


def test_one_of_many_conditional_writes_wins(bucket: str) -> None:
    objects = ConditionalBucket(bucket, find_s3())
    tag = objects.put("lock", b"first", None)
    gate = threading.Barrier(8)

    def put(writer: int) -> bool:
        gate.wait()
        return objects.put("lock", b"%d" % writer, tag) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1


def test_everything_is_in_the_bucket(
    bucket: str, spark: SparkSession, files: fs.FileSystem, tmp_path: Path
) -> None:
    store = built(bucket, spark)
    store.commit(batch(chunk("new")), frontier(1), frontier(2))
    with store.open().pinned():
        assert len(names(files, f"{bucket}/index/pins")) == 1
        table = store.open().table.folder
        found = {*names(files, f"{bucket}/index")} - {"staging"}
        assert found == {"g1.json", table, "lock", "pins"}
    assert names(files, f"{bucket}/index/pins") == []
    assert names(files, f"{bucket}/index/staging") == []
    with files.open_input_stream(f"{bucket}/index/g1.json") as stream:
        assert json.loads(stream.read()) == {"format": 1, "generation": 1, "table": table}
    settings = IndexSettings("wines", "table", f"hudi+s3://{bucket}/index")
    log = open_history(settings, tmp_path)
    assert isinstance(log, LocationLog)
    assert log.begun()
    assert not any(tmp_path.iterdir())


def test_a_rebuild_removes_the_former_generation_with_all_its_objects(
    bucket: str, spark: SparkSession, files: fs.FileSystem
) -> None:
    store = built(bucket, spark)
    store.create(recipe("dot"), batch(chunk("z")), frontier(2), after=1)
    assert store.maintain()["generations_removed"] == 1
    found = {*names(files, f"{bucket}/index")} - {"staging", "words", "searching-g2.json"}
    assert found == {"g2.json", store.open().table.folder, "lock"}
    assert contents(store.open()) == as_stored(chunk("z"))


def test_a_writer_whose_lease_was_taken_over_lands_nothing(
    bucket: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(bucket, spark)
    taken = Bucket(f"{bucket}/index", find_s3())

    def upsert(*arguments: object, **more: object) -> None:
        # As if the writer had slept until another had the lease, just before the job begins.
        taken.replace("lock", lease.state_of("another"))
        real(*arguments, **more)

    from lakewake.store.hudi import writing

    real = writing.upsert
    monkeypatch.setattr(writing, "upsert", upsert)
    with pytest.raises(StaleFrontier, match="took over"):
        store.commit(batch(chunk("late")), frontier(1), frontier(2))
    assert store.open().frontier() == frontier(1)
    assert (
        contents(store.open()).keys()
        == as_stored(*(chunk(f"k{n}", f"text {n}") for n in range(40))).keys()
    )


def test_a_commit_that_another_writer_left_behind_stops_nobody(
    bucket: str, spark: SparkSession, files: fs.FileSystem
) -> None:
    store = built(bucket, spark)
    table = f"{bucket}/index/{store.open().table.folder}"
    # Older than the last commit, as if its writer had slept: Hudi cannot roll it back.
    late = "20010101000000000"
    for name in (
        f".hoodie/timeline/{late}.deltacommit.requested",
        f".hoodie/timeline/{late}.deltacommit.inflight",
        f"lakewake_cell=0/.f_{late}.log.1_1-0-1",
    ):
        with files.open_output_stream(f"{table}/{name}") as stream:
            stream.write(b"")
    store.commit(batch(chunk("new")), frontier(1), frontier(2))
    selector = fs.FileSelector(table, recursive=True)
    assert [f.path for f in files.get_file_info(selector) if late in f.path] == []
    assert as_stored(chunk("new")).keys() <= contents(store.open()).keys()


class PausedGuard:
    """A guard that finds nothing wrong, reports that, and waits before it lets the job go on."""

    def __init__(self, guard: Callable[[Any], Any], reached: Path, go_on: Path) -> None:
        self.guard, self.reached, self.go_on = guard, reached, go_on

    def __call__(self, rows: Any) -> Any:
        found = self.guard(rows)
        # Opening a pipe waits for the other end.
        with open(self.reached, "w"), open(self.go_on):
            return found


def pause_before_inflight(folder: Path, patch: pytest.MonkeyPatch) -> list[Path]:
    """Let the next commit wait inside its write job; returns the pipes to it."""
    pipes = [folder / "reached", folder / "go on"]
    for pipe in pipes:
        os.mkfifo(pipe)
    real, paused = IndexWriter.guard, [True]

    def guard(self: IndexWriter, index: Any, hold: Any) -> Any:
        made = real(self, index, hold)
        return PausedGuard(made, *pipes) if paused and paused.pop() else made

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    patch.setattr(IndexWriter, "guard", guard)
    return pipes


def test_a_writer_stopped_between_requested_and_inflight_lands_nothing(
    bucket: str,
    spark: SparkSession,
    files: fs.FileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody renews a lease, as if the first writer were stopped; and the second one waits a moment.
    monkeypatch.setattr(lease, "RENEWED_EVERY", 3600.0)
    monkeypatch.setattr(lease, "LEASE", 1.0)
    first, second = built(bucket, spark), opened(bucket, spark)
    timeline = f"{bucket}/index/{first.open().table.folder}/.hoodie/timeline"
    reached, go_on = pause_before_inflight(tmp_path, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        late = batch(chunk("late"))
        asleep = pool.submit(first.commit, late, frontier(1), frontier(2, "late"))
        with open(reached):
            pending = [n for n in names(files, timeline) if n.endswith((".requested", ".inflight"))]
            (requested,) = [n for n in pending if n.endswith(".deltacommit.requested")]
            assert requested.replace(".requested", ".inflight") not in pending
        second.commit(batch(chunk("new")), frontier(1), frontier(2))
        assert requested not in names(files, timeline)
        with open(go_on, "w"):
            pass
        with pytest.raises(StaleFrontier):
            asleep.result()
    assert not [n for n in names(files, timeline) if n.startswith(requested.partition(".")[0])]
    held = contents(opened(bucket, spark).open())
    assert as_stored(chunk("new")).keys() <= held.keys()
    assert not as_stored(chunk("late")).keys() & held.keys()
    second.commit(batch(chunk("newer")), frontier(2), frontier(3))
    assert as_stored(chunk("newer")).keys() <= contents(second.open()).keys()


def test_even_if_leases_end_at_once_one_of_several_commits_lands(
    bucket: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", -1.0)
    store = built(bucket, spark)

    def commit(writer: int) -> int | None:
        own = opened(bucket, spark)
        try:
            own.commit(batch(chunk(f"w{writer}")), frontier(1), frontier(2, str(writer)))
        except LakewakeError:
            return None
        return writer

    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:
            landed = [w for w in pool.map(commit, range(3)) if w is not None]
        assert len(landed) <= 1
        if landed:
            break
    assert len(landed) == 1
    assert {i for i in contents(store.open()) if "w" in i} == {*as_stored(chunk(f"w{landed[0]}"))}


def test_errors_name_the_folder_and_what_to_check(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    server = Gateway(program, tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    server.files().create_dir("lake")
    missing = open_store("hudi+s3://no-such-bucket/index", "wines")
    with pytest.raises(StoreUnreachable, match="there is no bucket 'no-such-bucket'"):
        missing.open()
    store = open_store("hudi+s3://lake/index", "wines")
    assert store.open() is None
    server.stop()
    for call in (
        store.open,
        store.generation,
        store.maintain,
        lambda: store.commit(batch(chunk("b")), frontier(1), frontier(2)),
        lambda: store.create(recipe(), batch(chunk("b")), frontier(1), after=0),
    ):
        with pytest.raises(StoreUnreachable) as caught:
            call()
        assert caught.value.landed == "nothing was written"
        assert "AWS_ENDPOINT_URL" in caught.value.hint


def test_wrong_credentials_are_an_error_and_the_index_is_intact(
    bucket: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(bucket, spark)
    reader = store.open()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        fresh = opened(bucket, spark)
        with pytest.raises(StoreUnreachable, match=f"s3://{bucket}/index") as caught:
            fresh.open()
        assert "wrong" not in str(caught.value)
        assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert len(reader.search(query("text 3"))) == 3


def test_keys_can_come_from_a_profile(
    gateway: Gateway,
    bucket: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built(bucket, spark)
    for name in gateway.environment():
        monkeypatch.delenv(name)
    for name, value in gateway.profile(tmp_path).items():
        monkeypatch.setenv(name, value)
    store = opened(bucket, spark)
    store.commit(batch(chunk("b")), frontier(1), frontier(2))
    assert as_stored(chunk("b")).keys() <= contents(store.open()).keys()
