"""A table's own vectors, searched as if they were an index: exactly, by reading all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import ConfigError
from lakewake.model.chunks import ScanParts
from lakewake.model.query import Query, Words
from lakewake.model.recall import Searching
from lakewake.model.where import Where
from lakewake.store.filters import fitted
from lakewake.store.held import vectors_by_hash
from lakewake.store.passing import columns_of, passing
from lakewake.store.ranking import (
    as_matrix,
    best_positions,
    check_query,
    closeness,
    count_rows,
    first_rows,
    rank,
)
from lakewake.store.value import ValueReader


@dataclass(frozen=True)
class ScanReader(ValueReader):
    """The rows of a table as one version of an index. Every method reads the whole table.

    Attributes:
        read: the chunks, with the columns of `columns`; called for each read.
    """

    columns: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    @property
    def generation(self) -> int:
        return 0

    def schema(self) -> pa.Schema:
        return self.columns.remove_metadata()

    def counts(self) -> tuple[int, int]:
        found = pa.Table.from_batches(
            self.scan(["_partition", "_key"]),
            pa.schema([self.columns.field(c) for c in ("_partition", "_key")]),
        )
        return count_rows(found), found.num_rows

    def probe(self) -> None:
        """Do nothing: each search reads all of it."""

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        wanted = pa.array(list(hashes), pa.string())
        found = (b.filter(pc.is_in(b["_hash"], wanted)) for b in self.scan(["_hash", "_vector"]))
        return vectors_by_hash(found, self.built_by.model.dimension)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.read():
            yield batch.select(list(columns))

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        schema = pa.schema([self.columns.field(c) for c in columns])
        return ScanParts(schema, (list(self.scan(columns)),))

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in self.scan(columns) for row in batch.to_pylist())
        schema = pa.schema([self.columns.field(c) for c in columns])
        yield pa.RecordBatch.from_pylist(list(islice(rows, n)), schema)

    def search(self, query: Query) -> pa.Table:
        vector = check_query(query, self.built_by.model.dimension)
        where = None if query.where is None else fitted(query.where, self.schema())
        metric = self.built_by.metric
        found = self.columns.empty_table()
        for batch in self.read():
            rows = pa.Table.from_batches([batch if where is None else _filtered(batch, where)])
            # Each row has one vector, so the nearest so far are enough.
            found = _nearest(pa.concat_tables([found, rows]), metric, vector, query.limit)
        return first_rows(rank(found, metric, vector), query.limit)[0]

    def searching(self) -> Searching:
        return Searching(why="the table is scanned", recall_mean=1.0, recall_worst_tenth=1.0)

    def keyword(self, words: Words) -> pa.Table:
        raise ConfigError(
            "a scan of the table has no words to search for", hint="search with mode vector"
        )

    def languages(self) -> dict[str, str]:
        return {}


def _filtered(batch: pa.RecordBatch, where: Where) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in columns_of(where)}
    return batch.filter(passing(where, columns, batch.num_rows))


def _nearest(rows: pa.Table, metric: str, vector: np.ndarray, wanted: int) -> pa.Table:
    """The nearest rows, and all that are as near as the last of them."""
    near = closeness(metric, as_matrix(rows["_vector"], len(vector)), vector)
    best = best_positions(np.nan_to_num(near, nan=-np.inf), wanted)
    return rows.take(pa.array(best.tolist(), pa.int64())).combine_chunks()
