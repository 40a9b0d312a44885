"""Slices of an index's table: the files of one cell, and their columns in memory."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: One process keeps slices in memory up to this share of the memory there is, and at least `LEAST`.
SHARE = 1 / 4
LEAST = 1024 * 1024 * 1024
#: Where the limit of a container is.
CONTAINER = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Slice:
    """What a state of the table holds of one cell: a base file and the logs on top of it."""

    cell: int
    base: str
    logs: tuple[str, ...]


def memory_bound(container: Path = CONTAINER) -> int:
    """How many bytes of slices one process keeps in memory."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Without a container there is no such file, or it holds "max".
    with suppress(OSError, ValueError):
        there = min(there, int(container.read_text()))
    return max(LEAST, int(there * SHARE))


class SliceCache:
    """Columns of slices that were read before, within a bound of memory; the oldest go first."""

    def __init__(self, memory: int | None = None) -> None:
        self.memory = memory_bound() if memory is None else memory
        self._held: OrderedDict[tuple[str, Slice], dict[str, Any]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str, one: Slice) -> dict[str, Any]:
        """The columns of a slice that are in memory, by name."""
        with self._lock:
            held = self._held.get((path, one))
            if held is None:
                return {}
            self._held.move_to_end((path, one))
            return dict(held)

    def put(self, path: str, one: Slice, columns: dict[str, Any]) -> None:
        """Keep further columns of a slice."""
        with self._lock:
            held = self._held.setdefault((path, one), {})
            self._held.move_to_end((path, one))
            for name in columns.keys() - held.keys():
                held[name] = columns[name]
                self._bytes += columns[name].nbytes
            while self._bytes > self.memory and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                self._bytes -= sum(column.nbytes for column in gone.values())
