"""Samples the memory of a process and all its descendants from outside."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Watched:
    """What was seen of a process tree while it ran.

    Attributes:
        series: (seconds since the start, bytes resident in the whole tree).
        programs: the names of all programs in it.
    """

    series: list[tuple[float, int]] = field(default_factory=list)
    programs: set[str] = field(default_factory=set)

    @property
    def peak(self) -> int:
        """The most bytes at any moment."""
        return max((held for _, held in self.series), default=0)


class Watcher:
    """Samples a process tree in a thread while the context lasts."""

    def __init__(self, pid: int, interval: float = 0.1) -> None:
        self.watched = Watched()
        self._pid = pid
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self.watched

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        began = time.perf_counter()
        while not self._ended.wait(self._interval):
            tree = descendants(self._pid)
            held = sum(resident(pid) for pid in tree)
            self.watched.series.append((time.perf_counter() - began, held))
            self.watched.programs.update(program(pid) for pid in tree)


def descendants(root: int) -> list[int]:
    """A process and all that it started, directly or indirectly."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            children.setdefault(parent(int(entry)), []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process is gone."""
    with suppress(OSError):
        # The name is in brackets and may contain anything, including brackets.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def resident(pid: int) -> int:
    """The resident bytes of a process; 0 if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def program(pid: int) -> str:
    """The name of a process; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
