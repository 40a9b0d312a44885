"""What each sync did, kept beside the index: one small file for each.

    wines.history/20250301T120001123456Z.5f0c2a1b.json

The names sort by time and no two are alike, so writers need not know of each other.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from lakewake.config.settings import IndexSettings
from lakewake.errors import StoreError
from lakewake.history.jobs import NAME as JOB
from lakewake.history.jobs import Jobs, MemoryFiles
from lakewake.model.drop import Dropped
from lakewake.model.history import SyncRecord
from lakewake.store.location import S3, Location, location_at

#: How many records are kept.
KEPT = 500
#: Finding old records takes a listing, so it is done once in this many syncs.
PRUNE_EVERY = 20
#: Files read at the same time from S3, where each takes a round trip.
READS = 16
_logs_in_this_process: dict[tuple[str, str], MemoryLog] = {}
_jobs_in_this_process: dict[tuple[str, str], MemoryFiles] = {}
_NAME = re.compile(r"\d{8}T\d{12}Z\.[0-9a-f]{8}\.json")
#: A record whose writer was killed before it was whole.
_DRAFT = re.compile(r"\.[0-9a-f]{32}\." + _NAME.pattern)


class SyncLog(Protocol):
    """The history of one index. Several processes may write it at once."""

    def begun(self) -> bool:
        """Whether anything is at its location: an error alone does not begin a history."""

    def append(self, record: SyncRecord) -> None:
        """Keep one more record; the oldest beyond `KEPT` are removed in time."""

    def records(self) -> Iterator[SyncRecord]:
        """The records, newest first; each is read when it is needed.

        Raises:
            StoreError: it cannot be reached.
        """

    def drop(self, *, dry_run: bool = False) -> Dropped:
        """Remove all records, and nothing else; with `dry_run`, only return what that would be.

        Raises:
            StoreError: it cannot be reached.
        """


class MemoryLog:
    """A history that lasts as long as the process."""

    def __init__(self) -> None:
        self._records: list[SyncRecord] = []

    def begun(self) -> bool:
        return True

    def append(self, record: SyncRecord) -> None:
        self._records.append(record)
        del self._records[:-KEPT]

    def records(self) -> Iterator[SyncRecord]:
        return iter(sorted(self._records, key=lambda record: record.time, reverse=True))

    def drop(self, *, dry_run: bool = False) -> Dropped:
        found = Dropped(removed=("its history",) if self._records else ())
        if not dry_run:
            self._records.clear()
        return found


class LocationLog:
    """A history in a folder of a location.

    Args:
        at_once: how many files are read at the same time.
        prune_every: one in this many appends removes old records.
    """

    def __init__(
        self,
        location: Location,
        folder: str,
        *,
        at_once: int = 1,
        kept: int = KEPT,
        prune_every: int = PRUNE_EVERY,
    ) -> None:
        self._location, self._folder = location, folder
        self._at_once, self._kept, self._prune_every = at_once, kept, prune_every
        # A file never changes once it is there. None: this Lakewake cannot read the record.
        self._known: dict[str, SyncRecord | None] = {}

    def begun(self) -> bool:
        return bool(self._location.names())

    def append(self, record: SyncRecord) -> None:
        content = json.dumps(record.to_stored(), ensure_ascii=False, separators=(",", ":"))
        self._put(f"{self._folder}/{_name(record)}", content.encode())
        # At random, since most processes end before they have counted far.
        if random.randrange(self._prune_every) == 0 and (old := self._names()[self._kept :]):
            self._location.discard(self._folder, old)

    def records(self) -> Iterator[SyncRecord]:
        """The records, newest first. Often only the newest is wanted, so it is read alone."""
        with self._reaching():
            names = self._names()[: self._kept]
        known = self._known
        self._known = {n: known[n] for n in names if n in known}
        for start in (0, *range(1, len(names), self._at_once)):
            with self._reaching():
                found = self._read(names[start : start + self._at_once if start else 1])
            yield from (record for record in found if record is not None)

    def drop(self, *, dry_run: bool = False) -> Dropped:
        with self._reaching():
            names = self._location.names(self._folder)
            kinds = (_NAME, _DRAFT, JOB)
            own = [n for n in names if any(kind.fullmatch(n) for kind in kinds)]
            others = sorted(set(names) - set(own))
            if not dry_run and own:
                self._location.discard(self._folder, own)
            if not dry_run and own and not others:
                self._location.remove(self._folder)
        address = self._location.address
        return Dropped(
            removed=(address(self._folder),) if own else (),
            foreign=tuple(address(f"{self._folder}/{name}") for name in others),
        )

    def _put(self, name: str, content: bytes) -> None:
        try:
            self._location.replace(name, content, lasting=False)
        except FileNotFoundError:
            self._location.prepare()
            self._location.replace(name, content, lasting=False)

    def _names(self) -> list[str]:
        found = self._location.names(self._folder)
        return sorted((n for n in found if _NAME.fullmatch(n)), reverse=True)

    def _read(self, names: list[str]) -> list[SyncRecord | None]:
        known = self._known
        unknown = [n for n in names if n not in known]
        if len(unknown) > 1:
            with ThreadPoolExecutor(self._at_once) as pool:
                known |= dict(zip(unknown, pool.map(self._parsed, unknown), strict=True))
        elif unknown:
            known[unknown[0]] = self._parsed(unknown[0])
        return [known[n] for n in names]

    def _parsed(self, name: str) -> SyncRecord | None:
        content = self._location.read(f"{self._folder}/{name}")
        try:
            return SyncRecord.from_stored(json.loads(content)) if content else None
        except (ValueError, KeyError, TypeError):
            return None

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the history in {self._location.address(self._folder)} cannot be read: {error}",
                hint=self._location.hint,
            ) from error


def newest(log: SyncLog, limit: int) -> tuple[SyncRecord, ...]:
    """The last `limit` records."""
    return tuple(islice(log.records(), limit))


def _name(record: SyncRecord) -> str:
    return f"{record.time.astimezone(UTC):%Y%m%dT%H%M%S%f}Z.{uuid4().hex[:8]}.json"


def open_history(settings: IndexSettings, home: Path) -> SyncLog:
    """The history of an index: beside it if it is in a folder, here or in S3.

    Any other index has its history beside the vector cache; without a cache, below `home`, the
    folder of the configuration.
    """
    scheme, _, location = settings.store.partition("://")
    if scheme == "memory":
        return _logs_in_this_process.setdefault((location, settings.stored_name), MemoryLog())
    folder, name = _place(settings, home)
    return LocationLog(folder, name, at_once=READS if scheme.endswith("+s3") else 1)


def open_jobs(settings: IndexSettings, home: Path) -> Jobs:
    """The jobs of an index, in the folder of its history."""
    scheme, _, location = settings.store.partition("://")
    if scheme == "memory":
        key = location, settings.stored_name
        kept = _jobs_in_this_process.setdefault(key, MemoryFiles())
        return Jobs(settings.name, kept, settings.stored_name)
    return Jobs(settings.name, *_place(settings, home))


def _place(settings: IndexSettings, home: Path) -> tuple[Location, str]:
    """Where the folder of an index's history is, and its name."""
    scheme, _, location = settings.store.partition("://")
    beside = f"{settings.stored_name}.history"
    if scheme in ("lance", "hudi"):
        return location_at(location), beside
    if scheme in ("lance+s3", "hudi+s3"):
        return location_at(S3 + location), beside
    kept = settings.embedding_store
    folder = Path(kept.folder) if kept else home / "index"
    return location_at(str(folder / "history")), settings.stored_name
