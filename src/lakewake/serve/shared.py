"""Memory that the processes of one server share: counts, rates, and the state of the server.

It is a file without a name that the parent opens and its workers inherit. It ends with the last of
them. A server of one process has the same memory for itself. Its parts:

    the state       JSON that the parent writes and each worker reads
    the totals      JSON that a worker reads, changes and writes back
    the rates       for each caller the time at which it may send all at once again
    a part for each worker: its running threads, its connections, and its counts, which outlive it
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import secrets
import struct
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

#: Bytes of the two JSON values.
STATE_BYTES, TOTALS_BYTES = 64 * 1024, 4 * 1024 * 1024
#: Callers are in buckets of this many, and there are this many buckets.
PLACES, BUCKETS = 8, 8_192
#: Bytes of a caller's hash, and of its entry: the hash and a time.
HASH, ENTRY = 16, 24
#: The most counts of a worker, the most bytes of a name of one, and how many values it has.
COUNTS, NAME, VALUES = 4_096, 382, 16
#: Bytes of a count: the length of its name, the name, and the values.
COUNT = 2 + NAME + 8 * VALUES
STATE, TOTALS = 0, STATE_BYTES
SALT = TOTALS + TOTALS_BYTES
RATES = SALT + HASH
PARTS = RATES + BUCKETS * PLACES * ENTRY
#: Bytes of a worker's part: its running threads, its connections, then its counts.
HEAD = 16
PART = HEAD + COUNTS * COUNT
#: A worker that does not run has this many connections, so that nobody waits for it.
ABSENT = -1.0
_SIZE = struct.Struct("<I")
_NAME_SIZE = struct.Struct("<H")


def open_memory(workers: int) -> int:
    """A file without a name, of the size that this many workers need."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("lakewake")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, PARTS + workers * PART)
    os.pwrite(fd, secrets.token_bytes(HASH), SALT)
    return fd


