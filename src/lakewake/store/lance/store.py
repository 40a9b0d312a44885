"""An index in Lance: rows, deletes and frontier in one version of one dataset.

The frontier is a row, rewritten by every commit. Two commits from one version therefore always
touch the same row, Lance lets only one of them through, and the other re-reads the frontier.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Session
from lance.fragment import write_fragments

from lakewake.errors import (
    IndexDamaged,
    IndexMissing,
    OutcomeUnknown,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.chunks import CHECKPOINT_ID, PAGE_ID, Batch
from lakewake.model.frontier import Frontier, page_names
from lakewake.model.recall import RECALL
from lakewake.model.recipe import Recipe
from lakewake.store.deleted import DeletedVectors
from lakewake.store.lance import upkeep
from lakewake.store.lance.generations import Generations, dataset_name
from lakewake.store.lance.probe import check_files, check_versions, read_a_little
from lakewake.store.lance.reader import (
    FOREIGN,
    FORMAT,
    LanceReader,
    brief,
    read_checkpoint,
    read_recipe,
    rebuild,
    unreadable,
)
from lakewake.store.lance.staging import LanceStaging, Source, read_fragments
from lakewake.store.lance.words import WordFiles
from lakewake.store.location import Stamp, location_at
from lakewake.store.memory import check_columns
from lakewake.store.recall import ANN_MIN_CHUNKS, Asking

#: A compaction or an index refresh may interfere a few times, but not forever.
ATTEMPTS = 4
IDS = pa.schema([pa.field("_id", pa.string())])
IDS_AT_ONCE = 50_000
#: More deletes than this are deduplicated on disk.
HELD_DELETES = 100_000


class CachedReader(NamedTuple):
    """A cached reader, valid while the store's stamp equals `stamp`.

    Attributes:
        written: when its version was written, in seconds since 1970.
    """

    stamp: Stamp
    written: float
    reader: LanceReader


class LanceStore:
    """One index in a folder, local or in S3: `name.json` and `name.g1.lance`.

    Args:
        folder: a path, or `s3://bucket/folder`.
        ann_min_chunks: `maintain` makes an approximate index from this many chunks on.
        lookup_min_chunks: it indexes the columns that chunks are looked up by from this many on.
        words_min_chunks: it keeps the words of the texts in files from this many on.
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        *,
        ann_min_chunks: int = ANN_MIN_CHUNKS,
        lookup_min_chunks: int = upkeep.LOOKUP_MIN_CHUNKS,
        words_min_chunks: int = upkeep.WORDS_MIN_CHUNKS,
        recall: float = RECALL,
    ) -> None:
        self.name = name
        self._generations = Generations(location_at(folder), name)
        self._options = self._generations.location.options
        self._asking = Asking(recall, ann_min_chunks)
        self._deleted = DeletedVectors(self._generations.location, name)
        self._lookup_min_chunks = lookup_min_chunks
        self._words_min_chunks = words_min_chunks
        self._opened: int | None = None
        self._cached: CachedReader | None = None
        self._session: Session | None = None
        self._words: WordFiles | None = None
        # Several threads may search one index, and so open it at the same time.
        self._opening = threading.RLock()

    def generation(self) -> int:
        return self._generations.replaceable()

    def open(self) -> LanceReader | None:
        number, stamp = self._active_and_stamp()
        self._opened = number
        if number and not self._is_open(number, stamp):
            with self._opening:
                # Look again: another thread may have opened this version meanwhile, or a newer one.
                number, stamp = self._active_and_stamp()
                self._opened = number
                if number and not self._is_open(number, stamp):
                    self._reopen(number, stamp)
        return self._cached.reader if number and self._cached else None

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
        reader = self._reader(self._dataset(number), number)
        self._cached = CachedReader(stamp, max(written, default=0.0), reader)

    def _reader(self, dataset: LanceDataset, number: int) -> LanceReader:
        """A reader of that version; if there cannot be one, check whether the index is damaged."""
        try:
            words = self._word_files(number)
            return LanceReader(dataset, number, self.name, self._asking, words)
        except StoreUnreachable:
            raise
        except StoreError:
            # If the dataset is not ours this raises again: we cannot judge what it holds.
            read_recipe(dataset, self.name)
            check_files(dataset, self.name)
            read_a_little(dataset, self.name)
            raise

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        number = after + 1
        self._check_free(number)
        schema = batch.schema.with_metadata(_metadata(recipe))
        source = _source(batch, schema, then, frozenset())
        try:
            self._write_whole(number, schema, source, batch.staged)
        except FOREIGN as error:
            source.raise_own()
            self._check_free(number)
            raise self._not_written(error) from error
        with self._writing(landed=f"generation {number} is built, but not active yet"):
            self._generations.switch(number)
            active = self._generations.active()
        if active != number:
            raise self._stale(f"generation {active} of index '{self.name}' came first")
        self._opened = number

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[LanceStaging]:
        """Provide a staging for the parts of a batch, until the context ends.

        Raises:
            StaleFrontier: the index was rebuilt.
            StoreError: the store's folder cannot be written to.
        """
        number = self._committable() if after is None else after + 1
        mode = "append" if after is None else "create"
        with ExitStack() as opened:
            with self._writing():
                mark = opened.enter_context(self._generations.mark())
            yield LanceStaging(
                self._generations.address(number), self._generations.location, mark, mode
            )

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        number = self._committable()
        failure: Exception | None = None
        for attempts_left in reversed(range(ATTEMPTS + 1)):
            dataset, current = self._read_newest(number, failure)
            if self._landed(current, expect, then):
                return
            if not attempts_left:
                raise self._not_written(failure) from failure
            failure = _try_merge(dataset, batch, current, then)
            if failure is None:
                return

    def maintain(self) -> dict[str, int]:
        number, _ = self._active_and_stamp()
        if not number:
            return {}
        written = self._generations.version_times(number)
        dataset = self._own(number)
        with self._writing():
            switched = self._generations.switch(number)
        done = {
            "pointer_written": int(switched),
            "deleted_sampled": self._maintain_step(
                number,
                dataset,
                partial(upkeep.sample_deleted, asking=self._asking, sample=self._deleted),
            ),
            "fragments_compacted": self._maintain_step(number, dataset, upkeep.compact),
            "lookups_made": self._maintain_step(
                number, dataset, partial(upkeep.make_lookups, least=self._lookup_min_chunks)
            ),
            "texts_indexed": self._maintain_step(
                number,
                dataset,
                partial(
                    upkeep.count_words,
                    files=self._word_files(number),
                    least=self._words_min_chunks,
                ),
            ),
            "chunks_indexed": self._maintain_step(
                number, dataset, partial(upkeep.index_chunks, asking=self._asking)
            ),
            "approximate_dropped": self._maintain_step(
                number, dataset, partial(upkeep.drop_approximate, asking=self._asking)
            ),
            "questions_probed": self._maintain_step(
                number, dataset, partial(upkeep.probe, asking=self._asking, sample=self._deleted)
            ),
            "versions_removed": self._maintain_step(
                number, dataset, partial(upkeep.drop_versions, written=written)
            ),
            "generations_removed": self._generations.retire(before=number),
        }
        return {what: n for what, n in done.items() if n}

    def _word_files(self, number: int) -> WordFiles:
        """The word files of a generation: one object, so that each fragment is read only once."""
        fresh = WordFiles(self._generations.location, dataset_name(self.name, number))
        if self._words is None or self._words.folder != fresh.folder:
            self._words = fresh
        return self._words

    def _own(self, number: int) -> LanceDataset:
        """A generation's newest version; raise `StoreError` if it is not an index of ours."""
        dataset = self._dataset(number)
        LanceReader(dataset, number, self.name)
        return dataset

    def _active_and_stamp(self) -> tuple[int, Stamp]:
        """The active generation and the stamp of its versions."""
        self._generations.check()
        number, stamp = self._generations.active_and_stamp()
        if not number and (lost := self._generations.named()):
            raise IndexDamaged(
                f"index '{self.name}' is gone: {self._generations.address(lost)} is not there",
                hint=rebuild(self.name),
            )
        return number, stamp

    def _committable(self) -> int:
        """The active generation; raise if it is not the one that the caller has seen."""
        number, _ = self._active_and_stamp()
        if not number:
            raise IndexMissing(
                f"there is no index '{self.name}'", hint=f"`lakewake sync {self.name}` builds it"
            )
        # Two generations can have equal frontiers but different recipes: vectors must not mix.
        if self._opened not in (None, number):
            raise self._stale(f"index '{self.name}' was rebuilt as generation {number}")
        return number

    def _dataset(self, number: int) -> LanceDataset:
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
            check_versions(location, self.name)
            fact = f"index '{self.name}' cannot be opened at {location}: {brief(error)}"
            raise unreadable(fact, error, self.name, location) from error

    def _read_newest(self, number: int, failure: Exception | None) -> tuple[LanceDataset, str]:
        """The newest version and its frontier, which show how a failed commit ended."""
        try:
            dataset = self._dataset(number)
            return dataset, read_checkpoint(dataset, self.name)
        except StoreError:
            if failure is None:
                raise
            raise OutcomeUnknown(
                f"index '{self.name}' cannot be read after a failed commit: {brief(failure)}",
                landed="the commit may or may not have landed",
                hint=f"run `lakewake sync {self.name}` again to find out",
            ) from failure

    def _landed(self, current: str, expect: Frontier, then: Frontier) -> bool:
        """Whether the frontier is `then` already; False if it is `expect`."""
        if current not in (expect.to_json(), then.to_json()):
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")
        return current == then.to_json()

    def _check_free(self, number: int) -> None:
        """Raise if this generation is not the next one to build.

        If a builder died before it named its generation, that generation is made active here.
        """
        with self._writing():
            if self._generations.whole(number):
                self._own(number)
                self._generations.switch(number)
        active = self._generations.replaceable()
        if active != number - 1:
            raise self._stale(
                f"generation {active} of index '{self.name}' is active, not {number - 1}"
            )

    def _write_whole(
        self, number: int, schema: pa.Schema, source: Source, staged: Sequence[bytes]
    ) -> None:
        location = self._generations.address(number)
        self._generations.location.prepare()
        fragments = write_fragments(
            source.reader(), location, schema=schema, mode="create", storage_options=self._options
        )
        # From version 0 and without retries, Lance writes the first version or nothing;
        # `write_dataset(mode="create")` lets racing builders overwrite one another.
        LanceDataset.commit(
            location,
            LanceOperation.Overwrite(schema, [*read_fragments(staged), *fragments]),
            read_version=0,
            max_retries=0,
            storage_options=self._options,
        )

    def _stale(self, fact: str) -> StaleFrontier:
        return StaleFrontier(
            fact,
            hint=f"run `lakewake sync {self.name}` again; the other sync may have done this "
            "work already",
        )

    def _not_written(
        self, error: Exception | None, landed: str = "nothing was written"
    ) -> StoreError:
        location = self._generations.location
        return StoreError(
            f"index '{self.name}' cannot be written in {location.address()}: {brief(error)}",
            landed=landed,
            hint=location.hint,
        )

    @contextmanager
    def _writing(self, landed: str = "nothing was written") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_written(error, landed) from error

    def _maintain_step(
        self, number: int, dataset: LanceDataset, step: Callable[[LanceDataset], int]
    ) -> int:
        """Run one step of upkeep; if a writer interfered, leave it for the next time."""
        try:
            return step(dataset)
        except FOREIGN as error:
            if self._dataset(number).version != dataset.version:
                return 0
            raise self._not_written(error) from error


