"""The hot tier of an open index, made as soon as this process searches often."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.config.settings import IndexSettings
from lakewake.model.hot import AUTO, OFF, HotStatus
from lakewake.progress import SILENT, Reporter

if TYPE_CHECKING:
    from lakewake.store import StoreReader
    from lakewake.store.hot.files import HotFiles
    from lakewake.store.hot.tier import HotTier

#: Stores that are read in this process; a service has its own memory.
STORES = ("lance", "lance+s3", "hudi", "hudi+s3")
#: Those whose hot tier can be written to files beside the index.
LOCAL = ("lance", "hudi")
#: Seconds that a sync waits for its files.
LONGEST = 3600.0
#: A process that searches less often, such as `lakewake search` in a shell, does not begin.
SEARCHES = 20


class Hot:
    """Puts the hot tier in front of the versions of one index."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings, self._left = settings, SEARCHES
        self._tier: HotTier | None = None
        self._writes = False
        self._making = threading.Lock()

    @property
    def is_written_by_syncs(self) -> bool:
        """Whether each sync writes the files; with `auto`, only a watch does."""
        return self._settings.hot not in (AUTO, OFF)

    @property
    def is_on(self) -> bool:
        """Whether the index may be held in memory at all."""
        return self._settings.hot != OFF and self._settings.store.partition("://")[0] in STORES

    def front(self, reader: StoreReader) -> StoreReader:
        """The same version from memory if it is there, or else `reader` itself. Never waits."""
        if self._tier is not None:
            return self._tier.front(reader)
        self._left -= 1
        if self._left < 0 and self.is_on:
            self._made().want(reader)
        return reader

    def warm(self, reader: StoreReader, seconds: float, reporter: Reporter = SILENT) -> bool:
        """Begin to hold a version, and wait; False if that takes longer."""
        if not self.is_on:
            return True
        tier = self._made()
        tier.want(reader)
        return tier.wait(seconds, reporter)

    def persist(self, reader: StoreReader) -> None:
        """Write the files that other processes map, in a thread of its own, if they need it."""
        if self.is_on and self._settings.store.partition("://")[0] in LOCAL:
            self._writes = True
            self._made().want(reader)

    def wait(self, reporter: Reporter) -> None:
        """Wait until nothing is left to do."""
        if self._tier is not None:
            self._tier.wait(LONGEST, reporter)

    def status(self) -> HotStatus:
        """What this process holds of the index."""
        if self._tier is not None:
            return self._tier.status
        if not self.is_on:
            why = "the configuration" if self._settings.hot == OFF else "its store is a service"
            return HotStatus(OFF, f"{why} leaves it off" if self._settings.hot == OFF else why)
        return HotStatus("waiting", f"a process holds the index after {SEARCHES} searches")

    def close(self) -> None:
        """Let go of the memory."""
        if self._tier is not None:
            self._tier.close()

    def _made(self) -> HotTier:
        from lakewake.store.hot.tier import HotTier

        with self._making:
            if self._tier is None:
                s, files = self._settings, hot_files(self._settings)
                self._tier = HotTier(s.hot, s.recall, files, writes=self._writes)
            return self._tier


def is_held_alone(settings: IndexSettings, chunks: int) -> bool:
    """Whether each process holds an index of this size in memory for itself: no file has it."""
    from lakewake.store.hot.base import has_cells

    if settings.hot == OFF or not has_cells(chunks, settings.recall):
        return False
    if settings.store.partition("://")[0] not in STORES:
        return False
    files = hot_files(settings)
    return files is None or not files.token()


def hot_files(settings: IndexSettings) -> HotFiles | None:
    """The files of the hot tier beside the index; None if its store has no local folder."""
    from lakewake.store.hot.files import HotFiles

    scheme, _, folder = settings.store.partition("://")
    return HotFiles(Path(folder), settings.stored_name) if scheme in LOCAL else None
