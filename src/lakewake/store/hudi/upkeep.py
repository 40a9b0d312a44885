"""Keeps the cells of an index in shape, and its words counted. Changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import CHECKPOINT_ID
from lakewake.model.recall import Decision
from lakewake.progress import SILENT, Reporter, step
from lakewake.store.deleted import DeletedVectors
from lakewake.store.hudi import cells as rules
from lakewake.store.hudi.cells import Cells
from lakewake.store.hudi.layout import CELLS_ID, notes, removals, staged, staged_schema
from lakewake.store.hudi.lock import Hold
from lakewake.store.hudi.reader import HudiReader, read_slice
from lakewake.store.hudi.recall import Asked, Counted, Found, decided
from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.staging import cells_of, new_part, part_writer, vectors_of
from lakewake.store.hudi.words import ENDING, counted_words, file_name
from lakewake.store.hudi.writer import IndexWriter
from lakewake.store.recall import PER_KIND, Asking, Questions, is_due, now, questions
from lakewake.store.words import to_bytes

#: A file with this many logs is compacted.
LOGS = 8
#: Smaller indexes are counted at the first search by words, in a moment.
WORDS_MIN_CHUNKS = 2_000


@dataclass(frozen=True)
class Upkeep:
    """The upkeep of one index. The caller holds its lock."""

    writer: IndexWriter
    asking: Asking
    deleted: DeletedVectors

    def reshape(self, index: HudiReader, hold: Hold) -> int:
        """Split cells that grew, and dissolve those that emptied, in one commit."""
        writer, frontier = self.writer, index.frontier()
        guard = writer.guard(index, hold)
        with writer.generations.staging() as folder:
            parts = reshape(index, writer.cell_chunks, folder, writer.reporter)
            if parts and (error := writer.upsert(index, parts, frontier, guard, hold)):
                raise writer.unwritten(error) from error
        return len(parts)

    def compact(self, index: HudiReader, hold: Hold) -> int:
        """Merge the logs of files that have many; return how many files."""
        every = [*index.table.note_slices, *index.table.every()]
        many = [one for one in every if len(one.logs) >= LOGS]
        if not many:
            return 0
        from lakewake.store.hudi.writing import compact

        hold.check()
        path, cleaning = index.table.path, self.writer.cleaning(index.table.folder)
        self.writer.write(lambda spark: compact(spark, path, cleaning, logs=LOGS), hold)
        return len(many)

    def probe(self, index: HudiReader) -> int:
        """Measure the recall and decide how many cells a search reads; return the questions."""
        if not is_due(index.coverage, self.asking):
            self._count(index)
            return 0
        asked = self.questions(index)
        chunks, cells = index.counts()[1], len(index.cells.numbers)
        decision = Decision(None, None, now(), 0, self.asking.recall, chunks)
        if asked:
            exact = Asked.of(index.exactly, asked)
            plain = exact.cheapest(index.nearness, cells, self.asking.recall)
            decision = decided(plain, exact, self.asking, chunks)
        total = index.changed.total if index.probed else 0
        at = index.table.instant
        found = Found(decision, at, index.table.folder, Counted(at, total=total))
        last = index.probed.retrained if index.probed else None
        self.keep(index.generation, replace(found, retrained=last))
        return decision.questions

    def questions(self, index: HudiReader) -> Questions:
        """What to ask an index to measure its recall."""
        dimension = index.recipe().model.dimension
        found = index.sample(3 * PER_KIND, ["_vector"])
        none = np.empty((0, dimension), np.float32)
        stored = np.concatenate([none, *(vectors_of(b["_vector"], dimension) for b in found)])
        deleted = self.deleted.read(index.recipe().fingerprint, dimension)
        return questions(stored, deleted, self.asking.recent, np.random.default_rng(0))

    def keep(self, generation: int, found: Found) -> None:
        """Keep the result of a probe, for all who search."""
        self.writer.location.replace(searching_file(generation), found.to_bytes())

    def sample_deleted(self, index: HudiReader, ids: list[str]) -> None:
        """Keep a few of the vectors that a commit removes: questions about them are the hardest."""
        if not ids or len(index.cells.numbers) == 1:
            return
        fingerprint, vectors = index.recipe().fingerprint, index.vectors_of(ids)
        # It is only a sample.
        with suppress(OSError):
            self.deleted.add(fingerprint, vectors, np.random.default_rng(len(ids)))

    def _count(self, index: HudiReader) -> None:
        """Keep what changed since the last probe, before its commits leave the timeline."""
        found = index.probed
        if found and index.changed.total != found.since.total:
            self.keep(index.generation, replace(found, counted=index.changed))


def searching_file(generation: int) -> str:
    """Where the result of the last probe of a generation is kept, in the folder of the index."""
    return f"searching-g{generation}.json"


def sizes(index: HudiReader) -> dict[int, int]:
    """How many chunks each cell holds."""
    table = index.table
    return {
        cell: sum(len(table.columns(one, ["_id"])["_id"]) for one in some)
        for cell, some in table.slices.items()
    }


def reshape(
    index: HudiReader, per_cell: int, folder: str, reporter: Reporter = SILENT
) -> list[str]:
    """Parquet files that replace cells which grew or emptied; none if all are in shape.

    Args:
        folder: where to write them, in the folder of the index.
        reporter: shows how many files of cells were read.
    """
    held = sizes(index)
    gone = rules.due(held, index.cells, per_cell)
    if not gone:
        return []
    table, dimension = index.table, index.recipe().model.dimension
    of_gone = [one for cell in gone for one in table.slices.get(cell, ())]
    empty = np.empty((0, dimension), np.float32)
    vectors = np.concatenate([empty, *(table.matrix(one, dimension) for one in of_gone)])
    cells = rules.replaced(index.cells, gone, vectors, per_cell)
    new = set(cells.numbers.tolist()) - set(index.cells.numbers.tolist())
    around = rules.neighbours(cells, new)
    slices = [*of_gone, *(one for cell in around for one in table.slices.get(cell, ()))]
    path = new_part(folder)
    with (
        part_writer(table.location, path, staged_schema(index.schema())) as out,
        step(reporter, "move chunks", len(slices)) as stage,
    ):
        for one in slices:
            for batch in _moved(index, one, cells):
                out.write_batch(batch)
            stage.advance(1)
        texts = {CHECKPOINT_ID: index.notes[CHECKPOINT_ID], CELLS_ID: cells.to_json()}
        out.write_batch(notes(index.schema(), texts))
    return [path]


def _moved(index: HudiReader, one: Slice, cells: Cells) -> Iterator[pa.RecordBatch]:
    """The chunks of a slice that are in another cell now: their removal, and where they go."""
    chunks = read_slice(index.table, one, index.schema())
    to = cells_of(chunks, cells)
    leaving = pa.array(np.asarray(to) != one.cell)
    chunks, to = chunks.filter(leaving), to.filter(leaving)
    if chunks.num_rows:
        ids = chunks["_id"].to_pylist()
        yield removals(index.schema(), ids, [one.cell] * len(ids))
        yield staged(chunks, to)


def count_words(index: HudiReader, folder: str, reporter: Reporter = SILENT) -> int:
    """Keep the counted words of each slice in a file; return how many were written."""
    every = list(index.table.every())
    if index.counts()[1] < WORDS_MIN_CHUNKS:
        return 0
    location = index.table.location
    location.prepare(folder)
    wanted = {file_name(one): one for one in every}
    there = {name for name in location.names(folder) if name.endswith(ENDING)}
    missing = wanted.keys() - there
    with step(reporter, "count words", len(missing)) as stage:
        for name in missing:
            content = to_bytes(counted_words(index.table, wanted[name], folder))
            location.replace(f"{folder}/{name}", content, lasting=False)
            stage.advance(1)
    if unused := there - wanted.keys():
        location.discard(folder, unused)
    return len(missing)