def _source(batch: Batch, schema: pa.Schema, then: Frontier, held: Collection[str]) -> Source:
    """The rows of one commit: chunks, new pages of the frontier, the frontier."""
    check_columns(batch.schema, schema)
    return Source(schema, _rows(batch, schema, then, held))


def _rows(
    batch: Batch, schema: pa.Schema, then: Frontier, held: Collection[str]
) -> Iterator[pa.RecordBatch]:
    with batch.rows() as rows:
        for some in rows:
            yield pa.RecordBatch.from_arrays(some.columns, schema=schema)
    for name, text in then.new_pages(held).items():
        page = {"_id": f"{PAGE_ID}{name}", "_checkpoint": text}
        yield pa.RecordBatch.from_pylist([page], schema=schema)
    row = {"_id": CHECKPOINT_ID, "_checkpoint": then.to_json()}
    yield pa.RecordBatch.from_pylist([row], schema=schema)


def _metadata(recipe: Recipe) -> dict[str, bytes]:
    return {
        "lakewake.format": FORMAT,
        "lakewake.recipe": json.dumps(recipe.as_dict(), ensure_ascii=False).encode(),
        "lakewake.fingerprint": recipe.fingerprint.encode(),
    }


def _try_merge(
    dataset: LanceDataset, batch: Batch, current: str, then: Frontier
) -> Exception | None:
    """Commit the batch to this version, or return why Lance did not report success."""
    held = page_names(current)
    source = _source(batch, dataset.schema, then, held)
    former = {CHECKPOINT_ID, *(f"{PAGE_ID}{name}" for name in held - then.pages)}
    try:
        _merge(dataset, source, batch, former)
    except FOREIGN as error:
        source.raise_own()
        return error
    return None