class Shared:
    """The memory of a server, as one of its processes sees it.

    Args:
        fd: the file of `open_memory`; None: this process is the whole server.
        number: which part is that of this process.
    """

    def __init__(self, fd: int | None = None, number: int = 0) -> None:
        self._fd = fd
        size = PARTS + PART if fd is None else os.fstat(fd).st_size
        self._map = mmap.mmap(-1 if fd is None else fd, size)
        if fd is None:
            self._map[SALT:RATES] = secrets.token_bytes(HASH)
        # Of eight bytes, which other processes never see half written.
        self._numbers = memoryview(self._map).cast("d")
        self.workers = (size - PARTS) // PART
        self._own = PARTS + number * PART
        self._locks = {start: threading.Lock() for start in (STATE, TOTALS, RATES, self._own)}
        self._salt = self._map[SALT:RATES]
        self._counts = {name: at for name, at, _ in self._counted(self._own)}

    # What the parent reports

    def report(self, state: Mapping[str, Any]) -> None:
        """Let every process know the state of the server."""
        with self._locked(STATE, STATE_BYTES):
            self._write(STATE, STATE_BYTES, state)

    @property
    def state(self) -> dict[str, Any]:
        """What the parent reported last; empty if nothing was."""
        with self._locked(STATE, STATE_BYTES):
            return self._read(STATE)

    # Totals

    @contextmanager
    def totals(self) -> Iterator[dict[str, Any]]:
        """A value that one process at a time may change."""
        with self._locked(TOTALS, TOTALS_BYTES):
            value = self._read(TOTALS)
            yield value
            self._write(TOTALS, TOTALS_BYTES, value)

    # Rates

    def take(self, caller: str, rate: float, most: float, now: float) -> float:
        """Count one request of a caller. Returns 0, or the seconds until it may send one.

        What a caller may send is kept as the time at which it may send `most` at once again.
        """
        name = caller.encode("utf-8", "replace")
        digest = hashlib.blake2b(name, digest_size=HASH, key=self._salt).digest()
        bucket = RATES + int.from_bytes(digest[:4], "little") % BUCKETS * PLACES * ENTRY
        with self._locked(RATES, PLACES * ENTRY, bucket):
            at = self._place(bucket, digest)
            # Never later than a caller that has just used up all: its rate may have been changed.
            full = min(max(self._numbers[at], now), now + most / rate)
            left = most - (full - now) * rate
            # Times are added up, so they are off by some bits.
            may = left > 1 - 1e-6
            self._numbers[at] = full + 1 / rate if may else full
        return 0.0 if may else (1 - left) / rate

    def _place(self, bucket: int, digest: bytes) -> int:
        """Where the time of a caller is. If it has no entry, it gets that of the idlest one."""
        entries = range(bucket, bucket + PLACES * ENTRY, ENTRY)
        for entry in entries:
            if self._map[entry : entry + HASH] == digest:
                return (entry + HASH) // 8
        entry = min(entries, key=lambda e: self._numbers[(e + HASH) // 8])
        self._map[entry : entry + HASH] = digest
        self._numbers[(entry + HASH) // 8] = 0.0
        return (entry + HASH) // 8

    # Numbers of the workers

    def set_running(self, threads: int) -> None:
        """Note how many threads of this process are working."""
        self._numbers[self._own // 8] = threads

    def set_connections(self, connections: int) -> None:
        """Note how many connections this process has."""
        self._numbers[self._own // 8 + 1] = connections

    def forget(self, number: int) -> None:
        """A worker has ended, and its threads and connections with it. Its counts stay."""
        self._numbers[(PARTS + number * PART) // 8] = 0.0
        self._numbers[(PARTS + number * PART) // 8 + 1] = ABSENT

    @property
    def running(self) -> int:
        """How many threads of all processes are working."""
        return int(sum(self._numbers[part // 8] for part in self._parts))

    @property
    def has_fewest_connections(self) -> bool:
        """Whether no other process has fewer connections than this one."""
        own = self._numbers[self._own // 8 + 1]
        return not any(0 <= self._numbers[part // 8 + 1] < own for part in self._parts)

    @property
    def _parts(self) -> range:
        return range(PARTS, PARTS + self.workers * PART, PART)

    def add(self, name: str, values: Sequence[float]) -> None:
        """Add to the values of a count. A name that is too long, or one too many, is left out."""
        with self._locks[self._own]:
            at = self._counts.get(name) or self._begin(name)
            if at:
                for n, value in enumerate(values, at):
                    self._numbers[n] += value

    def sums(self) -> dict[str, list[float]]:
        """The counts of all processes together, also of those that have ended."""
        found: dict[str, list[float]] = {}
        for part in self._parts:
            for name, _, values in self._counted(part):
                before = found.get(name) or [0.0] * VALUES
                found[name] = [a + b for a, b in zip(before, values, strict=True)]
        return found

    def _begin(self, name: str) -> int:
        """Where the values of a new count are; 0 if there is no place for it."""
        encoded = name.encode()
        if len(self._counts) >= COUNTS or len(encoded) > NAME:
            return 0
        start = self._own + HEAD + len(self._counts) * COUNT
        self._map[start + 2 : start + 2 + len(encoded)] = encoded
        # The length comes last: a name without one is not there yet.
        _NAME_SIZE.pack_into(self._map, start, len(encoded))
        self._counts[name] = (start + 2 + NAME) // 8
        return self._counts[name]

    def _counted(self, part: int) -> Iterator[tuple[str, int, list[float]]]:
        """The name of each count of a worker, where its values are, and the values."""
        for start in range(part + HEAD, part + PART, COUNT):
            (size,) = _NAME_SIZE.unpack_from(self._map, start)
            if not size:
                return
            at = (start + 2 + NAME) // 8
            name = self._map[start + 2 : start + 2 + size].decode()
            yield name, at, list(self._numbers[at : at + VALUES])

    # The file

    @contextmanager
    def _locked(self, part: int, size: int, start: int | None = None) -> Iterator[None]:
        """Keep out other threads, and other processes as long as this one lives."""
        with self._locks[part]:
            if self._fd is None:
                yield
                return
            first = part if start is None else start
            fcntl.lockf(self._fd, fcntl.LOCK_EX, size, first)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, size, first)

    def _read(self, start: int) -> dict[str, Any]:
        (size,) = _SIZE.unpack_from(self._map, start)
        begin = start + _SIZE.size
        # A process that was killed may have left half of it.
        with suppress(ValueError):
            value = json.loads(self._map[begin : begin + size])
            if isinstance(value, dict):
                return value
        return {}

    def _write(self, start: int, most: int, value: Mapping[str, Any]) -> None:
        encoded, begin = json.dumps(value).encode(), start + _SIZE.size
        if len(encoded) > most - _SIZE.size:
            raise ValueError(f"{len(encoded)} bytes are too many")
        self._map[begin : begin + len(encoded)] = encoded
        _SIZE.pack_into(self._map, start, len(encoded))
