"""A Lance index under kill -9, racing processes and a disk that is full."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lakewake.errors import StaleFrontier, StoreError
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.store.lance.store import LanceStore
from support import environment

RECIPE = Recipe(ModelIdentity("hashing", "test", 4))
SCHEMA = index_schema(RECIPE, pa.schema([("batch", pa.int64())]))
KILLS = 10
KILLED_BUILDS = 5
RACES = 30


def frontier(n: int, writer: str = "") -> Frontier:
    return Frontier(TableIdentity("t", "k", "", "COPY_ON_WRITE"), {writer: "1"}, sync=n)


def row(key: str, batch: int) -> dict[str, object]:
    text = f"{key} {batch}"
    return {
        "_id": chunk_id(RowId("", key), "text", 0),
        "_key": key,
        "_partition": "",
        "_hash": text_hash(text),
        "_text": text,
        "_vector": [float(batch), 1.0, 2.0, 3.0],
        "batch": batch,
    }


def batch_number(n: int) -> Batch:
    """Rewrites ten rows, adds one of its own, deletes that of the batch before."""
    table = pa.Table.from_pylist(
        [*(row(f"k{i}", n) for i in range(10)), row(f"own{n}", n)], schema=SCHEMA
    )
    return Batch(SCHEMA, table.to_reader, (chunk_id(RowId("", f"own{n - 1}"), "text", 0),))


def state(folder: Path) -> tuple[int, dict[str, int]]:
    """How far the index is, and the batch that each of its rows is of."""
    reader = LanceStore(str(folder), "wines").open()
    assert reader is not None
    rows = [r for b in reader.scan(["_key", "batch"]) for r in b.to_pylist()]
    held = {r["_key"]: r["batch"] for r in rows}
    assert len(held) == len(rows), "an id is there twice"
    return reader.frontier().sync, held


def expected(n: int) -> dict[str, int]:
    return {f"k{i}": n for i in range(10)} | {f"own{n}": n}


def commit_for_ever(folder: str) -> None:
    store = LanceStore(folder, "wines")
    if store.open() is None:
        store.create(RECIPE, batch_number(0), frontier(0), after=0)
    while True:
        reader = store.open()
        assert reader is not None
        n = reader.frontier().sync
        store.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
        print(n + 1, flush=True)
        if n % 5 == 0:
            store.maintain()


def create_until_killed(folder: str) -> None:
    store, n = LanceStore(folder, "wines"), 0
    print("ready", flush=True)
    while True:
        store.create(RECIPE, batch_number(n), frontier(n), after=n)
        print(n, flush=True)
        n += 1


def commit_raced(folder: str, writer: str) -> None:
    """Race another process to each of thirty frontiers; says how often it won."""
    store, won, at = LanceStore(folder, "wines"), 0, frontier(0)
    print("ready", flush=True)
    sys.stdin.readline()
    while at.sync < RACES:
        n = at.sync + 1
        mine = pa.Table.from_pylist([row(f"shared{n}", n), row(f"{writer}{n}", n)], schema=SCHEMA)
        with suppress(StaleFrontier):
            store.commit(Batch(SCHEMA, mine.to_reader), at, frontier(n, writer))
            won += 1
        if n % 5 == 0:
            store.maintain()
        reader = store.open()
        assert reader is not None
        at = reader.frontier()
    print(won, flush=True)


def commit_on_a_full_disk(folder: str) -> None:
    store = LanceStore(folder, "wines")
    reader = store.open()
    assert reader is not None
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    try:
        store.commit(batch_number(1), frontier(0), frontier(1))
    except StoreError as error:
        print(type(error).__name__, "|", error.landed, "|", error.hint)


def child(task: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, task, *arguments]
    return subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill_after(process: subprocess.Popen[str], lines: int, seconds: float) -> int:
    """Kill the process some moment after it has said so many lines; what it said last."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    assert process.wait() == -signal.SIGKILL
    return int((rest or [said[-1]])[-1])


def test_a_commit_killed_anywhere_landed_whole_or_not_at_all(tmp_path: Path) -> None:
    dice = random.Random(7)
    for _ in range(KILLS):
        process = child("commit_for_ever", str(tmp_path))
        reported = kill_after(process, dice.randint(1, 3), dice.uniform(0, 0.1))
        sync, held = state(tmp_path)
        assert sync in (reported, reported + 1)
        assert held == expected(sync)


def test_a_build_killed_anywhere_landed_whole_or_not_at_all(tmp_path: Path) -> None:
    dice = random.Random(11)
    for attempt in range(KILLED_BUILDS):
        folder = tmp_path / str(attempt)
        reported = kill_after(
            child("create_until_killed", str(folder)), dice.randint(2, 4), dice.uniform(0, 0.05)
        )
        sync, held = state(folder)
        assert sync in (reported, reported + 1)
        assert held == expected(sync)
        store = LanceStore(str(folder), "wines")
        generation = store.generation()
        try:
            store.create(RECIPE, batch_number(99), frontier(99), after=generation)
        except StaleFrontier:
            # The killed builder had written the next one and not named it: that is finished now.
            assert store.generation() == generation + 1
        else:
            assert state(folder) == (99, expected(99))


def test_racing_processes_commit_each_frontier_once(tmp_path: Path) -> None:
    # Here, since this file is also run by itself, without the tests' folder on its path.
    from support.racing import start_together

    store = LanceStore(str(tmp_path), "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    writers = [child("commit_raced", str(tmp_path), w) for w in ("one", "two")]
    start_together(writers)
    won = [int(w.communicate()[0]) for w in writers]
    sync, held = state(tmp_path)
    assert sync == sum(won) == RACES
    assert {k for k in held if k.startswith("shared")} == {f"shared{n + 1}" for n in range(RACES)}
    for name, times in zip(("one", "two"), won, strict=True):
        assert sum(k.startswith(name) for k in held) == times


def test_a_full_disk_lands_nothing_and_says_so(tmp_path: Path) -> None:
    store = LanceStore(str(tmp_path), "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    said = child("commit_on_a_full_disk", str(tmp_path)).communicate()[0]
    assert said.startswith("StoreError | nothing was written | check that the folder is writable")
    assert state(tmp_path) == (0, expected(0))
    store.commit(batch_number(1), frontier(0), frontier(1))
    assert state(tmp_path) == (1, expected(1))


def test_a_read_only_folder_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(StoreError, match="cannot be written"):
            LanceStore(str(tmp_path), "wines").create(RECIPE, batch_number(0), frontier(0), after=0)
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o755)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
