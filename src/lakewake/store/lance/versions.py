"""Opens versions of an index, and keeps the reader of the newest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import lance
from lance import LanceDataset, Session

from lakewake.errors import IndexDamaged, StoreError, StoreUnreachable
from lakewake.model.as_of import newest_not_newer
from lakewake.model.frontier import Frontier
from lakewake.store.hints import missing, rebuild
from lakewake.store.lance.generations import Generations, dataset_name
from lakewake.store.lance.probe import check_files, check_versions, read_a_little
from lakewake.store.lance.reader import (
    FOREIGN,
    LanceReader,
    brief,
    read_checkpoint,
    read_recipe,
    reading,
    unreadable,
)
from lakewake.store.lance.words import WordFiles
from lakewake.store.location import Stamp
from lakewake.store.recall import Asking


class CachedReader(NamedTuple):
    """A cached reader, valid while the store's stamp equals `stamp`.

    Attributes:
        written: when its version was written, in seconds since 1970.
    """

    stamp: Stamp
    written: float
    reader: LanceReader


class Versions:
    """The versions of one index, of all its generations.

    Attributes:
        opened: the generation that the caller has seen; None: none yet.
    """

    def __init__(self, name: str, generations: Generations, asking: Asking) -> None:
        self.opened: int | None = None
        self._name = name
        self._generations = generations
        self._options = generations.location.options
        self._asking = asking
        self._cached: CachedReader | None = None
        self._session: Session | None = None
        self._words: WordFiles | None = None
        # Several threads may search one index, and so open it at the same time.
        self._opening = threading.RLock()

    def newest(self) -> LanceReader | None:
        """A reader of the newest version; None if there is no index."""
        number, stamp = self.active_and_stamp()
        self.opened = number
        if number and not self._is_open(number, stamp):
            with self._opening:
                # Look again: another thread may have opened this version meanwhile, or a newer one.
                number, stamp = self.active_and_stamp()
                self.opened = number
                if number and not self._is_open(number, stamp):
                    self._reopen(number, stamp)
        return self._cached.reader if number and self._cached else None

    def as_of(self, instant: str) -> LanceReader:
        """A reader of the newest version that holds no table commit after `instant`."""
        number, _ = self.active_and_stamp()
        if not number:
            raise missing(self._name)
        found = newest_not_newer(instant, self._kept(self.dataset(number)), self._name)
        return self._reader(found, number)

    def _kept(self, newest: LanceDataset) -> Iterator[tuple[Frontier, LanceDataset]]:
        """The versions of a generation, newest first, with what each has absorbed."""
        with reading(newest, self._name):
            numbers = sorted((v["version"] for v in newest.versions()), reverse=True)
        for number in numbers:
            with reading(newest, self._name):
                version = newest.checkout_version(number)
            yield Frontier.from_json(read_checkpoint(version, self._name)), version

    def _is_open(self, number: int, stamp: Stamp) -> bool:
        """Whether the cached reader is current: a new version would have added a file."""
        cached = self._cached
        return cached is not None and cached.reader.generation == number and cached.stamp == stamp

    def _reopen(self, number: int, stamp: Stamp) -> None:
        # A session keeps what Lance has read of the indexes in memory. It is dropped if this is
        # another dataset under the same name, because the former was removed and built again.
        written = self._generations.version_times(number)
        if self._cached and self._cached.written not in written:
            self._session = None
        reader = self._reader(self.dataset(number), number)
        self._cached = CachedReader(stamp, max(written, default=0.0), reader)

    def _reader(self, dataset: LanceDataset, number: int) -> LanceReader:
        """A reader of that version; if there cannot be one, check whether the index is damaged."""
        try:
            words = self.word_files(number)
            return LanceReader(dataset, number, self._name, self._asking, words)
        except StoreUnreachable:
            raise
        except StoreError:
            # If the dataset is not ours this raises again: we cannot judge what it holds.
            read_recipe(dataset, self._name)
            check_files(dataset, self._name)
            read_a_little(dataset, self._name)
            raise

    def word_files(self, number: int) -> WordFiles:
        """The word files of a generation: one object, so that each fragment is read only once."""
        fresh = WordFiles(self._generations.location, dataset_name(self._name, number))
        if self._words is None or self._words.folder != fresh.folder:
            self._words = fresh
        return self._words

    def own(self, number: int) -> LanceDataset:
        """A generation's newest version; raise `StoreError` if it is not an index of ours."""
        dataset = self.dataset(number)
        LanceReader(dataset, number, self._name)
        return dataset

    def active_and_stamp(self) -> tuple[int, Stamp]:
        """The active generation and the stamp of its versions."""
        self._generations.check()
        number, stamp = self._generations.active_and_stamp()
        if not number and (lost := self._generations.named()):
            if self._generations.is_dropped(lost):
                return 0, ()
            raise IndexDamaged(
                f"index '{self._name}' is gone: {self._generations.address(lost)} is not there",
                hint=rebuild(self._name),
            )
        return number, stamp

    def dataset(self, number: int) -> LanceDataset:
        """The newest version of a generation."""
        location = self._generations.address(number)
        try:
            with self._opening:
                dataset = lance.dataset(
                    location, storage_options=self._options, session=self._session
                )
                self._session = dataset.session()
            return dataset
        except FOREIGN as error:
            self._session = None
            check_versions(location, self._name)
            fact = f"index '{self._name}' cannot be opened at {location}: {brief(error)}"
            raise unreadable(fact, error, self._name, location) from error
