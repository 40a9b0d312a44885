"""The reference store: an index in this process, behind one lock."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import IndexMissing, StaleFrontier, StoreError
from lakewake.model.as_of import newest_not_newer
from lakewake.model.chunks import Batch, ScanParts
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Searching
from lakewake.model.recipe import Recipe
from lakewake.model.where import Where, leaves
from lakewake.store import Removed
from lakewake.store.filters import fitted, matches
from lakewake.store.hints import dropped, missing
from lakewake.store.ranking import as_matrix, check_query, count_rows, first_rows, rank
from lakewake.store.value import ValueReader
from lakewake.store.words import best_first, languages_of_texts, relevance

SCAN_ROWS = 8192
#: How many former versions are kept, for `as_of`.
KEPT_VERSIONS = 20


@dataclass(frozen=True)
class MemoryReader(ValueReader):
    """One version of an index."""

    number: int
    held: pa.Table

    @property
    def generation(self) -> int:
        return self.number

    def schema(self) -> pa.Schema:
        return self.held.schema

    def counts(self) -> tuple[int, int]:
        return count_rows(self.held.select(["_partition", "_key"])), self.held.num_rows

    def probe(self) -> None:
        """Do nothing: there are no files that could be damaged."""

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        found = self.held.filter(pc.is_in(self.held["_hash"], pa.array(list(hashes), pa.string())))
        matrix = as_matrix(found["_vector"], self.built_by.model.dimension)
        return dict(zip(found["_hash"].to_pylist(), matrix, strict=True))

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.held.select(list(columns)).to_batches(max_chunksize=SCAN_ROWS)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        chosen = self.held.select(list(columns))
        batches = chosen.to_batches(max_chunksize=at_most or SCAN_ROWS)
        return ScanParts(chosen.schema, tuple([b] for b in batches), chosen.num_rows)

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        picked = random.sample(range(self.held.num_rows), min(n, self.held.num_rows))
        yield from self.held.select(list(columns)).take(pa.array(picked, pa.int64())).to_batches()

    def search(self, query: Query) -> pa.Table:
        vector = check_query(query, self.built_by.model.dimension)
        passing = self.held.filter(self._passing(query.where))
        ranked = rank(passing, self.built_by.metric, vector)
        return first_rows(ranked, query.limit)[0]

    def searching(self) -> Searching:
        return Searching(why="it is in memory", recall_mean=1.0, recall_worst_tenth=1.0)

    def keyword(self, words: Words) -> pa.Table:
        # Over all chunks: how rare a word is does not depend on the filter.
        scores = relevance(self.held["_text"].to_pylist(), words.text, words.language)
        passing = self._passing(words.where)
        found = best_first(self.held.filter(passing), scores[passing.to_numpy(False)])
        return first_rows(found, words.limit)[0]

    def languages(self) -> dict[str, str]:
        texts: dict[str, list[str | None]] = {f.name: [] for f in self.built_by.fields}
        columns = (self.held[name].to_pylist() for name in ("_field", "_text"))
        for field, text in zip(*columns, strict=True):
            texts.setdefault(field, []).append(text)
        return languages_of_texts(texts)

    def _passing(self, where: Where | None) -> pa.BooleanArray:
        """Which chunks pass a filter."""
        if where is None:
            return pa.array([True] * self.held.num_rows, pa.bool_())
        where = fitted(where, self.held.schema)
        # No other columns: Python has no value for a date after 9999.
        names = [leaf.column for leaf in leaves(where)]
        values = self.held.select([*dict.fromkeys([*names, "_id"])]).to_pylist()
        return pa.array([matches(where, v) for v in values], pa.bool_())


def check_columns(batch: pa.Schema, index: pa.Schema) -> None:
    """Check that a batch was made for this index.

    Raises:
        StoreError: the columns' names or types differ.
    """
    if not batch.equals(index):
        raise StoreError(
            f"the batch has the columns {_described(batch)}; the index has {_described(index)}",
            hint="the recipe or the table's types changed; sync with --rebuild",
        )


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


@dataclass(frozen=True)
class MemoryStaging:
    """Parts as bytes, which travel with the result of `write`."""

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as out:
            for batch in rows:
                out.write_batch(batch)
        return bytes(sink.getvalue())

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        parts = [pa.ipc.open_stream(part).read_all() for part in written]
        table = pa.concat_tables([schema.empty_table(), *parts])
        return Batch(schema, table.to_reader, removed.deletes)


def _nothing() -> None:
    pass


class MemoryStore:
    """An index that lasts as long as the process.

    `fail_before_commit` and `fail_after_commit` are called before and after every write and may
    raise, so that tests can interrupt a writer before or after its batch has landed.
    """

    def __init__(self) -> None:
        self.fail_before_commit: Callable[[], None] = _nothing
        self.fail_after_commit: Callable[[], None] = _nothing
        self._lock = threading.Lock()
        self._version: MemoryReader | None = None
        self._former: deque[MemoryReader] = deque(maxlen=KEPT_VERSIONS)
        self._dropped = 0

    def generation(self) -> int:
        index = self.open()
        return index.generation if index else self._dropped

    def open(self) -> MemoryReader | None:
        return self._version

    def as_of(self, instant: str) -> MemoryReader:
        newest = self._version
        if newest is None:
            raise missing("in memory")
        kept = [newest, *(v for v in self._former if v.number == newest.number)]
        return newest_not_newer(instant, ((v.absorbed, v) for v in kept), "in memory")

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        chunks = _read(batch)
        self.fail_before_commit()
        with self._lock:
            active = self.generation()
            if active != after and self._version is None:
                raise dropped("in memory")
            if active != after:
                raise StaleFrontier(
                    f"generation {active} is active, but the build began after generation {after}",
                    hint="run the sync again",
                )
            self._replace(MemoryReader(recipe, then, after + 1, chunks))
        self.fail_after_commit()

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[MemoryStaging]:
        yield MemoryStaging()

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        chunks = _read(batch)
        self.fail_before_commit()
        with self._lock:
            self._replace(_after(self._version, chunks, batch.deletes, expect, then))
        self.fail_after_commit()

    def _replace(self, version: MemoryReader) -> None:
        if self._version is not None and version is not self._version:
            self._former.appendleft(self._version)
        self._version = version

    def maintain(self) -> dict[str, int]:
        return {}

    def was_dropped(self) -> bool:
        return self._version is None and self._dropped > 0

    def drop(self, *, dry_run: bool = False) -> Dropped:
        with self._lock:
            index = self._version
            if index and not dry_run:
                # A build that runs has counted on at most the next number.
                self._dropped = index.generation + 1
                self._version = None
                self._former.clear()
        return Dropped(removed=(f"generation {index.generation} in memory",) if index else ())


def _read(batch: Batch) -> pa.Table:
    with batch.rows() as reader:
        return pa.Table.from_batches(list(reader), schema=batch.schema)


def _after(
    version: MemoryReader | None,
    upserts: pa.Table,
    deletes: Collection[str],
    expect: Frontier,
    then: Frontier,
) -> MemoryReader:
    if version is None:
        raise IndexMissing("there is no index to commit to", hint="build it first: `lakewake sync`")
    current = version.absorbed.to_json()
    if current == then.to_json():
        return version
    if current != expect.to_json():
        raise StaleFrontier("another writer moved the frontier first", hint="run the sync again")
    check_columns(upserts.schema, version.schema())
    gone = pa.array([*upserts["_id"].to_pylist(), *deletes], pa.string())
    kept = version.held.filter(pc.invert(pc.is_in(version.held["_id"], gone)))
    return replace(version, absorbed=then, held=pa.concat_tables([kept, upserts]))
