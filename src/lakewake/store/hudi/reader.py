"""Reading one pinned state of an index in the lake."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakewake.errors import IndexDamaged, StoreError
from lakewake.lazy import lazy
from lakewake.model.chunks import CHECKPOINT_ID, PAGE_ID, ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import CellSizes, Effort, Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.where import Compare, Where
from lakewake.store.filters import fitted
from lakewake.store.held import STORED, chunks_by_row, of_rows, vectors_by_hash, with_identity
from lakewake.store.hints import rebuild
from lakewake.store.hudi.cells import CHUNKS, Cells
from lakewake.store.hudi.closeness import closeness_within
from lakewake.store.hudi.generations import PINS, reaching
from lakewake.store.hudi.layout import ABOUT_ID, CELLS_ID, About
from lakewake.store.hudi.recall import Counted, Coverage, Found, nearest_scores
from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.table import IndexTable, among, as_vectors
from lakewake.store.hudi.words import SliceWords
from lakewake.store.passing import columns_of, passing
from lakewake.store.ranking import (
    HIDDEN,
    as_matrix,
    best_positions,
    check_query,
    count_rows,
    first_rows,
    nearest_rows,
    rank,
    settled,
)
from lakewake.store.recall import Asking, choose, how_searched


class HudiReader:
    """One state of one generation.

    Attributes:
        probed: what the last probe found; None if it is not valid for this state.

    Raises:
        StoreError: the table is not an index of ours, or cannot be read.
    """

    def __init__(
        self,
        table: IndexTable,
        generation: int,
        asking: Asking | None = None,
        probed: Found | None = None,
    ) -> None:
        self._table, self._generation = table, generation
        self._asking = asking or Asking()
        self.probed = probed
        self.notes = table.notes()
        self.about: About = _parsed(table, self.notes, ABOUT_ID, About.from_json)
        self.cells: Cells = _parsed(table, self.notes, CELLS_ID, Cells.from_json)
        self._frontier: Frontier = _parsed(
            table, self.notes, CHECKPOINT_ID, lambda text: Frontier.from_json(text, self._pages)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return HudiReader, (self._table, self._generation, self._asking, self.probed)

    @property
    def table(self) -> IndexTable:
        """The state of the table that it reads."""
        return self._table

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_service(self) -> bool:
        return False

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep cleaning from removing the files of this state, however long it is read."""
        location, pin = self._table.location, uuid4().hex
        # If nothing can be written, nothing is removed either.
        with suppress(OSError):
            location.replace(f"{PINS}/{pin}", self._table.instant.encode(), lasting=False)
        try:
            yield
        finally:
            with suppress(OSError):
                location.discard(PINS, [pin])

    def frontier(self) -> Frontier:
        return self._frontier

    def recipe(self) -> Recipe:
        return self.about.recipe

    def schema(self) -> pa.Schema:
        return self.about.schema.remove_metadata()

    def counts(self) -> tuple[int, int]:
        return self._counts

    @lazy
    def _counts(self) -> tuple[int, int]:
        found = [self._read(one, ["_partition", "_key"]) for one in self._table.every()]
        if not found:
            return 0, 0
        every = pa.Table.from_batches(found)
        return count_rows(every), every.num_rows

    def probe(self) -> None:
        """Check that the files of this state exist, and read one of them."""
        table, every = self._table, list(self._table.every())
        files = [f"{table.folder}/{f}" for one in every for f in (one.base, *one.logs) if f]
        with reaching(table.location, self.about.name):
            lost = table.location.missing(files)
        if lost:
            raise IndexDamaged(
                f"index '{self.about.name}' has lost the file {table.location.address(lost[0])}",
                hint=rebuild(self.about.name),
            )
        if every:
            # Not from memory: the files may be damaged since.
            fresh = IndexTable(table.location, table.folder, table.instant, self.about.name)
            fresh.columns(random.choice(every), ["_id"])

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        wanted = set(rows)
        return chunks_by_row(self._having("_key", {r.key for r in wanted}, STORED), wanted)

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        keys = {row.key for row in rows}
        return of_rows(self._having("_key", keys, with_identity(columns)), rows, columns)

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        batches = self._having("_hash", set(hashes), ["_hash", "_vector"])
        return vectors_by_hash(batches, self._dimension)

    def vectors_of(self, ids: Collection[str]) -> np.ndarray:
        """The vectors of these chunks, one per row."""
        found = self._having("_id", set(ids), ["_vector"])
        empty = np.empty((0, self._dimension), np.float32)
        vectors = (as_matrix(batch["_vector"].drop_null(), self._dimension) for batch in found)
        return np.concatenate([empty, *vectors])

    def whereabouts(self, ids: Collection[str]) -> dict[str, int]:
        """`_id` → the cell that the chunk is in, for each of these that the index holds."""
        out: dict[str, int] = {}
        for one in self._table.every():
            held = self._table.columns(one, ["_id"])["_id"]
            out |= dict.fromkeys(held.filter(among(held, ids)).to_pylist(), one.cell)
        return out

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for one in self._table.every():
            yield self._read(one, columns)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        names = tuple(columns)
        schema = pa.schema([self.schema().field(c) for c in names])
        parts = tuple(ScanPart(self._table, one, schema) for one in self._table.every())
        # Not counted: that would read every cell.
        return ScanParts(schema, parts, len(parts) * CHUNKS)

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        every = list(self._table.every())
        sizes = [len(self._table.columns(one, ["_id"])["_id"]) for one in every]
        held, start = sum(sizes), 0
        # The same for equal states, so that probes of them decide alike.
        picked = np.sort(random.Random(held).sample(range(held), min(n, held)))
        for one, size in zip(every, sizes, strict=True):
            inside = picked[(picked >= start) & (picked < start + size)] - start
            if len(inside):
                yield self._read(one, columns).take(pa.array(inside.tolist(), pa.int64()))
            start += size

    def search(self, query: Query) -> pa.Table:
        vector = check_query(query, self._dimension)
        where = None if query.where is None else fitted(query.where, self.schema())
        self._asking.recent.append(vector)
        metric = self.about.recipe.metric
        return nearest_rows(
            query.limit,
            None if query.exact else self._effort(where is not None),
            lambda wanted, effort: self.nearest(vector, wanted, where, effort),
            lambda found: first_rows(rank(found, metric, vector), query.limit),
            lambda found, nearest: settled(found, nearest, metric, vector),
        )

    def searching(self) -> Searching:
        retrained = self.probed.retrained if self.probed else None
        how = how_searched(self.coverage, self._asking)
        return replace(how, cells=self.cell_sizes, retrained=retrained)

    def keyword(self, words: Words) -> pa.Table:
        where = None if words.where is None else fitted(words.where, self.schema())
        every = list(self._table.every())
        shown = None if where is None else [self._passing(one, where) for one in every]
        return self._words.search(words, shown, self._take, self._shown_schema)

    def languages(self) -> dict[str, str]:
        return self._languages

    @lazy
    def _languages(self) -> dict[str, str]:
        names = [field.name for field in self.about.recipe.fields]
        # One field: all texts are its own.
        return {n: self._words.language(self._of_field(n) if names[1:] else None) for n in names}

    def _of_field(self, name: str) -> list[np.ndarray]:
        """Which chunks of each slice belong to a text field."""
        where = fitted(Compare("_field", "=", name), self.schema())
        return [self._passing(one, where) for one in self._table.every()]

    def nearest(
        self, vector: np.ndarray, wanted: int, where: Where | None, effort: Effort | None
    ) -> pa.Table:
        """The chunks nearest to a vector, with the columns of a hit and `_vector`."""
        found = []
        for one in self._searched(vector, effort):
            shown = None if where is None else self._passing(one, where)
            if shown is not None and not shown.any():
                # Its vectors are not read.
                continue
            near = closeness_within(self._table, one, self.about.recipe.metric, vector)
            found.append((one, near if shown is None else np.where(shown, near, -np.inf)))
        scores = np.concatenate([near for _, near in found]) if found else np.empty(0)
        best = best_positions(scores, wanted)
        return self._take(
            [one for one, _ in found],
            [len(near) for _, near in found],
            best[np.isfinite(scores[best])],
            [*self._shown, "_vector"],
        )

    def nearness(self, vector: np.ndarray, probes: int) -> np.ndarray:
        """How near the nearest chunks are that a search of this many cells finds."""
        metric = self.about.recipe.metric
        scores = [
            closeness_within(self._table, one, metric, vector)
            for one in self._searched(vector, Effort(probes, 1))
        ]
        return nearest_scores(np.concatenate(scores) if scores else np.empty(0))

    def exactly(self, vectors: np.ndarray) -> list[np.ndarray]:
        """How near the nearest chunks of all are, for each vector. Each slice is read once."""
        best = [np.empty(0, np.float32)] * len(vectors)
        for one in self._table.every():
            near = closeness_within(self._table, one, self.about.recipe.metric, vectors.T)
            best = [
                nearest_scores(np.concatenate([held, column]))
                for held, column in zip(best, near.T, strict=True)
            ]
        return best

    def _searched(self, vector: np.ndarray, effort: Effort | None) -> Iterator[Slice]:
        """The slices to search: those of the nearest cells, or all."""
        slices = self._table.slices
        near = slices if effort is None else self.cells.near(vector, effort.probes).tolist()
        for cell in near:
            yield from slices.get(cell, ())

    def _take(
        self, slices: Sequence[Slice], sizes: Sequence[int], positions: np.ndarray, names: list[str]
    ) -> pa.Table:
        """Rows of several slices, by their positions in all of them."""
        ends = np.cumsum(sizes)
        of = np.searchsorted(ends, positions, side="right")
        batches = []
        for n in dict.fromkeys(of.tolist()):
            inside = positions[of == n] - (ends[n] - sizes[n])
            batches.append(self._read(slices[n], names).take(pa.array(inside.tolist(), pa.int64())))
        schema = pa.schema([self.schema().field(name) for name in names])
        return pa.Table.from_batches(batches, schema)

    def _passing(self, one: Slice, where: Where) -> np.ndarray:
        """Which rows of a slice pass a filter."""
        # A filter without columns still needs as many answers as there are rows.
        names = sorted(columns_of(where)) or ["_chunk"]
        rows = self._read(one, names)
        columns = dict(zip(names, rows.columns, strict=True))
        mask: np.ndarray = np.asarray(passing(where, columns, rows.num_rows))
        return mask

    def _having(
        self, column: str, values: set[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The chunks with one of the values in a column."""
        if not values:
            return
        for one in self._table.every():
            found = among(self._table.columns(one, [column])[column], values)
            if found.true_count:
                yield self._read(one, columns).filter(found)

    def _read(self, one: Slice, names: Sequence[str]) -> pa.RecordBatch:
        return read_slice(self._table, one, pa.schema([self.schema().field(n) for n in names]))

    def _effort(self, filtered: bool) -> Effort | None:
        return choose(self.coverage, self._asking, filtered=filtered)[0]

    def _pages(self, names: Collection[str]) -> dict[str, str]:
        held = {name: self.notes.get(f"{PAGE_ID}{name}") for name in names}
        texts = {name: text for name, text in held.items() if text is not None}
        if lost := set(names) - texts.keys():
            raise StoreError(
                f"{self._table.path} lacks {len(lost)} pages of its checkpoint",
                hint=rebuild(self.about.name),
            )
        return texts

    @property
    def _dimension(self) -> int:
        return self.about.recipe.model.dimension

    @lazy
    def _shown(self) -> list[str]:
        return [c for c in self.schema().names if c not in HIDDEN]

    @property
    def cell_sizes(self) -> CellSizes:
        """How the chunks are spread over the cells."""
        slices = self._table.slices
        return CellSizes.of(
            [
                sum(len(self._read(one, ["_key"])) for one in slices.get(int(cell), ()))
                for cell in self.cells.numbers
            ]
        )

    @lazy
    def coverage(self) -> Coverage:
        """What is known about searching it approximately."""
        cells, chunks = len(self.cells.numbers), self.counts()[1]
        if self.probed is None:
            return Coverage(chunks, cells)
        since = self.changed
        covered = chunks + since.deleted
        decision = replace(self.probed.decision, covered=covered, taken=since.written)
        return Coverage(chunks, cells, decision)

    @lazy
    def changed(self) -> Counted:
        """What changed since the last probe, up to this state."""
        assert self.probed is not None
        since = self.probed.since
        return since.plus(*self._table.changed_since(since.instant), self._table.instant)

    @lazy
    def _words(self) -> SliceWords:
        return SliceWords(self._table, list(self._table.every()), self.word_folder)

    @property
    def word_folder(self) -> str:
        """Where the counted words of this generation are kept, in the folder of the index."""
        return f"words/g{self._generation}"

    @lazy
    def _shown_schema(self) -> pa.Schema:
        return pa.schema([self.schema().field(name) for name in self._shown])


@dataclass(frozen=True)
class ScanPart:
    """Some columns of one slice; can be pickled."""

    table: IndexTable
    slice: Slice
    schema: pa.Schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield read_slice(self.table, self.slice, self.schema)


def read_slice(table: IndexTable, one: Slice, schema: pa.Schema) -> pa.RecordBatch:
    """Columns of a slice with the types of the index."""
    held = table.columns(one, schema.names)
    columns = [_as(held[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(column: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(column.type) and pa.types.is_fixed_size_list(type):
        flat = as_vectors(column, type.list_size)
        mask = column.is_null() if column.null_count else None
        return pa.FixedSizeListArray.from_arrays(
            pa.array(flat.reshape(-1), pa.float32()), type=type, mask=mask
        )
    return column if column.type.equals(type) else column.cast(type)


def _parsed(table: IndexTable, notes: dict[str, str], id: str, parse: Any) -> Any:
    try:
        return parse(notes[id])
    except KeyError as error:
        raise StoreError(
            f"{table.path} is a Hudi table, but not an index: it has no note '{id}'",
            hint="move it away, or choose another store for the index",
        ) from error
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{table.path} has a note '{id}' that this Lakewake cannot read: {error}",
            hint=rebuild(table.name),
        ) from error
