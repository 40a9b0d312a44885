"""An index in the lake: chunks, deletes and frontier in one commit of one Hudi table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lakewake.errors import ConfigError, IndexMissing, OutcomeUnknown, StaleFrontier, StoreError
from lakewake.model.ann import ANN_MIN_CHUNKS, AUTO
from lakewake.model.as_of import newest_not_newer
from lakewake.model.chunks import Batch
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier
from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL, Retrained
from lakewake.model.recipe import Recipe
from lakewake.progress import Reporter, Silent, step
from lakewake.store.deleted import DeletedVectors
from lakewake.store.hints import dropped, missing
from lakewake.store.hudi import cells as cell_rules
from lakewake.store.hudi.drop import Dropping
from lakewake.store.hudi.generations import Generation, Generations, reaching, writing
from lakewake.store.hudi.lease import Lease
from lakewake.store.hudi.lock import FileLock, Hold, Lock
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import Found, retrain_due
from lakewake.store.hudi.retrain import Retraining
from lakewake.store.hudi.slices import SliceCache
from lakewake.store.hudi.staging import HudiStaging
from lakewake.store.hudi.table import IndexTable, completed, instant_of, kept_from
from lakewake.store.hudi.upkeep import Upkeep, count_words, searching_file
from lakewake.store.hudi.writer import IndexWriter, brief
from lakewake.store.location import S3, Bucket, Location, location_at
from lakewake.store.memory import check_columns
from lakewake.store.recall import Asking, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How often a commit that failed for a passing reason is tried.
ATTEMPTS = 3


class CachedReader(NamedTuple):
    """A cached reader, valid while the index has these instants."""

    generation: int
    instants: tuple[str, ...]
    reader: HudiReader


class HudiStore:
    """One index in a folder of its own.

    Args:
        folder: a path, or `s3://bucket/folder`.
        session: the Spark session that writes; called when it is needed.
        ann_min_chunks: an index with fewer chunks is searched exactly.
        kind: `flat`: every search is exact.
        cell_chunks: how many chunks a cell is meant to hold.
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
        keep: how long earlier states can be read.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        session: Callable[[], SparkSession],
        *,
        ann_min_chunks: int = ANN_MIN_CHUNKS,
        kind: str = AUTO,
        cell_chunks: int = cell_rules.CHUNKS,
        recall: float = RECALL,
        keep: Keep | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.name = name
        absolute = folder if folder.startswith(S3) else str(Path(folder).absolute())
        self._location = location_at(absolute)
        self._generations = Generations(self._location, name)
        self._asking = Asking(recall, ann_min_chunks, kind)
        self._lock = _lock(self._location, name)
        self._reporter = reporter or Silent()
        self._writer = IndexWriter(
            self._generations, session, cell_chunks, keep or Keep(), self._reporter
        )
        self._deleted = DeletedVectors(self._location, name)
        self._cache = SliceCache()
        self._cached: CachedReader | None = None
        self._opened: int | None = None
        self._opening = threading.RLock()

    def generation(self) -> int:
        return self._generations.highest()

    def open(self) -> HudiReader | None:
        reader = self.unchecked()
        if reader is not None and reader.about.name != self.name:
            raise ConfigError(
                f"{self._location.address()} holds the index '{reader.about.name}', "
                f"not '{self.name}'",
                hint="give each index in the lake a folder of its own; if this is the same index "
                f'under a new name, add `stored_as = "{reader.about.name}"` to its section',
            )
        return reader

    def unchecked(self) -> HudiReader | None:
        """The newest state, whatever the name of the index in the folder."""
        active = self._generations.active()
        self._opened = active.number
        if not active.number:
            return None
        instants = self._completed(active)
        if not instants:
            raise self._generations.without_commit(active.table)
        with self._opening:
            cached = self._cached
            if not cached or (cached.generation, cached.instants) != (active.number, instants):
                reader = self._reader(active, self._state(active, instants), instants)
                self._cached = cached = CachedReader(active.number, instants, reader)
            return cached.reader

    def as_of(self, instant: str) -> HudiReader:
        for _ in range(ATTEMPTS):
            if self.open() is None:
                raise missing(self.name)
            one, state = newest_not_newer(instant, self._states(), self.name)
            reader = self._reader(one, state, self._completed(one))
            _ = state.slices
            # A clean writes its plan first, so all files were there when the state was listed.
            if state.instant >= self._kept_from(state):
                return reader
        raise StoreError(
            f"files of index '{self.name}' are removed while it is read",
            hint="search again, as of a newer instant",
        )

    def _states(self) -> Iterator[tuple[Frontier, tuple[Generation, IndexTable]]]:
        """All states that are kept, newest first, with what each has absorbed."""
        for one in self._generations.lineage():
            instants = self._completed(one)
            if not instants:
                continue
            newest = self._state(one, instants)
            kept = max(self._kept_from(newest), one.since)
            for commit, text in newest.commits():
                if commit >= kept:
                    yield Frontier.from_json(text), (one, newest.at(commit))

    def _completed(self, one: Generation) -> tuple[str, ...]:
        with reaching(self._location, self.name):
            return completed(self._location, one.table)

    def _kept_from(self, table: IndexTable) -> str:
        with reaching(self._location, self.name):
            return kept_from(self._location, table.folder)

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        self._check_replaced(after)
        self._check_owner()
        number = after + 1
        table = self._generations.new_table(number)
        with self._unless_dropped(after), writing(self._location, self.name):
            self._writer.build(table, recipe, batch, then)
        claimed = self._generations.claim(Generation(number, table))
        # The number is free again once its generation was dropped, or replaced and removed.
        if not claimed or self._generations.highest() != number:
            if not claimed or self._generations.is_dropped():
                with suppress(OSError):
                    if claimed:
                        self._generations.unclaim(number)
                    self._location.remove(table)
            self._check_replaced(after)
            raise self._writer.stale(f"generation {number} of index '{self.name}' came first")
        self._opened = number

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[HudiStaging]:
        cells = None if after is not None else self._committable().cells
        with self._generations.staging() as folder:
            yield HudiStaging(self._location, folder, cells)

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        self._committable()
        with writing(self._location, self.name), self._lock.held() as hold:
            failure: Exception | None = None
            for _ in range(ATTEMPTS):
                index = self._newest(failure)
                if self._landed(index, expect, then):
                    return
                check_columns(batch.schema.remove_metadata(), index.schema())
                failure = self._try_commit(index, batch, then, hold)
                if failure is None:
                    return
            if self._landed(self._newest(failure), expect, then):
                return
            raise self._writer.unwritten(failure) from failure

    def maintain(self) -> dict[str, int]:
        """Compact, refresh indexes, drop old versions and generations; return what was done.

        If a search has to read many cells to find what is promised, other cells are trained.
        """
        if not self._generations.active().number:
            return {}
        upkeep, shown = self._upkeep, self._reporter
        with writing(self._location, self.name), self._lock.held() as hold:
            with step(shown, "reshape cells"):
                done = {"cells_replaced": upkeep.reshape(self._newest(None), hold)}
            with step(shown, "compact files"):
                done["files_compacted"] = upkeep.compact(self._newest(None), hold)
            index = self._newest(None)
            done["texts_indexed"] = count_words(index, index.word_folder, shown)
            with step(shown, "measure the recall"):
                done["questions_probed"] = upkeep.probe(index)
            self._generations.forget()
            done["generations_removed"] = self._generations.retire(before=self._oldest_kept())
        if done["questions_probed"]:
            self._cached = None
        if self._retrain_due():
            done["retrained" if self.retrain().switched else "retrains_refused"] = 1
        return {what: n for what, n in done.items() if n}

    def was_dropped(self) -> bool:
        return self._generations.is_dropped()

    def drop(self, *, dry_run: bool = False) -> Dropped:
        self._check_owner()
        dropping = Dropping(self._generations)
        found = dropping.found()
        if dry_run or not found.removed:
            return found
        with writing(self._location, self.name), self._lock.held() as hold:
            return dropping.drop(hold.check)

    def retrain(self) -> Retrained:
        """Train the cells again, in a new generation, and switch to it if it is not worse.

        Nothing is embedded, and the table is not read. Other processes go on searching and
        syncing; what they commit is in the new generation too.

        Raises:
            OutcomeUnknown: the new generation may or may not be active.
        """
        work = Retraining(
            self._upkeep, self._lock, lambda: self._newest(None), self._reader_of_newest
        )
        try:
            with writing(self._location, self.name):
                ended = work.run()
        except StaleFrontier as error:
            return Retrained(now(), False, error.fact)
        self._opened = self._cached = None
        return ended

    def _retrain_due(self) -> bool:
        index = self._newest(None)
        if index.probed is None:
            return False
        found = replace(index.probed, counted=index.changed)
        return retrain_due(found, len(index.cells.numbers), index.counts()[1])

    def _oldest_kept(self) -> int:
        """The oldest generation with states that are kept."""
        oldest = 0
        for one in self._generations.lineage():
            done = [name.partition("_")[0] for name in completed(self._location, one.table)]
            since = [instant for instant in done if instant >= one.since]
            oldest = one.number
            if len(since) >= self._writer.keep.wanted(since, datetime.now()):
                break
        return oldest

    @property
    def _upkeep(self) -> Upkeep:
        return Upkeep(self._writer, self._asking, self._deleted)

    def _try_commit(
        self, index: HudiReader, batch: Batch, then: Frontier, hold: Hold
    ) -> Exception | None:
        guard = self._writer.guard(index, hold)
        with self._generations.staging() as folder:
            staged = self._writer.stage(folder, index, batch, then)
            self._upkeep.sample_deleted(index, staged.removed)
            return self._writer.upsert(index, staged.parts, then, guard, hold)

    def _state(self, one: Generation, instants: tuple[str, ...]) -> IndexTable:
        newest = instant_of(instants)
        return IndexTable(self._location, one.table, newest, self.name, self._cache)

    def _reader_of_newest(self, one: Generation) -> HudiReader:
        instants = self._completed(one)
        if not instants:
            raise self._generations.without_commit(one.table)
        return self._reader(one, self._state(one, instants), instants)

    def _reader(self, one: Generation, state: IndexTable, instants: tuple[str, ...]) -> HudiReader:
        return HudiReader(state, one.number, self._asking, self._probed(one, state, instants))

    def _probed(
        self, one: Generation, state: IndexTable, instants: tuple[str, ...]
    ) -> Found | None:
        """What the last probe found; None for a state that is not based on the probed one."""
        with reaching(self._location, self.name):
            content = self._location.read(searching_file(one.number))
        found = Found.from_bytes(content) if content else None
        return found if found and found.fits(state.folder, state.instant, instants) else None

    def _newest(self, failure: Exception | None) -> HudiReader:
        """The newest state, which shows how a failed commit ended."""
        try:
            return self._committable()
        except StaleFrontier:
            raise
        except StoreError:
            if failure is None:
                raise
            raise OutcomeUnknown(
                f"index '{self.name}' cannot be read after a failed commit: {brief(failure)}",
                landed="the commit may or may not have landed",
                hint=f"run `lakewake sync {self.name}` again to find out",
            ) from failure

    def _committable(self) -> HudiReader:
        """The newest state; raises if the index was rebuilt since it was opened."""
        before = self._opened
        index = self.open()
        if index is None:
            raise IndexMissing(
                f"there is no index '{self.name}'", hint=f"`lakewake sync {self.name}` builds it"
            )
        # Two generations can have equal frontiers but different recipes: vectors must not mix.
        if before not in (None, index.generation):
            self._opened = before
            raise self._writer.stale(
                f"index '{self.name}' was rebuilt as generation {index.generation}"
            )
        return index

    def _landed(self, index: HudiReader, expect: Frontier, then: Frontier) -> bool:
        """Whether the frontier is `then` already; False if it is `expect`."""
        current = index.frontier().to_json()
        if current not in (expect.to_json(), then.to_json()):
            raise self._writer.stale(
                f"another writer moved the frontier of index '{self.name}' first"
            )
        return current == then.to_json()

    def _check_owner(self) -> None:
        """Raise if the folder holds an index of another name. What cannot be read has no name."""
        with suppress(StoreError):
            self.open()

    def _check_replaced(self, after: int) -> None:
        active = self._generations.highest()
        if active != after and self._generations.is_dropped():
            raise dropped(self.name)
        if active != after:
            raise self._writer.stale(
                f"generation {active} of index '{self.name}' is active, not {after}"
            )

    @contextmanager
    def _unless_dropped(self, after: int) -> Iterator[None]:
        """Raise that the index was dropped, if that is why a build failed: its files went too."""
        try:
            yield
        except Exception as error:
            if self._generations.highest() != after and self._generations.is_dropped():
                raise dropped(self.name) from error
            raise


def _lock(location: Location, name: str) -> Lock:
    """The lock of an index: a lease in S3, where no file can be locked."""
    if isinstance(location, Bucket):
        return Lease(location.conditional, location, name)
    return FileLock(location, name)
