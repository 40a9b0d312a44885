"""An index in the lake: chunks, deletes and frontier in one commit of one Hudi table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from lakewake.errors import IndexMissing, OutcomeUnknown, StaleFrontier, StoreError
from lakewake.model.as_of import newest_not_newer
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL, Decision
from lakewake.model.recipe import Recipe
from lakewake.store.deleted import DeletedVectors
from lakewake.store.hints import missing
from lakewake.store.hudi import cells as cell_rules
from lakewake.store.hudi.cells import Cells, number_of_cells, trained
from lakewake.store.hudi.generations import Generations, reaching, writing
from lakewake.store.hudi.layout import (
    ABOUT_ID,
    CELL,
    CELLS_ID,
    About,
    frontier_notes,
    notes,
    removals,
    staged_schema,
)
from lakewake.store.hudi.lease import Lease
from lakewake.store.hudi.lock import FileLock, Hold, Lock, NeverLost
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import Found, decide
from lakewake.store.hudi.staging import (
    HudiStaging,
    StagedFile,
    assign,
    assigned_name,
    new_part,
    opened_part,
    part_writer,
    vectors_of,
)
from lakewake.store.hudi.table import (
    IndexTable,
    SliceCache,
    bury,
    completed,
    instant_of,
    kept_from,
)
from lakewake.store.hudi.training import Sampled, train_on_executors
from lakewake.store.hudi.upkeep import count_words, reshape
from lakewake.store.location import S3, Bucket, Location, location_at
from lakewake.store.memory import check_columns
from lakewake.store.recall import ANN_MIN_CHUNKS, PER_KIND, Asking, is_due, now, questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.store.hudi.writing import Guard

#: How often a commit that failed for a passing reason is tried.
ATTEMPTS = 3
#: A file with this many logs is compacted.
LOGS = 8
#: Vectors of deleted chunks that a commit keeps for the next probe.
SAMPLED = 32
#: Ids that are handled at the same time.
IDS_AT_ONCE = 50_000


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
        cell_chunks: int = cell_rules.CHUNKS,
        recall: float = RECALL,
        keep: Keep | None = None,
    ) -> None:
        self.name = name
        self._keep = keep or Keep()
        self._session = session
        absolute = folder if folder.startswith(S3) else str(Path(folder).absolute())
        self._location = location_at(absolute)
        self._generations = Generations(self._location, name)
        self._asking = Asking(recall, ann_min_chunks)
        self._lock = _lock(self._location, name)
        self._deleted = DeletedVectors(self._location, name)
        self._cell_chunks = cell_chunks
        self._cache = SliceCache()
        self._cached: CachedReader | None = None
        self._opened: int | None = None
        self._opening = threading.RLock()

    def generation(self) -> int:
        return self._generations.highest()

    def open(self) -> HudiReader | None:
        number, table = self._generations.active()
        self._opened = number
        if not number:
            return None
        with reaching(self._location, self.name):
            instants = completed(self._location, table)
        if not instants:
            raise self._generations.without_commit(table)
        with self._opening:
            cached = self._cached
            if not cached or (cached.generation, cached.instants) != (number, instants):
                self._cached = cached = CachedReader(
                    number, instants, self._reader(number, table, instants)
                )
            return cached.reader

    def as_of(self, instant: str) -> HudiReader:
        for _ in range(ATTEMPTS):
            newest = self.open()
            if newest is None:
                raise missing(self.name)
            state = self._state_at(newest.table, instant)
            probed = self._probed(newest.generation, state.instant)
            reader = HudiReader(state, newest.generation, self._asking, probed)
            _ = state.slices
            # A clean writes its plan first, so all files were there when the state was listed.
            if state.instant >= self._kept_from(state):
                return reader
        raise StoreError(
            f"files of index '{self.name}' are removed while it is read",
            hint="search again, as of a newer instant",
        )

    def _state_at(self, newest: IndexTable, instant: str) -> IndexTable:
        kept = self._kept_from(newest)
        states = (
            (Frontier.from_json(text), newest.at(commit))
            for commit, text in newest.commits()
            if commit >= kept
        )
        return newest_not_newer(instant, states, self.name)

    def _kept_from(self, table: IndexTable) -> str:
        with reaching(self._location, self.name):
            return kept_from(self._location, table.folder)

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        from lakewake.store.hudi.writing import Rows, build

        self._check_replaced(after)
        number = after + 1
        table = self._generations.new_table(number)
        with writing(self._location, self.name), self._generations.staging() as folder:
            given = [StagedFile.from_bytes(part) for part in batch.staged]
            parts = [*(part.path for part in given), *self._stage(folder, batch, None)]
            cells = self._train(parts, recipe)
            parts = self._assigned(parts, cells)
            texts = frontier_notes(then.to_json(), then.new_pages(()), set())
            texts |= {
                ABOUT_ID: About(self.name, recipe, batch.schema.remove_metadata()).to_json(),
                CELLS_ID: cells.to_json(),
            }
            parts.append(self._note_file(folder, batch.schema, texts))
            dimension = recipe.model.dimension
            rows = Rows(self._location, table, parts, dimension, then.to_json())
            self._write(lambda spark: build(spark, rows), NeverLost())
        if not self._generations.claim(number, table):
            with suppress(OSError):
                self._location.remove(table)
            raise self._stale(f"generation {number} of index '{self.name}' came first")
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
            raise self._unwritten(failure) from failure

    def maintain(self) -> dict[str, int]:
        if not self._generations.active()[0]:
            return {}
        with writing(self._location, self.name), self._lock.held() as hold:
            number = self._newest(None).generation
            done = {"cells_replaced": self._reshape(self._newest(None), hold)}
            done["files_compacted"] = self._compact(self._newest(None), hold)
            index = self._newest(None)
            done["texts_indexed"] = count_words(index, index.word_folder)
            done["questions_probed"] = self._probe(index)
            self._generations.forget()
            done["generations_removed"] = self._generations.retire(before=number)
        return {what: n for what, n in done.items() if n}

    def _reshape(self, index: HudiReader, hold: Hold) -> int:
        """Split cells that grew, and dissolve those that emptied, in one commit."""
        frontier = index.frontier()
        guard = self._guard(index, hold)
        with self._generations.staging() as folder:
            parts = reshape(index, self._cell_chunks, folder)
            if parts and (error := self._upsert(index, parts, frontier, guard, hold)):
                raise self._unwritten(error) from error
        return len(parts)

    def _compact(self, index: HudiReader, hold: Hold) -> int:
        every = [*index.table.note_slices, *index.table.every()]
        many = [one for one in every if len(one.logs) >= LOGS]
        if not many:
            return 0
        from lakewake.store.hudi.writing import compact

        hold.check()
        path, cleaning = index.table.path, self._cleaning(index.table.folder)
        self._write(lambda spark: compact(spark, path, cleaning, logs=LOGS), hold)
        return len(many)

    def _cleaning(self, table: str) -> dict[str, str]:
        """The options that decide which files a commit may remove."""
        from lakewake.store.hudi.writing import cleaning

        done = (name.partition("_")[0] for name in completed(self._location, table))
        commits = self._keep.wanted(done, datetime.now())
        return cleaning(commits, clean=not self._generations.is_pinned())

    def _try_commit(
        self, index: HudiReader, batch: Batch, then: Frontier, hold: Hold
    ) -> Exception | None:
        guard = self._guard(index, hold)
        with self._generations.staging() as folder:
            given = [StagedFile.from_bytes(part) for part in batch.staged]
            outdated = [part.path for part in given if part.cells != index.cells.digest]
            parts = [part.path for part in given if part.cells == index.cells.digest]
            parts += self._assigned(outdated, index.cells)
            parts += self._stage(folder, batch, index.cells)
            removed, gone_ids = _removed(folder, index, batch, parts)
            self._sample_deleted(index, gone_ids)
            parts.append(removed)
            former = set(index.frontier().pages)
            unused = former - set(then.pages)
            texts = frontier_notes(then.to_json(), then.new_pages(former), unused)
            parts.append(self._note_file(folder, batch.schema, texts))
            return self._upsert(index, parts, then, guard, hold)

    def _guard(self, index: HudiReader, hold: Hold) -> Guard:
        """Keeps a commit that is based on this state from landing on another one."""
        from lakewake.store.hudi.writing import Guard

        location, table = self._location, index.table.folder
        if hold.losable:
            hold.check()
            bury(location, table)
        seen = completed(location, table)
        # A writer that was stopped here may have lost the lock since it read that state.
        if not seen or instant_of(seen) != index.table.instant:
            raise self._stale(f"another writer committed to index '{self.name}' first")
        return Guard(location, table, seen, hold.check)

    def _upsert(
        self, index: HudiReader, parts: list[str], then: Frontier, guard: Guard, hold: Hold
    ) -> Exception | None:
        from lakewake.store.hudi.writing import LOSABLE, Rows, upsert

        dimension = index.recipe().model.dimension
        rows = Rows(self._location, index.table.folder, parts, dimension, then.to_json())
        options = {**self._cleaning(index.table.folder), **(LOSABLE if hold.losable else {})}
        hold.check()
        return self._try(lambda spark: upsert(spark, rows, guard, options), hold)

    def _sample_deleted(self, index: HudiReader, ids: list[str]) -> None:
        """Keep a few of the vectors that a commit removes: questions about them are the hardest."""
        if not ids or len(index.cells.numbers) == 1:
            return
        recipe = index.recipe()
        vectors = index.vectors_of(ids)
        # It is only a sample.
        with suppress(OSError):
            self._deleted.add(recipe.fingerprint, vectors, np.random.default_rng(len(ids)))

    def _try(self, write: Callable[[SparkSession], object], hold: Hold) -> Exception | None:
        """Write, and return the error of Spark or Hudi if there is one."""
        from lakewake.store.hudi.writing import failures, in_group, writing_session

        try:
            spark = writing_session(self._session())
            with in_group(spark) as cancel, hold.when_lost(cancel):
                write(spark)
        except failures() as error:
            return error
        return None

    def _write(self, write: Callable[[SparkSession], object], hold: Hold) -> None:
        if error := self._try(write, hold):
            raise self._unwritten(error) from error

    def _unwritten(self, error: Exception | None) -> StoreError:
        return StoreError(
            f"index '{self.name}' could not be written: {_brief(error)}",
            landed="nothing was written",
            hint="check the message, then sync again",
        )

    def _stage(self, folder: str, batch: Batch, cells: Cells | None) -> list[str]:
        """The chunks of a batch that are not staged yet, as a Parquet file."""
        staging = HudiStaging(self._location, folder, cells)
        with batch.rows() as rows:
            written = StagedFile.from_bytes(staging.write(batch.schema, iter(rows)))
        return [written.path]

    def _note_file(self, folder: str, schema: pa.Schema, texts: dict[str, str | None]) -> str:
        path, rows = new_part(folder), notes(schema, texts)
        with part_writer(self._location, path, rows.schema) as out:
            out.write_batch(rows)
        return path

    def _assigned(self, parts: list[str], cells: Cells) -> list[str]:
        """The same files with the cell of each chunk, written by the executors."""
        if not parts or cells.numbers.tolist() == [0]:
            return parts
        context, location = self._session().sparkContext, self._location
        sent = context.broadcast(cells)
        context.parallelize(parts, len(parts)).foreach(lambda p: assign(location, p, sent.value))
        return [assigned_name(part) for part in parts]

    def _train(self, parts: list[str], recipe: Recipe) -> Cells:
        """Cells for the chunks of these files, trained on a sample of them."""
        from lakewake.store.hudi.writing import on_cluster

        rows = 0
        for part in parts:
            with opened_part(self._location, part) as file:
                rows += file.metadata.num_rows
        count = number_of_cells(rows, self._cell_chunks)
        dimension = recipe.model.dimension
        if count == 1:
            return trained(np.zeros((0, dimension), np.float32), 1, recipe.metric)
        share = min(1.0, count * cell_rules.TRAINED / rows)
        sampled = Sampled(self._location, tuple(parts), share, dimension)
        spark = self._session()
        if on_cluster(spark):
            return train_on_executors(spark.sparkContext, sampled, count, recipe.metric)
        return trained(sampled.read_all(), count, recipe.metric)

    def _reader(self, number: int, table: str, instants: tuple[str, ...]) -> HudiReader:
        instant = instant_of(instants)
        state = IndexTable(self._location, table, instant, self.name, self._cache)
        return HudiReader(state, number, self._asking, self._probed(number, instant))

    def _probed(self, number: int, instant: str) -> Found | None:
        """What the last probe found; None for an earlier state, whose cells may be others."""
        with reaching(self._location, self.name):
            content = self._location.read(f"searching-g{number}.json")
        found = Found.from_bytes(content) if content else None
        return found if found and found.instant <= instant else None

    def _probe(self, index: HudiReader) -> int:
        """Measure the recall and decide how many cells a search reads; return the questions."""
        if not is_due(index.coverage, self._asking):
            return 0
        recipe, rng = index.recipe(), np.random.default_rng(0)
        found = list(index.sample(3 * PER_KIND, ["_vector"]))
        stored = np.concatenate([vectors_of(b["_vector"], recipe.model.dimension) for b in found])
        deleted = self._deleted.read(recipe.fingerprint, recipe.model.dimension)
        asked = questions(stored, deleted, self._asking.recent, rng)
        chunks, cells = index.counts()[1], len(index.cells.numbers)
        decision = Decision(None, None, now(), 0, self._asking.recall, chunks)
        if asked:
            decision = decide(index.nearness, asked, cells, self._asking, chunks)
        kept = Found(decision, index.table.instant)
        self._location.replace(f"searching-g{index.generation}.json", kept.to_bytes())
        self._cached = None
        return decision.questions

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
                f"index '{self.name}' cannot be read after a failed commit: {_brief(failure)}",
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
            raise self._stale(f"index '{self.name}' was rebuilt as generation {index.generation}")
        return index

    def _landed(self, index: HudiReader, expect: Frontier, then: Frontier) -> bool:
        """Whether the frontier is `then` already; False if it is `expect`."""
        current = index.frontier().to_json()
        if current not in (expect.to_json(), then.to_json()):
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")
        return current == then.to_json()

    def _check_replaced(self, after: int) -> None:
        active = self._generations.highest()
        if active != after:
            raise self._stale(f"generation {active} of index '{self.name}' is active, not {after}")

    def _stale(self, fact: str) -> StaleFrontier:
        return StaleFrontier(fact, landed="nothing was written", hint="run the sync again")


def _lock(location: Location, name: str) -> Lock:
    """The lock of an index: a lease in S3, where no file can be locked."""
    if isinstance(location, Bucket):
        return Lease(location.conditional, location, name)
    return FileLock(location, name)


def _removed(
    folder: str, index: HudiReader, batch: Batch, parts: list[str]
) -> tuple[str, list[str]]:
    """A file of the chunks to delete: those of the batch, and those that move to another cell.

    The second result is a few of their `_id`s.
    """
    location, path = index.table.location, new_part(folder)
    written: dict[str, int] = {}
    for part in parts:
        with opened_part(location, part) as file:
            rows = file.read(columns=["_id", CELL])
        written |= dict(zip(rows["_id"].to_pylist(), rows[CELL].to_pylist(), strict=True))
    some: list[str] = []
    with part_writer(location, path, staged_schema(batch.schema)) as out:
        for ids in _lots(_both(written, batch.deletes)):
            held = index.whereabouts(ids)
            gone = {id: cell for id, cell in held.items() if written.get(id) != cell}
            out.write_batch(removals(batch.schema, list(gone), list(gone.values())))
            some += list(gone)[: SAMPLED - len(some)]
    return path, some


def _both(written: dict[str, int], deletes: Collection[str]) -> Iterator[str]:
    yield from written
    yield from (id for id in deletes if id not in written)


def _lots(ids: Iterable[str]) -> Iterator[set[str]]:
    rest = iter(ids)
    while some := set(islice(rest, IDS_AT_ONCE)):
        yield some


def _brief(error: object) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if "Exception" in line or "Error" in line),
        lines[0] if lines else "",
    )
