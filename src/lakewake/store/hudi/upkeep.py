"""Keeps the cells of an index in shape, and its words counted. Changes no answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import CHECKPOINT_ID
from lakewake.store.hudi import cells as rules
from lakewake.store.hudi.cells import Cells
from lakewake.store.hudi.layout import CELLS_ID, notes, removals, staged, staged_schema
from lakewake.store.hudi.reader import HudiReader, read_slice
from lakewake.store.hudi.staging import cells_of, new_part, part_writer
from lakewake.store.hudi.table import Slice
from lakewake.store.hudi.words import ENDING, counted_words, file_name
from lakewake.store.words import to_bytes

#: Smaller indexes are counted at the first search by words, in a moment.
WORDS_MIN_CHUNKS = 2_000


def sizes(index: HudiReader) -> dict[int, int]:
    """How many chunks each cell holds."""
    table = index.table
    return {
        cell: sum(len(table.columns(one, ["_id"])["_id"]) for one in some)
        for cell, some in table.slices.items()
    }


def reshape(index: HudiReader, per_cell: int, folder: str) -> list[str]:
    """Parquet files that replace cells which grew or emptied; none if all are in shape.

    Args:
        folder: where to write them, in the folder of the index.
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
    with part_writer(table.location, path, staged_schema(index.schema())) as out:
        for one in slices:
            for batch in _moved(index, one, cells):
                out.write_batch(batch)
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


def count_words(index: HudiReader, folder: str) -> int:
    """Keep the counted words of each slice in a file; return how many were written."""
    every = list(index.table.every())
    if index.counts()[1] < WORDS_MIN_CHUNKS:
        return 0
    location = index.table.location
    location.prepare(folder)
    wanted = {file_name(one): one for one in every}
    there = {name for name in location.names(folder) if name.endswith(ENDING)}
    for name in wanted.keys() - there:
        content = to_bytes(counted_words(index.table, wanted[name], folder))
        location.replace(f"{folder}/{name}", content, lasting=False)
    if unused := there - wanted.keys():
        location.discard(folder, unused)
    return len(wanted.keys() - there)
