"""Reads scan parts of an index as blocks of vectors, on an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakewake.batch.nearest import CHUNKS, Block, comparable, lengths
from lakewake.model.chunks import ScanParts
from lakewake.model.where import Where
from lakewake.store.passing import columns_of, passing
from lakewake.store.ranking import as_matrix

#: Bytes of vectors that a task keeps in memory. More are read again for each block of questions.
KEPT_BYTES = 192 * 1024 * 1024
#: Bytes of vectors that a group of scan parts is meant to have, and the fewest chunks.
GROUP_BYTES, GROUP_CHUNKS = 128 * 1024 * 1024, 4096
#: A place is the number of a scan part times this, plus the position of the chunk in it.
PART = 2**40


@dataclass(frozen=True)
class Comparing:
    """How chunks are compared with a question.

    Attributes:
        where: a filter that was `fitted` to the index.
        weights: text field → the factor for its scores; fields that are not listed have 1.
    """

    metric: str
    dimension: int
    where: Where | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an index that are needed."""
        needed = ["_id", "_partition", "_key", "_field", "_vector"]
        return tuple(
            dict.fromkeys([*needed, *sorted(columns_of(self.where) if self.where else ())])
        )

    def passing(self, batch: pa.RecordBatch) -> np.ndarray:
        """The positions of the chunks that have a vector and pass the filter."""
        keep = np.asarray(batch["_vector"].is_valid())
        if self.where is not None:
            columns = {name: batch[name] for name in columns_of(self.where)}
            keep = keep & np.asarray(passing(self.where, columns, batch.num_rows))
        return np.flatnonzero(keep)

    def block(self, batch: pa.RecordBatch, place: int) -> Block:
        """The chunks that can be compared and pass the filter.

        Args:
            place: that of the first chunk.
        """
        at = self.passing(batch)
        vectors = as_matrix(_taken(batch["_vector"], at), self.dimension)
        sizes = lengths(vectors)
        kept = comparable(vectors, sizes, self.metric)
        if not kept.all():
            at, vectors, sizes = at[kept], vectors[kept], sizes[kept]
        texts = [_taken(batch[c], at).to_pylist() for c in ("_partition", "_key", "_field")]
        rows = [hash(row) for row in zip(*texts[:2], strict=True)]
        return Block(
            vectors,
            sizes,
            np.array([self.weights.get(name, 1.0) for name in texts[2]], np.float64),
            np.array(rows, np.int64),
            np.array(_taken(batch["_id"], at).to_pylist(), object),
            place + at,
        )


def _taken(column: pa.Array, positions: np.ndarray) -> pa.Array:
    return column if len(positions) == len(column) else column.take(pa.array(positions))


@dataclass(frozen=True)
class Group:
    """Scan parts that one task compares with all questions. It can be pickled.

    Attributes:
        first: the number of the first part.
    """

    first: int
    parts: tuple[Iterable[pa.RecordBatch], ...]

    def blocks(self, how: Comparing) -> Iterator[Block]:
        """Its chunks, about `CHUNKS` at a time."""
        held: list[Block] = []
        for number, part in enumerate(self.parts, self.first):
            place = number * PART
            for batch in part:
                held.append(how.block(batch, place))
                place += batch.num_rows
                if sum(map(len, held)) >= CHUNKS:
                    yield joined(held)
                    held = []
        if held:
            yield joined(held)


class Kept:
    """The blocks of a group, kept in memory if they are not too large."""

    def __init__(self, group: Group, how: Comparing) -> None:
        self._group, self._how = group, how
        self._kept: list[Block] | None = None

    def __iter__(self) -> Iterator[Block]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Block] = []
        size = 0
        for block in self._group.blocks(self._how):
            size += block.nbytes
            if size <= KEPT_BYTES:
                kept.append(block)
            else:
                kept.clear()
            yield block
        self._kept = kept if size <= KEPT_BYTES else None


def joined(blocks: Sequence[Block]) -> Block:
    """One block of several."""
    if len(blocks) == 1:
        return blocks[0]
    names = ("vectors", "lengths", "weights", "rows", "ids", "places")
    return Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in names))


def part_size(chunks: int, dimension: int, cores: int) -> int:
    """How many chunks a group should have: at least one group per core, and none too large."""
    fits = GROUP_BYTES // (4 * dimension)
    groups = -(-max(chunks, 1) // fits)
    # A multiple of the cores, so that they finish together.
    groups = -(-groups // cores) * cores
    return max(-(-chunks // groups), min(GROUP_CHUNKS, fits), 1)


def grouped(index: ScanParts, chunks: int) -> tuple[Group, ...]:
    """The parts in groups of about this many chunks."""
    number = min(len(index.parts), max(1, round(index.chunks / max(chunks, 1))))
    borders = [n * len(index.parts) // max(number, 1) for n in range(number + 1)]
    return tuple(Group(start, index.parts[start:end]) for start, end in pairwise(borders))
