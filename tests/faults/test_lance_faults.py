"""A Lance index under kill -9, racing processes and a full disk."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from lakewake.errors import StaleFrontier, StoreError
from lakewake.store.lance.store import LanceStore
from support import committing
from support.committing import RECIPE, batch_number, expected, frontier
from support.racing import kill_after, start_together, started

KILLS = 10
KILLED_BUILDS = 5
RACES = 30


def state(folder: Path) -> tuple[int, dict[str, int]]:
    return committing.state(LanceStore(str(folder), "wines"))


def child(task: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return started("support.committing", task, f"lance:{folder}", *arguments)


def test_a_commit_killed_anywhere_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    dice = random.Random(7)
    for _ in range(KILLS):
        process = child("commit_for_ever", tmp_path)
        reported = kill_after(process, dice.randint(1, 3), dice.uniform(0, 0.1))
        sync, held = state(tmp_path)
        assert sync in (reported, reported + 1)
        assert held == expected(sync)


def test_a_build_killed_anywhere_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    dice = random.Random(11)
    for attempt in range(KILLED_BUILDS):
        folder = tmp_path / str(attempt)
        reported = kill_after(
            child("create_until_killed", folder), dice.randint(2, 4), dice.uniform(0, 0.05)
        )
        sync, held = state(folder)
        assert sync in (reported, reported + 1)
        assert held == expected(sync)
        store = LanceStore(str(folder), "wines")
        generation = store.generation()
        try:
            store.create(RECIPE, batch_number(99), frontier(99), after=generation)
        except StaleFrontier:
            # The killed builder had written the next generation but not named it; this finishes it.
            assert store.generation() == generation + 1
        else:
            assert state(folder) == (99, expected(99))


def test_racing_processes_commit_each_frontier_once(tmp_path: Path) -> None:
    # Imported here, since this file is also run as a script, without `tests` on its path.
    store = LanceStore(str(tmp_path), "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    writers = [child("commit_raced", tmp_path, w, str(RACES)) for w in ("one", "two")]
    start_together(writers)
    won = [int(w.communicate()[0]) for w in writers]
    sync, held = state(tmp_path)
    assert sync == sum(won) == RACES
    assert {k for k in held if k.startswith("shared")} == {f"shared{n + 1}" for n in range(RACES)}
    for name, times in zip(("one", "two"), won, strict=True):
        assert sum(k.startswith(name) for k in held) == times


def test_a_full_disk_lands_nothing_and_the_error_says_so(tmp_path: Path) -> None:
    store = LanceStore(str(tmp_path), "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    said = child("commit_on_a_full_disk", tmp_path).communicate()[0]
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
