"""The hot tier in files: written by one process, mapped by many, and never believed blindly."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakewake.store.hot import files as files_module
from lakewake.store.hot import tier as tier_module
from lakewake.store.hot.base import Base
from lakewake.store.hot.files import CURRENT, FILES, HotFiles
from lakewake.store.hot.reader import HotReader
from lakewake.store.hot.tier import HotTier
from lakewake.store.lance.store import LanceStore
from lakewake.testing.samples import batch, chunk, frontier, keys, query, recipe

WAIT = 60.0
CHUNKS = 300


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakewake.store.hot.base.CELLS_MIN_CHUNKS", 100)


@pytest.fixture
def store(tmp_path: Path) -> LanceStore:
    made = LanceStore(str(tmp_path), "wines")
    rows = [chunk(f"k{n}", f"text {n}") for n in range(CHUNKS)]
    made.create(recipe(), batch(*rows), frontier(1), after=0)
    return made


@pytest.fixture
def files(tmp_path: Path) -> HotFiles:
    return HotFiles(tmp_path, "wines")


def held(tier: HotTier, store: LanceStore) -> HotReader:
    reader = store.open()
    tier.want(reader)
    assert tier.wait(WAIT)
    hot = tier.front(reader)
    assert isinstance(hot, HotReader)
    return hot


def written(store: LanceStore, files: HotFiles) -> str:
    tier = HotTier("1GB", 0.99, files, writes=True)
    held(tier, store)
    tier.close()
    return files.token()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the index is read instead of mapped."""
    seen: list[int] = []
    real: Any = tier_module.__dict__["read_base"]

    def counting(*args: Any) -> Any:
        seen.append(1)
        return real(*args)

    monkeypatch.setattr(tier_module, "read_base", counting)
    return seen


def test_a_server_maps_what_a_sync_wrote(
    store: LanceStore, files: HotFiles, reads: list[int]
) -> None:
    assert written(store, files)
    assert len(reads) == 1
    tier = HotTier("1GB", 0.99, files)
    hot = held(tier, store)
    assert len(reads) == 1
    assert tier.status.persisted
    assert tier.status.recall_mean == 1
    for n in range(0, CHUNKS, 7):
        assert keys(hot.search(query(f"text {n}", 1))) == [f"k{n}"]
    tier.close()


def test_commits_since_the_files_were_written_are_followed(
    store: LanceStore, files: HotFiles, reads: list[int]
) -> None:
    token = written(store, files)
    gone = chunk("k7")["_id"]
    store.commit(batch(chunk("new", "new"), deletes=(gone,)), frontier(1), frontier(2))
    tier = HotTier("1GB", 0.99, files)
    hot = held(tier, store)
    assert (tier.status.since, tier.status.gone, len(reads)) == (1, 1, 1)
    assert keys(hot.search(query("new", 1))) == ["new"]
    assert "k7" not in keys(hot.search(query("text 7", CHUNKS)))
    assert files.token() == token
    tier.close()


