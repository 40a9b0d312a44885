"""The base of the hot tier: the chunks of one version, read once and never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lakewake.model.recall import Effort, Probed
from lakewake.progress import UNSEEN, Stage
from lakewake.store import Piece, StoreReader, recall
from lakewake.store.hot.cells import Cells, in_order, number_of_cells, train
from lakewake.store.hot.pieces import pieces_of
from lakewake.store.hot.rows import HeldRows, held_rows, joined, large, shown_schema
from lakewake.store.ranking import best_positions, closeness
from lakewake.store.recall import EQUAL, PER_KIND, K

#: With fewer chunks each vector is compared: that takes a millisecond.
CELLS_MIN_CHUNKS = 10_000
#: How many of the cells a search reads: the efforts to try.
PROBES = (8, 12, 16, 24, 32, 48, 64, 96, 128)
#: Chunks of this size are looked at to estimate what all take.
SAMPLED = 500


class Mark(NamedTuple):
    """Where the chunks of a piece are in the base.

    Attributes:
        numbers: their numbers in the piece, ascending.
    """

    start: int
    numbers: np.ndarray


@dataclass(frozen=True)
class Base:
    """The chunks of one version.

    Attributes:
        marks: name of a piece → where its chunks are.
        places: chunks are in the order of cells: where each is that was read; None: in that order.
        cells: groups of near vectors; None: each vector is compared.
        probed: what a probe of the cells found; None if there are none.
        why: why there are no cells; '' if there are.
        token: the name of the files that it was mapped from; '' if this process read it.
    """

    metric: str
    rows: HeldRows
    marks: Mapping[str, Mark]
    places: np.ndarray | None = None
    cells: Cells | None = None
    probed: Probed | None = None
    why: str = ""
    token: str = ""

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        more = 0 if self.cells is None else self.cells.nbytes
        return self.rows.nbytes + more + (0 if self.places is None else self.places.nbytes)

    def in_cells(self, question: np.ndarray, probes: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the chunks in the nearest cells, and how near each is."""
        assert self.cells is not None
        return self.cells.nearest(self.rows, question, probes)


def estimate(reader: StoreReader, recall: float) -> int:
    """How much memory a base of this version takes, estimated from a sample of it."""
    chunks, recipe = reader.counts()[1], reader.recipe()
    shown = shown_schema(reader.schema())
    sample = [batch.cast(large(shown)) for batch in reader.sample(SAMPLED, shown.names)]
    held = sum(b.num_rows for b in sample)
    columns = sum(b.nbytes for b in sample) / held if held else 0
    dimension = recipe.model.dimension
    centres = number_of_cells(chunks) * (4 * dimension + 8) if has_cells(chunks, recall) else 0
    return int(chunks * (4 * dimension + 8 + columns) + centres)


def has_cells(chunks: int, recall: float) -> bool:
    """Whether a base of this many chunks has cells."""
    return chunks >= CELLS_MIN_CHUNKS and recall < 1


def read_base(
    reader: StoreReader, stopped: Callable[[], bool], stage: Stage = UNSEEN
) -> Base | None:
    """Read a version. The base has no cells yet; None if it was stopped.

    Args:
        stage: counts the chunks.
    """
    recipe, schema = reader.recipe(), shown_schema(reader.schema())
    read, marks, start = [], {}, 0
    for piece in pieces_of(reader):
        if stopped():
            return None
        rows, numbers = read_piece(piece, reader)
        if piece.name:
            marks[piece.name] = Mark(start, numbers)
        start += len(rows)
        stage.advance(len(rows))
        read.append(rows)
    empty = held_rows((), schema, recipe.model.dimension)
    return Base(recipe.metric, joined([empty, *read]), marks)


def read_piece(piece: Piece, reader: StoreReader) -> tuple[HeldRows, np.ndarray]:
    """The live chunks of a piece that have a vector, and their numbers in it."""
    schema, dimension = shown_schema(reader.schema()), reader.recipe().model.dimension
    batches = list(piece.read([*schema.names, "_vector"]))
    there = [b["_vector"].is_valid().to_numpy(zero_copy_only=False) for b in batches]
    numbers = piece.live()
    if there:
        numbers = numbers[np.concatenate(there)]
    return held_rows(batches, schema, dimension), numbers


def with_cells(
    base: Base, promised: float, stopped: Callable[[], bool], stage: Stage = UNSEEN
) -> Base | None:
    """The base with cells, if it has enough chunks and some of them keep the promised recall.

    Args:
        stage: counts the vectors that are `compared`.
    """
    if not has_cells(len(base.rows), promised):
        few = f"it has fewer than {CELLS_MIN_CHUNKS:,} chunks"
        return replace(base, why="its recall is 1" if promised >= 1 else few)
    trained = train(base.metric, base.rows.vectors, stopped, stage)
    if trained is None:
        return None
    centres, cells = trained
    order, starts = in_order(cells, len(centres))
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    grouped = Cells(base.metric, centres, starts)
    found = replace(base, rows=base.rows.take(order), places=places, cells=grouped)
    probed = probe(found, promised)
    if probed is None:
        return replace(found, cells=None, why="no number of cells reached the promised recall")
    return replace(found, probed=probed)


def probe(base: Base, promised: float) -> Probed | None:
    """The fewest cells that surely keep the promise; None: no number does."""
    rng = np.random.default_rng(len(base.rows))
    picked = rng.choice(len(base.rows), min(3 * PER_KIND, len(base.rows)), replace=False)
    none = np.empty((0, base.rows.vectors.shape[1]), np.float32)
    asked = recall.questions(base.rows.vectors[np.sort(picked)], none, (), rng)
    if not recall.number(asked):
        return None
    nearest = [_nearest(base, question) for question in recall.every(asked)]

    def measure(effort: Effort) -> Probed:
        each = zip(recall.every(asked), nearest, strict=True)
        shares = [_share(base, question, near, effort) for question, near in each]
        return recall.judged(asked, shares, effort)

    return recall.cheapest(measure, (Effort(n, 1) for n in PROBES), promised)


def _nearest(base: Base, question: np.ndarray) -> np.ndarray:
    """How near the nearest ones are."""
    near = base.rows.closeness(base.metric, question, None)
    exact = closeness(base.metric, base.rows.vectors[best_positions(near, K)], question)
    # Those that cannot be compared come last.
    return np.sort(exact[~np.isnan(exact)])[::-1][:K]


def _share(base: Base, question: np.ndarray, nearest: np.ndarray, effort: Effort) -> float:
    positions, near = base.in_cells(question, effort.probes)
    best = positions[best_positions(near, K)]
    found = closeness(base.metric, base.rows.vectors[best], question)
    return min(1.0, float((found >= nearest[-1] - EQUAL).sum()) / len(nearest))


def positions_of(base: Base, mark: Mark, numbers: np.ndarray) -> np.ndarray | None:
    """The positions in the base of the chunks of a piece with these numbers.

    None if it lacks one: a restore can bring chunks back to life.
    """
    read: np.ndarray = np.searchsorted(mark.numbers, numbers)
    if len(read) and read.max() >= len(mark.numbers):
        return None
    if not (mark.numbers[read] == numbers).all():
        return None
    read = read + mark.start
    return read if base.places is None else base.places[read]
