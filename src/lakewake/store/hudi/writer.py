"""Writes the tables of an index: stages rows, gives them cells, and lets Spark commit them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakewake.errors import StaleFrontier, StoreError
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.keep import Keep
from lakewake.model.recipe import Recipe
from lakewake.progress import SILENT, Reporter, step
from lakewake.store.deleted import KEPT
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
from lakewake.store.hudi.lock import Hold, NeverLost
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.staging import (
    HudiStaging,
    StagedFile,
    assign,
    assigned_name,
    new_part,
    opened_part,
    part_writer,
)
from lakewake.store.hudi.table import bury, completed, instant_of
from lakewake.store.hudi.training import Sampled, train_on_executors
from lakewake.store.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakewake.store.hudi.writing import Guard

#: A few of the removed chunks are kept for the next probe: this many, and more after many removals.
SAMPLED, SAMPLED_SHARE = 32, 1 / 16
#: Chunks of one staged file. Tasks assign cells to several files at the same time.
PART_CHUNKS = 65_536
#: Ids that are handled at the same time.
IDS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Staged:
    """A batch on its way into a table.

    Attributes:
        parts: its Parquet files.
        removed: the `_id`s of a few chunks that it removes.
    """

    parts: list[str]
    removed: list[str]


@dataclass(frozen=True)
class IndexWriter:
    """Writes the tables of one index.

    Attributes:
        session: the Spark session that writes; called when it is needed.
        cell_chunks: how many chunks a cell is meant to hold.
        keep: how long earlier states can be read.
        reporter: shows how far Spark is.
    """

    generations: Generations
    session: Callable[[], SparkSession]
    cell_chunks: int
    keep: Keep
    reporter: Reporter = SILENT

    @property
    def location(self) -> Location:
        """The folder of the index."""
        return self.generations.location

    @property
    def name(self) -> str:
        """The name of the index."""
        return self.generations.name

    def build(self, table: str, recipe: Recipe, batch: Batch, then: Frontier) -> None:
        """Write a new table with a whole batch, in cells that are trained for it."""
        from lakewake.store.hudi.writing import Rows, build

        with self.generations.staging() as folder:
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
            rows = Rows(self.location, table, parts, dimension, then.to_json())
            self.write(lambda spark: build(spark, rows), NeverLost())

    def stage(self, folder: str, index: HudiReader, batch: Batch, then: Frontier) -> Staged:
        """The files that bring a state to a batch and a frontier."""
        given = [StagedFile.from_bytes(part) for part in batch.staged]
        outdated = [part.path for part in given if part.cells != index.cells.digest]
        parts = [part.path for part in given if part.cells == index.cells.digest]
        parts += self._assigned(outdated, index.cells)
        parts += self._stage(folder, batch, index.cells)
        removed, gone_ids = _removed(folder, index, batch, parts)
        former = set(index.frontier().pages)
        texts = frontier_notes(then.to_json(), then.new_pages(former), former - set(then.pages))
        parts += [removed, self._note_file(folder, batch.schema, texts)]
        return Staged(parts, gone_ids)

    def upsert(
        self, index: HudiReader, parts: Sequence[str], then: Frontier, guard: Guard, hold: Hold
    ) -> Exception | None:
        """Apply staged files in one commit, and return the error of Spark or Hudi if there is one.

        Raises:
            StaleFrontier: the lock is lost.
        """
        from lakewake.store.hudi.writing import LOSABLE, Rows, upsert

        dimension = index.recipe().model.dimension
        rows = Rows(self.location, index.table.folder, parts, dimension, then.to_json())
        options = {**self.cleaning(index.table.folder), **(LOSABLE if hold.losable else {})}
        hold.check()
        return self._try(lambda spark: upsert(spark, rows, guard, options), hold)

    def guard(self, index: HudiReader, hold: Hold) -> Guard:
        """Keeps a commit that is based on this state from landing on another one."""
        from lakewake.store.hudi.writing import Guard

        location, table = self.location, index.table.folder
        if hold.losable:
            hold.check()
            bury(location, table)
        seen = completed(location, table)
        # A writer that was stopped here may have lost the lock since it read that state.
        if not seen or instant_of(seen) != index.table.instant:
            raise self.stale(f"another writer committed to index '{self.name}' first")
        return Guard(location, table, seen, hold.check)

    def cleaning(self, table: str) -> dict[str, str]:
        """The options that decide which files a commit may remove."""
        from lakewake.store.hudi.writing import cleaning

        done = (name.partition("_")[0] for name in completed(self.location, table))
        commits = self.keep.wanted(done, datetime.now())
        return cleaning(commits, clean=not self.generations.is_pinned())

    def write(self, write: Callable[[SparkSession], object], hold: Hold) -> None:
        """Let Spark write.

        Raises:
            StoreError: Spark or Hudi failed.
        """
        if error := self._try(write, hold):
            raise self.unwritten(error) from error

    def unwritten(self, error: Exception | None) -> StoreError:
        """What to raise if nothing could be written."""
        return StoreError(
            f"index '{self.name}' could not be written: {brief(error)}",
            landed="nothing was written",
            hint="check the message, then sync again",
        )

    def stale(self, fact: str) -> StaleFrontier:
        """What to raise if another writer came first."""
        return StaleFrontier(fact, landed="nothing was written", hint="run the sync again")

    def _try(self, write: Callable[[SparkSession], object], hold: Hold) -> Exception | None:
        """Write, and return the error of Spark or Hudi if there is one."""
        from lakewake.store.hudi.writing import failures, in_group, writing_session

        try:
            with (
                writing_session(self.session()) as spark,
                in_group(spark) as cancel,
                hold.when_lost(cancel),
                self.showing(spark),
            ):
                write(spark)
        except failures() as error:
            return error
        return None

    def showing(self, spark: SparkSession) -> AbstractContextManager[None]:
        """Show the tasks of the jobs that this thread starts, if a person watches."""
        from lakewake.store.hudi.writing import shown

        return shown(spark, self.reporter)

    def _stage(self, folder: str, batch: Batch, cells: Cells | None) -> list[str]:
        """The chunks of a batch that are not staged yet, as Parquet files."""
        staging = HudiStaging(self.location, folder, cells)
        with batch.rows() as rows:
            return [
                StagedFile.from_bytes(staging.write(batch.schema, part)).path
                for part in in_parts(iter(rows), PART_CHUNKS)
            ]

    def _note_file(self, folder: str, schema: pa.Schema, texts: dict[str, str | None]) -> str:
        path, rows = new_part(folder), notes(schema, texts)
        with part_writer(self.location, path, rows.schema) as out:
            out.write_batch(rows)
        return path

    def _assigned(self, parts: list[str], cells: Cells) -> list[str]:
        """The same files with the cell of each chunk, written by the executors."""
        if not parts or cells.numbers.tolist() == [0]:
            return parts
        spark, location = self.session(), self.location
        context = spark.sparkContext
        sent, files = context.broadcast(cells), context.parallelize(parts, len(parts))
        with self.showing(spark):
            files.foreach(lambda part: assign(location, part, sent.value))
        return [assigned_name(part) for part in parts]

    def _train(self, parts: list[str], recipe: Recipe) -> Cells:
        """Cells for the chunks of these files, trained on a sample of them."""
        from lakewake.store.hudi.writing import on_cluster

        rows = 0
        for part in parts:
            with opened_part(self.location, part) as file:
                rows += file.metadata.num_rows
        count = number_of_cells(rows, self.cell_chunks)
        dimension = recipe.model.dimension
        if count == 1:
            return trained(np.zeros((0, dimension), np.float32), 1, recipe.metric)
        share = min(1.0, count * cell_rules.TRAINED / rows)
        sampled = Sampled(self.location, tuple(parts), share, dimension)
        spark = self.session()
        with step(self.reporter, "train cells", cell_rules.ROUNDS) as stage:
            if on_cluster(spark):
                with self.showing(spark):
                    return train_on_executors(
                        spark.sparkContext, sampled, count, recipe.metric, stage
                    )
            return trained(sampled.read_all(), count, recipe.metric, stage)


def in_parts(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """The same batches in parts of at least `size` chunks; each has to be read before the next."""

    def part(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        held = len(first)
        yield first
        while held < size and (more := next(batches, None)) is not None:
            held += len(more)
            yield more

    while (first := next(batches, None)) is not None:
        yield part(first)


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
            some += sampled(list(gone))
    return path, some_of(some, KEPT)


def sampled(removed: Sequence[str]) -> list[str]:
    """A few of the removed chunks: more of many."""
    return some_of(removed, max(SAMPLED, min(KEPT, int(len(removed) * SAMPLED_SHARE))))


def some_of(ids: Sequence[str], most: int) -> list[str]:
    """At most `most` of them, from anywhere in the list: neighbours are in the same cell."""
    return random.Random(len(ids)).sample(ids, min(most, len(ids)))


def _both(written: dict[str, int], deletes: Collection[str]) -> Iterator[str]:
    yield from written
    yield from (id for id in deletes if id not in written)


def _lots(ids: Iterable[str]) -> Iterator[set[str]]:
    rest = iter(ids)
    while some := set(islice(rest, IDS_AT_ONCE)):
        yield some


def brief(error: object) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if "Exception" in line or "Error" in line),
        lines[0] if lines else "",
    )
