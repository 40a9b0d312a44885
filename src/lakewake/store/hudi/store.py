"""An index in the lake: chunks, deletes and frontier in one commit of one Hudi table."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakewake.errors import (
    IndexDamaged,
    IndexMissing,
    OutcomeUnknown,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.as_of import newest_not_newer
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL, Decision
from lakewake.model.recipe import Recipe
from lakewake.store.deleted import DeletedVectors
from lakewake.store.hints import missing, rebuild
from lakewake.store.hudi import cells as cell_rules
from lakewake.store.hudi.cells import Cells, number_of_cells, trained
from lakewake.store.hudi.generations import Generations
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
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import Found, decide
from lakewake.store.hudi.staging import HudiStaging, StagedFile, assign, vectors_of
from lakewake.store.hudi.table import IndexTable, SliceCache, completed, kept_from
from lakewake.store.hudi.upkeep import count_words, reshape
from lakewake.store.location import location_at
from lakewake.store.memory import check_columns
from lakewake.store.recall import ANN_MIN_CHUNKS, PER_KIND, Asking, is_due, now, questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        self._generations = Generations(Path(folder).absolute(), name)
        self._asking = Asking(recall, ann_min_chunks)
        self._location = location_at(str(self._generations.folder))
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
        instants = completed(str(table))
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
            (Frontier.from_json(text), IndexTable(newest.path, commit, self.name, self._cache))
            for commit, text in newest.commits()
            if commit >= kept
        )
        return newest_not_newer(instant, states, self.name)

    def _kept_from(self, table: IndexTable) -> str:
        try:
            return kept_from(self._location, Path(table.path).name)
        except OSError as error:
            raise StoreUnreachable(
                f"index '{self.name}' cannot be reached at {table.path}: {error}",
                hint=self._location.hint,
            ) from error

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        from lakewake.store.hudi.writing import build

        self._check_replaced(after)
        number = after + 1
        table = self._generations.new_table(number)
        with self._generations.staging() as folder:
            assigned = [StagedFile.from_bytes(part) for part in batch.staged]
            parts = [*(part.path for part in assigned), *_stage(folder, batch, None)]
            cells = self._train(parts, recipe)
            _each(self._session(), parts, cells)
            texts = frontier_notes(then.to_json(), then.new_pages(()), set())
            texts |= {
                ABOUT_ID: About(self.name, recipe, batch.schema.remove_metadata()).to_json(),
                CELLS_ID: cells.to_json(),
            }
            parts.append(_note_file(folder, batch.schema, texts))
            dimension = recipe.model.dimension
            self._write(lambda spark: build(spark, str(table), parts, dimension, then.to_json()))
        if not self._generations.claim(number, table):
            shutil.rmtree(table, ignore_errors=True)
            raise self._stale(f"generation {number} of index '{self.name}' came first")
        self._opened = number

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[HudiStaging]:
        cells = None if after is not None else self._committable().cells
        with self._generations.staging() as folder:
            yield HudiStaging(folder, cells)

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        self._committable()
        with self._generations.lock():
            failure: Exception | None = None
            for _ in range(ATTEMPTS):
                index = self._newest(failure)
                if self._landed(index, expect, then):
                    return
                check_columns(batch.schema.remove_metadata(), index.schema())
                failure = self._try_commit(index, batch, then)
                if failure is None:
                    return
            if self._landed(self._newest(failure), expect, then):
                return
            raise StoreError(
                f"index '{self.name}' could not be written: {_brief(failure)}",
                landed="nothing was written",
                hint="check the message, then sync again",
            ) from failure

    def maintain(self) -> dict[str, int]:
        if not self._generations.active()[0]:
            return {}
        with self._generations.lock():
            number = self._newest(None).generation
            done = {"cells_replaced": self._reshape(self._newest(None))}
            done["files_compacted"] = self._compact(self._newest(None))
            index = self._newest(None)
            done["texts_indexed"] = count_words(index, index.word_folder)
            done["questions_probed"] = self._probe(index)
            self._generations.forget()
            done["generations_removed"] = self._generations.retire(before=number)
        return {what: n for what, n in done.items() if n}

    def _reshape(self, index: HudiReader) -> int:
        """Split cells that grew, and dissolve those that emptied, in one commit."""
        from lakewake.store.hudi.writing import upsert

        path, frontier = index.table.path, index.frontier().to_json()
        seen, cleaning = completed(path), self._cleaning(path)
        dimension = index.recipe().model.dimension
        with self._generations.staging() as folder:
            parts = reshape(index, self._cell_chunks, folder)
            if parts:
                self._write(
                    lambda spark: upsert(spark, path, parts, dimension, frontier, seen, cleaning)
                )
        return len(parts)

    def _compact(self, index: HudiReader) -> int:
        every = [*index.table.note_slices, *index.table.every()]
        many = [one for one in every if len(one.logs) >= LOGS]
        if not many:
            return 0
        from lakewake.store.hudi.writing import compact

        path = index.table.path
        self._write(lambda spark: compact(spark, path, self._cleaning(path), logs=LOGS))
        return len(many)

    def _cleaning(self, path: str) -> dict[str, str]:
        """The options that decide which files a commit may remove."""
        from lakewake.store.hudi.writing import cleaning

        commits = self._keep.wanted((n.partition("_")[0] for n in completed(path)), datetime.now())
        return cleaning(commits, clean=not self._generations.is_pinned())

    def _try_commit(self, index: HudiReader, batch: Batch, then: Frontier) -> Exception | None:
        from lakewake.store.hudi.writing import upsert

        seen = completed(index.table.path)
        with self._generations.staging() as folder:
            assigned = [StagedFile.from_bytes(part) for part in batch.staged]
            outdated = [part.path for part in assigned if part.cells != index.cells.digest]
            _each(self._session(), outdated, index.cells)
            parts = [*(part.path for part in assigned), *_stage(folder, batch, index.cells)]
            removed, gone_ids = _removed(folder, index, batch, parts)
            self._sample_deleted(index, gone_ids)
            parts.append(removed)
            former = set(index.frontier().pages)
            unused = former - set(then.pages)
            texts = frontier_notes(then.to_json(), then.new_pages(former), unused)
            parts.append(_note_file(folder, batch.schema, texts))
            dimension = index.recipe().model.dimension
            path, cleaning = index.table.path, self._cleaning(index.table.path)
            return self._try(
                lambda spark: upsert(spark, path, parts, dimension, then.to_json(), seen, cleaning)
            )

    def _sample_deleted(self, index: HudiReader, ids: list[str]) -> None:
        """Keep a few of the vectors that a commit removes: questions about them are the hardest."""
        if not ids or len(index.cells.numbers) == 1:
            return
        recipe = index.recipe()
        vectors = index.vectors_of(ids)
        # It is only a sample.
        with suppress(OSError):
            self._deleted.add(recipe.fingerprint, vectors, np.random.default_rng(len(ids)))

    def _try(self, write: Callable[[SparkSession], object]) -> Exception | None:
        """Write, and return the error of Spark or Hudi if there is one."""
        from lakewake.store.hudi.writing import failures, writing_session

        try:
            write(writing_session(self._session()))
        except failures() as error:
            return error
        return None

    def _write(self, write: Callable[[SparkSession], object]) -> None:
        if error := self._try(write):
            raise StoreError(
                f"index '{self.name}' could not be written: {_brief(error)}",
                landed="nothing was written",
                hint="check the message, then sync again",
            ) from error

    def _train(self, parts: list[str], recipe: Recipe) -> Cells:
        """Cells for the chunks of these files, trained on a sample of them."""
        rows = sum(pq.read_metadata(part).num_rows for part in parts)
        count = number_of_cells(rows, self._cell_chunks)
        dimension = recipe.model.dimension
        if count == 1:
            return trained(np.zeros((0, dimension), np.float32), 1, recipe.metric)
        share = min(1.0, count * cell_rules.TRAINED / rows)
        return trained(_sample(parts, share, dimension), count, recipe.metric)

    def _reader(self, number: int, table: Path, instants: tuple[str, ...]) -> HudiReader:
        instant = instants[-1].partition("_")[0] if instants else ""
        if not instant:
            raise IndexDamaged(
                f"{table} has no completed commit",
                hint=rebuild(self.name),
            )
        state = IndexTable(str(table), instant, self.name, self._cache)
        return HudiReader(state, number, self._asking, self._probed(number, instant))

    def _probed(self, number: int, instant: str) -> Found | None:
        """What the last probe found; None for an earlier state, whose cells may be others."""
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


def _stage(folder: Path, batch: Batch, cells: Cells | None) -> list[str]:
    """The chunks of a batch that are not staged yet, as a Parquet file."""
    with batch.rows() as rows:
        written = StagedFile.from_bytes(HudiStaging(folder, cells).write(batch.schema, iter(rows)))
    return [written.path]


def _note_file(folder: Path, schema: pa.Schema, texts: dict[str, str | None]) -> str:
    path = folder / f"{uuid4().hex}.parquet"
    rows = notes(schema, texts)
    pq.write_table(pa.Table.from_batches([rows]), path, compression="none")
    return str(path)


def _each(spark: SparkSession, parts: list[str], cells: Cells) -> None:
    """Give each chunk of these files its cell, on the executors."""
    if not parts or cells.numbers.tolist() == [0]:
        return
    sent = spark.sparkContext.broadcast(cells)
    spark.sparkContext.parallelize(parts, len(parts)).foreach(lambda p: assign(p, sent.value))


def _sample(parts: list[str], share: float, dimension: int) -> np.ndarray:
    """Some of the vectors in these files, picked at random."""
    rng = np.random.default_rng(0)
    found = [np.empty((0, dimension), np.float32)]
    for part in parts:
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(columns=["_vector"]):
                picked = np.flatnonzero(rng.random(batch.num_rows) < share)
                column = batch["_vector"].take(pa.array(picked.tolist(), pa.int64())).drop_null()
                found.append(vectors_of(column, dimension))
    return np.concatenate(found)


def _removed(
    folder: Path, index: HudiReader, batch: Batch, parts: list[str]
) -> tuple[str, list[str]]:
    """A file of the chunks to delete: those of the batch, and those that move to another cell.

    The second result is a few of their `_id`s.
    """
    schema = staged_schema(batch.schema)
    path = folder / f"{uuid4().hex}.parquet"
    written: dict[str, int] = {}
    for part in parts:
        rows = pq.read_table(part, columns=["_id", CELL])
        written |= dict(zip(rows["_id"].to_pylist(), rows[CELL].to_pylist(), strict=True))
    some: list[str] = []
    with pq.ParquetWriter(path, schema, compression="none") as out:
        for ids in _lots(_both(written, batch.deletes)):
            held = index.whereabouts(ids)
            gone = {id: cell for id, cell in held.items() if written.get(id) != cell}
            out.write_batch(removals(batch.schema, list(gone), list(gone.values())))
            some += list(gone)[: SAMPLED - len(some)]
    return str(path), some


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