def _merge(dataset: LanceDataset, source: Source, batch: Batch, former: set[str]) -> None:
    """In one transaction, remove every chunk that the batch names and add its own.

    The former checkpoint is removed too, with those of its pages that the new one does not have.

    Lance's own update would do the same, but reads the whole index to delete.
    """
    written = write_fragments(source.reader(), dataset, schema=dataset.schema, mode="append")
    removed = pa.RecordBatchReader.from_batches(IDS, _removed_ids(batch, former))
    transaction, _ = dataset.merge_insert("_id").when_matched_delete().execute_uncommitted(removed)
    transaction.operation.new_fragments += [*read_fragments(batch.staged), *written]
    LanceDataset.commit(dataset, transaction)


def _removed_ids(batch: Batch, former: set[str]) -> Iterator[pa.RecordBatch]:
    """The ids of all rows to remove, each once: Lance refuses duplicates.

    If the index is damaged, a deleted chunk can have the id of one that is written.
    """
    named = {*batch.replaced, *former}
    many = len(batch.deletes) > HELD_DELETES
    return _on_disk(batch, named) if many else _in_memory(batch, {*named, *batch.deletes})


def _in_memory(batch: Batch, named: set[str]) -> Iterator[pa.RecordBatch]:
    first = pa.array(named, pa.string())
    yield pa.RecordBatch.from_arrays([first], schema=IDS)
    with batch.rows() as rows:
        for written in rows:
            others = written["_id"].filter(pc.invert(pc.is_in(written["_id"], first)))
            yield pa.RecordBatch.from_arrays([others], schema=IDS)


def _on_disk(batch: Batch, named: set[str]) -> Iterator[pa.RecordBatch]:
    """The same in bounded memory: a SQLite database without a name is a temporary file."""
    # Lance requests the ids from threads of its own, one at a time.
    with closing(sqlite3.connect("", check_same_thread=False)) as ids:
        ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        every = chain(named, batch.deletes, _written(batch))
        ids.executemany("INSERT OR IGNORE INTO ids VALUES (?)", ((id,) for id in every))
        found = ids.execute("SELECT id FROM ids")
        while some := found.fetchmany(IDS_AT_ONCE):
            column = pa.array([id for (id,) in some], pa.string())
            yield pa.RecordBatch.from_arrays([column], schema=IDS)


def _written(batch: Batch) -> Iterator[str]:
    with batch.rows() as rows:
        for some in rows:
            yield from some["_id"].to_pylist()
