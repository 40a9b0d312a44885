"""One version of an index, limited to the rows that a caller may see.

This is where a right joins a question: nothing that is read through a `LimitedReader` is of another
row, whatever is asked. It fails closed: if the right cannot be applied, there are no rows at all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakewake.errors import FilterError, StoreError
from lakewake.model.chunks import ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.where import NO_ROW, And, Where
from lakewake.store import StoreReader
from lakewake.store.filters import fitted
from lakewake.store.passing import columns_of, passing

_log = logging.getLogger("lakewake.rights")
_ROW = ("_partition", "_key")


class Limit:
    """A right to see the rows of one index that pass a filter, for all its versions.

    Args:
        index: the name of the index, for the log.
        check: raises `FilterError` if a filter uses what the index does not have.
    """

    def __init__(
        self, index: str, where: Where, check: Callable[[Where, pa.Schema], None] | None = None
    ) -> None:
        self.index, self.where, self._check = index, where, check
        self._reported = ""
        self._counting = threading.Lock()
        self._counted: tuple[tuple[int, str], tuple[int, int]] | None = None

    def on(self, schema: pa.Schema) -> Where:
        """The filter for columns like these; one that no row passes if it cannot be applied."""
        try:
            if self._check is not None:
                self._check(self.where, schema)
            fitted(self.where, schema)
        except FilterError as error:
            # Logged once per reason, although every question finds out again.
            if error.fact != self._reported:
                _log.error("index %s: a right cannot be applied: %s", self.index, error.fact)
                self._reported = error.fact
            return NO_ROW
        return self.where

    def counts(self, reader: LimitedReader) -> tuple[int, int]:
        """How many rows and chunks of a version pass, counted once per version."""
        version = reader.generation, reader.frontier().to_json()
        with self._counting:
            if self._counted is None or self._counted[0] != version:
                self._counted = version, reader.count()
            return self._counted[1]


class LimitedReader:
    """What of a version passes a `Limit`. It cannot be read by other machines."""

    def __init__(self, reader: StoreReader, limit: Limit) -> None:
        self._reader, self._limit = reader, limit
        self._where = limit.on(reader.schema())
        self._fit = fitted(self._where, reader.schema())
        self._columns = sorted(columns_of(self._fit))

    @property
    def generation(self) -> int:
        return self._reader.generation

    @property
    def is_service(self) -> bool:
        return self._reader.is_service

    def pinned(self) -> AbstractContextManager[None]:
        return self._reader.pinned()

    def frontier(self) -> Frontier:
        return self._reader.frontier()

    def recipe(self) -> Recipe:
        return self._reader.recipe()

    def schema(self) -> pa.Schema:
        return self._reader.schema()

    def probe(self) -> None:
        self._reader.probe()

    def searching(self) -> Searching:
        return self._reader.searching()

    def languages(self) -> dict[str, str]:
        return self._reader.languages()

    def counts(self) -> tuple[int, int]:
        return self._limit.counts(self)

    def count(self) -> tuple[int, int]:
        """The number of rows and the number of chunks that pass."""
        rows: set[tuple[str, str]] = set()
        chunks = 0
        for batch in self.scan(_ROW):
            rows.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            chunks += batch.num_rows
        return len(rows), chunks

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        passing = {id for batch in self.chunks(rows, ("_id",)) for id in batch["_id"].to_pylist()}
        # A right may look at what differs between the chunks of a row, such as its text field.
        seen = {
            row: tuple(chunk for chunk in chunks if chunk.id in passing)
            for row, chunks in (self._reader.existing(rows) if passing else {}).items()
        }
        return {row: chunks for row, chunks in seen.items() if chunks}

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._seen(lambda names: self._reader.chunks(rows, names), columns)

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        # Equal texts have equal vectors, and only rows that pass have shown their hashes.
        return self._reader.vectors(hashes)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._seen(self._reader.scan, columns)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        raise StoreError(
            "a limited index is not read by other machines",
            hint="search it, or use the index without a limit",
        )

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._seen(lambda names: self._reader.sample(n, names), columns)

    def search(self, query: Query) -> pa.Table:
        return self._reader.search(replace(query, where=self._and(query.where)))

    def keyword(self, words: Words) -> pa.Table:
        return self._reader.keyword(replace(words, where=self._and(words.where)))

    def _and(self, where: Where | None) -> Where:
        return self._where if where is None else And((self._where, where))

    def _seen(
        self, read: Callable[[list[str]], Iterator[pa.RecordBatch]], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """What is read, without the rows that do not pass."""
        names = list(dict.fromkeys([*columns, *self._columns]))
        for batch in read(names):
            values = {name: batch.column(name) for name in self._columns}
            yield batch.filter(passing(self._fit, values, batch.num_rows)).select(list(columns))
