"""A version of an index with the hot tier in front: searches by vector are answered from memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewake.lazy import lazy
from lakewake.model.chunks import ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.where import And, Like, Not, Or, Where
from lakewake.store import StoreReader
from lakewake.store.filters import fitted
from lakewake.store.hot.held import Held
from lakewake.store.hot.rows import shown_schema
from lakewake.store.ranking import check_query


class HotReader:
    """One version of an index: what `held` cannot answer, the store's own reader does.

    An exact search is one of the store, so that there is always an answer to compare with.
    """

    def __init__(self, reader: StoreReader, held: Held) -> None:
        self._reader, self._held = reader, held

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has another memory.
        return _itself, (self._reader,)

    @property
    def held(self) -> Held:
        """What is in memory."""
        return self._held

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
        return self._schema

    @lazy
    def _schema(self) -> pa.Schema:
        return self._reader.schema()

    @lazy
    def _shown(self) -> pa.Schema:
        return shown_schema(self._schema)

    def counts(self) -> tuple[int, int]:
        return self._reader.counts()

    def probe(self) -> None:
        self._reader.probe()

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        return self._reader.existing(rows)

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.chunks(rows, columns)

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        return self._reader.vectors(hashes)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.scan(columns)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        return self._reader.scan_parts(columns, at_most)

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.sample(n, columns)

    def languages(self) -> dict[str, str]:
        return self._reader.languages()

    def keyword(self, words: Words) -> pa.Table:
        return self._reader.keyword(words)

    def searching(self) -> Searching:
        """How it is searched: approximately, if there are cells."""
        base, theirs = self._held.base, self._reader.searching()
        if base.probed is None:
            why = f"each vector is compared, in memory: {base.why}"
            kept = replace(theirs, mode="exact", why=why, probes=0, partitions=0)
            return replace(kept, recall_mean=1.0, recall_worst_tenth=1.0)
        return replace(
            theirs,
            mode="approximate",
            why="in memory; a probe reached the promised recall",
            probes=base.probed.effort.probes,
            partitions=len(base.cells or ()),
            recall_mean=base.probed.mean,
            recall_worst_tenth=base.probed.worst_tenth,
            kinds=dict(base.probed.kinds),
        )

    def search(self, query: Query) -> pa.Table:
        vector = check_query(query, self._held.base.rows.vectors.shape[1])
        where = None if query.where is None else fitted(query.where, self._schema)
        if query.exact or not self._can_filter(where):
            return self._reader.search(query)
        wanted = query.limit
        while True:
            found = self._held.nearest(vector, wanted, where)
            positions, near, rows = self._first(found.positions, found.near, query.limit)
            # Beyond `wanted`, others may be as near as those that were found.
            if (rows == query.limit and len(near) <= wanted) or found.exhausted:
                return self._table(positions, near, vector)
            wanted *= 4

    def _can_filter(self, where: Where | None) -> bool:
        """Whether a filter can be applied to the columns in memory. A pattern takes too long."""
        return where is None or (self._held.can_filter(where) and not _has_pattern(where))

    def _first(
        self, positions: np.ndarray, near: np.ndarray, limit: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The shortest prefix with `limit` distinct rows, and how many rows it has.

        Equally near chunks are ordered by their ids.
        """
        if self._one_chunk_per_row:
            # All that tie with the last one belong to the choice among equals.
            last = near[limit - 1] if len(near) >= limit else -np.inf
            positions, near = positions[near >= last], near[near >= last]
        if len(near) > 1 and (near[1:] == near[:-1]).any():
            ids = self._held.columns(positions, ["_id"])["_id"].to_numpy(zero_copy_only=False)
            order = np.lexsort((ids, -near))
            positions, near = positions[order], near[order]
        if self._one_chunk_per_row:
            return positions[:limit], near[:limit], min(limit, len(positions))
        identity = self._held.columns(positions, ["_partition", "_key"])
        seen: set[tuple[str, str]] = set()
        for n, row in enumerate(zip(*(c.to_pylist() for c in identity.columns), strict=True), 1):
            seen.add(row)
            if len(seen) == limit:
                return positions[:n], near[:n], limit
        return positions, near, len(seen)

    @lazy
    def _one_chunk_per_row(self) -> bool:
        held = self._held
        one_text = len(self.recipe().fields) <= 1
        return one_text and held.base.rows.are_first and held.since.are_first

    def _table(self, positions: np.ndarray, near: np.ndarray, vector: np.ndarray) -> pa.Table:
        metric = self._held.base.metric
        shown = self._held.columns(positions).cast(self._shown)
        is_cosine = metric == "cosine"
        similarity = near if is_cosine else self._held.similarity(positions, vector)
        columns, names = [*shown.columns, pa.array(similarity)], [*self._shown.names, "_similarity"]
        if not is_cosine:
            # The distance itself, not its square; negative, so that more is nearer.
            columns.append(pa.array(near if metric == "dot" else -np.sqrt(-near)))
            names.append("_score")
        return pa.table(columns, names)


def _itself(reader: StoreReader) -> StoreReader:
    return reader


def _has_pattern(where: Where) -> bool:
    if isinstance(where, And | Or):
        return any(map(_has_pattern, where.parts))
    return _has_pattern(where.inner) if isinstance(where, Not) else isinstance(where, Like)