def test_files_are_written_again_once_much_has_changed_and_servers_map_those(
    store: LanceStore, files: HotFiles, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "MOST_SINCE", 1)
    first = written(store, files)
    server = HotTier("1GB", 0.99, files)
    held(server, store)
    rows = [chunk(f"n{n}", f"new {n}") for n in range(CHUNKS // 4)]
    store.commit(batch(*rows), frontier(1), frontier(2))
    held(server, store)
    # The server leaves this to the sync.
    assert (server.status.since, len(reads)) == (CHUNKS // 4, 1)
    second = written(store, files)
    assert second != first
    store.commit(batch(), frontier(2), frontier(3))
    hot = held(server, store)
    assert (server.status.since, len(reads)) == (0, 2)
    assert keys(hot.search(query("new 3", 1))) == ["n3"]
    server.close()


@pytest.mark.parametrize("name", [*FILES, CURRENT])
@pytest.mark.parametrize("damage", ["truncated", "changed", "lost"])
def test_damaged_files_count_as_absent(
    store: LanceStore, files: HotFiles, tmp_path: Path, name: str, damage: str
) -> None:
    folder = tmp_path / "wines.hot"
    file = folder / name if name == CURRENT else folder / written(store, files) / name
    written(store, files)
    content = file.read_bytes()
    if damage == "lost":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    tier = HotTier("1GB", 0.99, files)
    hot = held(tier, store)
    assert keys(hot.search(query("text 3", 1))) == ["k3"]
    if name != CURRENT or damage != "changed":
        assert not tier.status.persisted
    tier.close()


@pytest.mark.parametrize(
    "other",
    [{"format": 2}, {"fingerprint": "another"}, {"generation": 2}],
)
def test_files_of_another_version_or_index_count_as_absent(
    store: LanceStore, files: HotFiles, tmp_path: Path, other: dict[str, Any]
) -> None:
    written(store, files)
    current = tmp_path / "wines.hot" / CURRENT
    current.write_text(json.dumps({**json.loads(current.read_text()), **other}))
    assert files.read(store.open()) is None


def test_files_of_a_former_index_at_the_same_place_are_not_believed(
    store: LanceStore, files: HotFiles
) -> None:
    """Its recipe and its generation are the same, but not its chunks."""
    written(store, files)
    store.drop()
    again = LanceStore(store._generations.location.address(), "wines")
    rows = [chunk(f"k{n}", f"other {n}") for n in range(CHUNKS)]
    again.create(recipe(), batch(*rows), frontier(1), after=again.generation())
    tier = HotTier("1GB", 0.99, files)
    hot = held(tier, again)
    assert keys(hot.search(query("other 5", 1))) == ["k5"]
    assert hot.search(query("text 5", 1))["_similarity"][0].as_py() < 0.999
    tier.close()


def test_a_lower_promise_is_probed_again(store: LanceStore, files: HotFiles) -> None:
    written(store, files)
    tier = HotTier("1GB", 1.0, files)
    assert held(tier, store).searching().mode == "exact"
    tier.close()


def test_while_another_process_writes_nothing_is_written(
    store: LanceStore, files: HotFiles, tmp_path: Path
) -> None:
    (tmp_path / "wines.hot").mkdir()
    with (tmp_path / "wines.hot" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert written(store, files) == ""
    assert written(store, files)


def test_the_former_files_and_those_of_killed_writers_are_removed(
    store: LanceStore, files: HotFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wines.hot"
    first = written(store, files)
    for name, age in (("dead", 2 * files_module.ABANDONED), ("alive", 0)):
        (folder / name).mkdir()
        os.utime(folder / name, (time.time() - age,) * 2)
    (folder / CURRENT).write_text(
        json.dumps({**json.loads((folder / CURRENT).read_text()), "fingerprint": "another"})
    )
    second = written(store, files)
    left = {p.name for p in folder.iterdir() if p.is_dir()}
    assert left == {second, "alive"}
    assert first != second


def test_a_mapped_base_outlives_its_files(store: LanceStore, files: HotFiles) -> None:
    written(store, files)
    tier = HotTier("1GB", 0.99, files)
    hot = held(tier, store)
    files.drop()
    assert keys(hot.search(query("text 9", 1))) == ["k9"]
    tier.close()


def test_dropping_removes_the_files(files: HotFiles, store: LanceStore, tmp_path: Path) -> None:
    written(store, files)
    assert files.drop(dry_run=True).removed == (str(tmp_path / "wines.hot"),)
    assert store.drop(dry_run=True).foreign == ()
    files.drop()
    assert not (tmp_path / "wines.hot").exists()
    assert files.drop().removed == ()


WRITE = """
import sys
from pathlib import Path
import lakewake.store.hot.base as base
base.CELLS_MIN_CHUNKS = 100
from lakewake.store.hot.files import HotFiles
from lakewake.store.hot.tier import HotTier
from lakewake.store.lance.store import LanceStore
folder = Path(sys.argv[1])
reader = LanceStore(str(folder), "wines").open()
made = base.with_cells(base.read_base(reader, lambda: False), 0.99, lambda: False)
print("ready", flush=True)
while True:
    HotFiles(folder, "wines").write(made, reader)
"""


def found(base: Base, question: np.ndarray) -> str:
    positions, near = base.in_cells(question, len(base.cells))
    return str(base.rows.columns["_key"][int(positions[near.argmax()])])


def test_a_writer_killed_at_any_time_leaves_files_that_are_whole_or_absent(
    store: LanceStore, files: HotFiles, tmp_path: Path
) -> None:
    """Two processes write all the time; one of them is killed, and readers map meanwhile."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        reader, seen = store.open(), set()
        question = np.array(chunk("k5", "text 5")["_vector"], np.float32)
        while len(seen) < 12:
            base = files.read(reader)
            if base is not None and base.token not in seen:
                seen.add(base.token)
                assert found(base, question) == "k5"
            if len(seen) == 6:
                writers[0].send_signal(signal.SIGKILL)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    base = files.read(reader)
    assert base is None or found(base, question) == "k5"
