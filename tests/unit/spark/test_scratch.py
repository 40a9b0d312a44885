"""Temporary folders of dead processes are removed, those of living ones are not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from lakewake.spark import scratch

HOLDER = """
import sys
from lakewake.spark.scratch import make_folder
print(make_folder(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """A process, and the folder that it has locked."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_the_folder_of_a_killed_process_is_removed_by_the_next_process(
    temporary: Path,
) -> None:
    killed, left = holder()
    (left / "local").mkdir()
    (left / "local" / "shuffle").write_text("x")
    killed.kill()
    killed.communicate()
    living, held = holder()
    assert not left.exists()
    ours = scratch.make_folder()
    assert held.is_dir()
    living.communicate()
    scratch.remove_leftovers()
    assert not held.exists()
    assert ours.is_dir()
    scratch.remove_folder(ours)
    assert list(temporary.iterdir()) == []


def test_a_folder_whose_jvm_still_runs_is_left(temporary: Path) -> None:
    killed, left = holder()
    killed.kill()
    killed.communicate()
    program = "import sys; print(flush=True); sys.stdin.read()"
    jvm = subprocess.Popen(
        [sys.executable, "-c", program, f"-Dx={left}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert jvm.stdout is not None
    jvm.stdout.readline()
    ours = scratch.make_folder()
    assert left.is_dir()
    jvm.communicate()
    # The next process removes it when it ends: it may have started before that JVM had ended.
    scratch.remove_folder(ours)
    assert not left.exists()


def test_a_folder_without_a_lock_is_removed_once_it_is_old(temporary: Path) -> None:
    new, old = temporary / "lakewake-spark-new", temporary / "lakewake-spark-old"
    for folder in (new, old):
        folder.mkdir()
    then = time.time() - 2 * scratch.UNLOCKED_SECONDS
    os.utime(old, (then, then))
    scratch.remove_leftovers()
    assert [f.name for f in temporary.iterdir()] == ["lakewake-spark-new"]


def test_links_files_and_foreign_folders_are_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "mine").mkdir()
    (temporary / "mine" / scratch.LOCK).touch()
    (temporary / "lakewake-spark-link").symlink_to(temporary / "mine")
    (temporary / "lakewake-spark-file").touch()
    (temporary / "lakewake-spark-other").mkdir()
    (temporary / "lakewake-spark-other" / scratch.LOCK).touch()
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    scratch.remove_leftovers()
    monkeypatch.undo()
    assert len(list(temporary.iterdir())) == 4
    assert (temporary / "mine").is_dir()


def test_the_folder_of_a_process_is_created_again_after_removal() -> None:
    first = scratch.own_folder()
    assert scratch.own_folder() == first
    scratch.remove_folder(first)
    second = scratch.own_folder()
    assert second.is_dir()
    assert second != first
    scratch.remove_folder(second)


def test_without_file_locks_a_folder_is_created_and_never_removed(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = scratch.make_folder()
    then = time.time() - 2 * scratch.UNLOCKED_SECONDS
    os.utime(folder, (then, then))
    scratch.remove_leftovers()
    assert list(temporary.iterdir()) == [folder]
    scratch.remove_folder(folder)
    assert not folder.exists()
