"""Temporary folders that do not outlive their process for long, however it ends.

Each has a file that its process keeps locked. The system releases the lock when the process ends,
killed or not; the next process removes the folders whose lock is free, when it starts and ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PREFIX = "lakewake-spark-"
UNSWEPT = "unlocked-"
LOCK = "owner.lock"
#: A folder without a lock is removed at this age: it is either new, or from an earlier version.
UNLOCKED_SECONDS = 3600.0

_held: dict[Path, IO[bytes]] = {}
_own: Path | None = None


def make_folder() -> Path:
    """A new folder of this process. Folders of ended processes are removed first."""
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # Locked before it gets its final name: others never see our lock file unlocked.
    lock = (folder / f".{LOCK}").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        # The file system has no locks. Others could not see that we still run, so the folder gets
        # a name that they do not look for.
        lock.close()
        return folder.rename(folder.with_name(f"{UNSWEPT}{folder.name}"))
    (folder / f".{LOCK}").rename(folder / LOCK)
    _held[folder] = lock
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of this process, and what a JVM has left that still ran when it started."""
    shutil.rmtree(folder, ignore_errors=True)
    if lock := _held.pop(folder, None):
        lock.close()
    remove_leftovers()


def own_folder() -> Path:
    """The folder for temporary folders of this process; removed when it ends."""
    global _own
    # A system cleanup may remove it while a watch runs for weeks.
    if _own is None or not _own.is_dir():
        _own = make_folder()
        atexit.register(remove_folder, _own)
    return _own


def remove_leftovers() -> None:
    """Remove the folders of ended processes, and keep those of running ones."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if _is_ours(folder):
                with _unowned(folder) as unowned:
                    if unowned and not _in_use(folder):
                        shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    return folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid()


@contextmanager
def _unowned(folder: Path) -> Iterator[bool]:
    """Whether no process owns the folder; if so, it is locked until the context ends."""
    try:
        lock = (folder / LOCK).open("rb")
    except FileNotFoundError:
        yield time.time() - folder.stat().st_mtime > UNLOCKED_SECONDS
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _in_use(folder: Path) -> bool:
    """Whether the folder's JVM still runs: it outlives a killed Python for a while."""
    name = folder.name.encode()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if name in command.read_bytes():
                return True
    return False
