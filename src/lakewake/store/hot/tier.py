"""Keeps the newest version of one index in memory, in a thread of its own.

While a version is not in memory yet, the store answers: no search waits for the hot tier, and none
sees anything but the version that it opened.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from lakewake.errors import LakewakeError
from lakewake.model.hot import AUTO, OFF, HotStatus, in_words, parse_size
from lakewake.progress import SILENT, Counted, Counting, Reporter, Steps, watched
from lakewake.store import StoreReader
from lakewake.store.hot.base import Base, estimate, has_cells, probe, read_base, with_cells
from lakewake.store.hot.cells import compared
from lakewake.store.hot.files import HotFiles
from lakewake.store.hot.held import Held, Version, follow
from lakewake.store.hot.reader import HotReader
from lakewake.store.hudi.slices import memory_bound

#: The base is made again once this many chunks came since, and this share of them.
MOST_SINCE, SINCE_SHARE = 5_000, 1 / 8
#: If it could not be read into memory, it is tried again after this many searches.
PAUSE = 1_000
#: Seconds that the end of the process waits for the thread.
LEAVING = 10.0
#: Seconds between two looks of who waits for it.
EVERY = 0.2
BUILDING = "the store answers until it is in memory"


class Front(NamedTuple):
    """A version in memory, for the reader of the store that it was asked for."""

    reader: StoreReader
    version: Version
    hot: HotReader


def limit_of(hot: str) -> int:
    """How many bytes the hot tier may take; 0 if it is off."""
    if hot == OFF:
        return 0
    return memory_bound() if hot == AUTO else parse_size(hot) or 0


def is_outgrown(held: Held) -> bool:
    """Whether so much changed since the base was read that it should be read again."""
    most = max(MOST_SINCE, len(held.base.rows) * SINCE_SHARE)
    return len(held.since) > most or held.gone > 2 * most


class HotTier:
    """The hot tier of one index in this process.

    Args:
        hot: `auto`, `off` or a size.
        recall: what a search promises.
        files: where a base may be mapped from; None: it is always read.
        writes: whether this process writes these files. The server writes nothing.
    """

    def __init__(
        self, hot: str, recall: float, files: HotFiles | None = None, *, writes: bool = False
    ) -> None:
        self.limit = limit_of(hot)
        self._recall, self._left = recall, 0
        self._files, self._writes, self._searched = files, writes, not writes
        self._front: Front | None = None
        self._base: Base | None = None
        self._wanted: StoreReader | None = None
        self._wake, self._idle = threading.Condition(), threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._idle.set()
        self._status = HotStatus("waiting", "no version was searched yet", limit=self.limit)
        self._counting: Counting | None = None

    def front(self, reader: StoreReader) -> StoreReader:
        """The same version from memory if it is there, or else `reader` itself. Never waits."""
        there = self._front
        if there is not None and there.reader is reader:
            return there.hot
        if not self.limit or reader.is_service:
            return reader
        self._searched = True
        if there is not None and self._has(reader):
            # Upkeep made another version of the same chunks.
            self._front = Front(reader, there.version, HotReader(reader, there.hot.held))
            return self._front.hot
        self._left -= 1
        if self._left < 0:
            self.want(reader)
        return reader

    def want(self, reader: StoreReader) -> None:
        """Begin to hold this version."""
        if not self.limit or reader.is_service or self._stopped.is_set():
            return
        with self._wake:
            self._left = 0
            if self._wanted is reader or self._status.state == "refused" or self._has(reader):
                return
            self._wanted = reader
            self._idle.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=_work, args=(weakref.ref(self),))
                self._thread.name, self._thread.daemon = "lakewake-hot", True
                self._thread.start()
                atexit.register(_leave, weakref.ref(self))
            self._wake.notify()

    def _has(self, reader: StoreReader) -> bool:
        """Whether it holds this version."""
        there = self._front
        return there is not None and there.version == Version.of(reader)

    def wait(self, seconds: float, reporter: Reporter = SILENT) -> bool:
        """Wait until nothing is left to do; False if that takes longer.

        Args:
            reporter: shows how far it is.
        """
        if (seen := watched(reporter)) is None:
            return self._idle.wait(seconds)
        until = time.monotonic() + seconds
        with closing(Steps(seen)) as steps:
            while not self._idle.wait(max(0.0, min(EVERY, until - time.monotonic()))):
                if time.monotonic() >= until:
                    return False
                steps.show(self.work)
        return True

    @property
    def work(self) -> dict[Hashable, Counted]:
        """How far the thread is with what it does; nothing if it has nothing to do."""
        work = self._counting
        return {work: work.counted} if work and not self._idle.is_set() else {}

    @property
    def status(self) -> HotStatus:
        """What it holds."""
        return self._status

    def close(self) -> None:
        """Stop, and let go of the memory."""
        self._stopped.set()
        with self._wake:
            self._wake.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LEAVING)
        self._front = self._base = self._wanted = None

    def next(self) -> StoreReader | None:
        """The next version to hold; None to stop. Waits for one."""
        with self._wake:
            if self._wanted is None:
                self._counting = None
                self._idle.set()
                self._wake.wait(1.0)
            return self._wanted

    @property
    def is_stopped(self) -> bool:
        """Whether the thread is to end."""
        return self._stopped.is_set()

    def hold(self, reader: StoreReader) -> None:
        """Bring a version into memory. Called in the thread."""
        try:
            self._hold(reader)
        except (LakewakeError, MemoryError, OSError, ValueError, RuntimeError) as error:
            # Whatever it is, the store has the answers; if its files are damaged, it reports that.
            fact = error.fact if isinstance(error, LakewakeError) else str(error)
            self._refuse(f"the index could not be read into memory: {fact}", 0, lasting=False)
        finally:
            with self._wake:
                if self._wanted is reader:
                    self._wanted = None

    def _hold(self, reader: StoreReader) -> None:
        if not self._searched and not has_cells(reader.counts()[1], self._recall):
            # It only writes files here, and so few chunks are read quickly.
            return
        former = self._front.hot.held if self._front else None
        base = self._mapped(reader) or self._base or self._read(reader)
        if base is None:
            return
        held = follow(base, reader, former if former and former.base is base else None)
        if held.nbytes > self.limit:
            self._refuse("", held.nbytes)
            return
        self._base = base
        self._show(reader, held)
        # Until a new base is there, the one in use answers. A mapped one is left to its writer.
        ours = self._writes or not base.token
        if ours and is_outgrown(held) and (renewed := self._read(reader)) is not None:
            self._base = renewed
            self._show(reader, follow(renewed, reader))
        if self._writes:
            self._write(reader)

    def _mapped(self, reader: StoreReader) -> Base | None:
        """The base in the files, if there is another one than that in use."""
        if self._files is None or (token := self._files.token()) == "":
            return None
        if self._base is not None and self._base.token == token:
            return None
        base = self._files.read(reader)
        if base is None or base.nbytes > self.limit:
            return None
        if base.cells is not None and self._recall >= 1:
            return replace(base, cells=None, probed=None, why="its recall is 1")
        if base.probed is not None and not base.probed.keeps(self._recall):
            # They were made for a lower promise.
            found = probe(base, self._recall)
            base = replace(base, probed=found, cells=base.cells if found else None)
        return base

    def _write(self, reader: StoreReader) -> None:
        """Write the base to the files, and map it from there, as other processes do."""
        base = self._base
        if self._files is None or base is None or base.token or base.cells is None:
            return
        self._counting = Counting("write the files")
        if self._files.write(base, reader) and (mapped := self._files.read(reader)) is not None:
            self._base = mapped
            self._show(reader, follow(mapped, reader))

    def _read(self, reader: StoreReader) -> Base | None:
        """A new base; None if there cannot be one."""
        stated = estimate(reader, self._recall)
        if stated > self.limit:
            self._refuse("", stated)
            return None
        if self._front is None:
            self._status = HotStatus("building", BUILDING, stated, self.limit)
        stopped: Callable[[], bool] = self._stopped.is_set
        self._counting = Counting("read into memory", reader.counts()[1])
        base = read_base(reader, stopped, self._counting)
        if base is not None:
            self._counting = Counting("group near vectors", compared(len(base.rows)))
        found = base and with_cells(base, self._recall, stopped, self._counting)
        if found and found.cells is None and has_cells(len(found.rows), self._recall):
            # Comparing all vectors of a large index takes the store no longer.
            self._refuse(found.why, stated)
            return None
        return found

    def _show(self, reader: StoreReader, held: Held) -> None:
        self._front = Front(reader, Version.of(reader), HotReader(reader, held))
        base = held.base
        self._status = HotStatus(
            state="ready",
            why=base.why or "the nearest cells are read",
            bytes=held.nbytes,
            limit=self.limit,
            instant=reader.frontier().newest,
            chunks=len(base.rows),
            since=len(held.since),
            gone=held.gone,
            probes=base.probed.effort.probes if base.probed else 0,
            cells=len(base.cells) if base.cells else 0,
            recall_mean=base.probed.mean if base.probed else None,
            persisted=bool(base.token),
        )

    def _refuse(self, why: str, stated: int, *, lasting: bool = True) -> None:
        """Let the store answer, for as long as this process runs if it is `lasting`."""
        self._front = self._base = None
        # Not again with each search, if reading it fails.
        self._left = PAUSE
        if not why:
            why = f"it needs {in_words(stated)}, and `hot` allows {in_words(self.limit)}"
        self._status = HotStatus("refused" if lasting else "waiting", why, stated, self.limit)


def _work(tier: weakref.ref[HotTier]) -> None:
    """Hold one wanted version after another, until the tier is closed or nobody has it any more."""
    while (one := tier()) is not None and not one.is_stopped:
        reader = one.next()
        if reader is not None and not one.is_stopped:
            one.hold(reader)
        del one, reader


def _leave(tier: weakref.ref[HotTier]) -> None:
    """End the thread before Python ends: it may be in a library that cannot be broken off."""
    if (one := tier()) is not None:
        one.close()
