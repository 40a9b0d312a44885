"""Reading one pinned version of an index in Qdrant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from qdrant_client import models
from qdrant_client.models import Filter

from lakewake.errors import StoreError
from lakewake.lazy import lazy
from lakewake.model.chunks import ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Effort, Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.where import Where, leaves
from lakewake.store.filters import fitted
from lakewake.store.held import STORED, chunks_by_row, of_rows, vectors_by_hash, with_identity
from lakewake.store.passing import columns_of, passing
from lakewake.store.qdrant.fence import Fence, Head
from lakewake.store.qdrant.filters import among, every, exactly, to_filter, valid_at
from lakewake.store.qdrant.points import Points
from lakewake.store.qdrant.recall import Coverage, coverage_of
from lakewake.store.qdrant.rows import Decoder
from lakewake.store.ranking import (
    HIDDEN,
    SPARE,
    check_query,
    count_rows,
    first_rows,
    nearest_rows,
    rank,
    settled,
)
from lakewake.store.recall import Asking, choose, how_searched
from lakewake.store.words import best_first, languages_of_texts, relevance

#: How many searches are sent in one call: their answers hold vectors and texts.
AT_ONCE = 16
#: How many values are looked up in one call.
LIST_LENGTH = 1_000
#: In how many scan parts, each a range of point ids, an index is read; and from how many chunks.
SCAN_PARTS, SCAN_PARTS_FROM = 16, 10_000
_IDENTITY = ["_partition", "_key"]


@dataclass(frozen=True)
class QdrantReader:
    """One version of one generation; can be pickled."""

    fence: Fence
    head: Head
    asking: Asking = field(default_factory=Asking, compare=False)

    @property
    def generation(self) -> int:
        return self.head.generation

    @property
    def is_service(self) -> bool:
        return self._points.location.reached_by_all

    def frontier(self) -> Frontier:
        return self._frontier

    @lazy
    def _frontier(self) -> Frontier:
        return Frontier.from_json(self.head.checkpoint, self.fence.read_pages)

    def recipe(self) -> Recipe:
        return self.head.recipe

    def schema(self) -> pa.Schema:
        return self.head.schema

    def pinned(self) -> AbstractContextManager[None]:
        return self.fence.pin(self.head)

    def counts(self) -> tuple[int, int]:
        return self._counts

    @lazy
    def _counts(self) -> tuple[int, int]:
        if len(self.recipe().fields) > 1:
            identities = pa.Table.from_batches(
                list(self.scan(_IDENTITY)), Decoder(self.schema(), _IDENTITY).schema
            )
            return count_rows(identities), identities.num_rows
        # Count first chunks, one per row: holds nothing the size of the index in memory.
        first = every(self._valid, exactly("_chunk", 0))
        rows, chunks = (self._points.count(self.head.collection, f) for f in (first, self._valid))
        self._check_kept()
        return rows, chunks

    def probe(self) -> None:
        """Ask for one chunk, as a search does: a Qdrant that answers has all its points."""
        self.search(Query(np.ones(self.recipe().model.dimension, np.float32), 1))

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        wanted = set(rows)
        return chunks_by_row(self._having("_key", {r.key for r in wanted}, STORED), wanted)

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        keys = {row.key for row in rows}
        return of_rows(self._having("_key", keys, with_identity(columns)), rows, columns)

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        batches = self._having("_hash", set(hashes), ["_hash", "_vector"])
        return vectors_by_hash(batches, self.recipe().model.dimension)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._read(self._valid, columns)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        """The same chunks in ranges of point ids; read now if only this process can read them."""
        schema = Decoder(self.schema(), columns).schema
        if not self._points.location.reached_by_all:
            return ScanParts(schema, tuple([batch] for batch in self.scan(columns)))
        number = SCAN_PARTS if self.counts()[1] > SCAN_PARTS_FROM else 1
        return ScanParts(
            schema, tuple(ScanPart(self, tuple(columns), n, number) for n in range(number))
        )

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.schema(), columns)
        random = models.SampleQuery(sample=models.Sample.RANDOM)
        found = self._points.nearest(
            self.head.collection, random, self._valid, n, decoder.fields, vectors=decoder.vectors
        )
        self._check_kept()
        if found:
            yield decoder.batch(found)

    def search(self, query: Query) -> pa.Table:
        return self._search(query, [])

    def search_many(self, queries: Sequence[Query]) -> list[pa.Table]:
        """What `search` finds for each query, with few calls."""
        out: list[pa.Table] = []
        for start in range(0, len(queries), AT_ONCE):
            some = queries[start : start + AT_ONCE]
            firsts = (
                self._first_found(some) if self.recipe().metric == "cosine" else [[]] * len(some)
            )
            out += [self._search(q, first) for q, first in zip(some, firsts, strict=True)]
        return out

    def _first_found(self, queries: Sequence[Query]) -> list[list[pa.Table]]:
        """What the first try of each query finds, by one call."""
        requests, decoders = [], []
        for query in queries:
            vector = check_query(query, self.recipe().model.dimension)
            where = None if query.where is None else fitted(query.where, self.schema())
            effort = None if query.exact else self._effort(where is not None)
            limit = query.limit + SPARE * (effort is None)
            decoders.append(Decoder(self.schema(), self._shown(where)))
            asked = self._asking_for(vector, limit, effort)
            requests.append(
                self._points.request(where=self._asked(where), fields=decoders[-1].fields, **asked)
            )
        found = self._points.nearest_many(self.head.collection, requests)
        self._check_kept()
        pairs = zip(decoders, found, strict=True)
        return [[pa.Table.from_batches([decoder.batch(points)])] for decoder, points in pairs]

    def _search(self, query: Query, first: list[pa.Table]) -> pa.Table:
        """Search; `first` is what the first try finds, if that is known."""
        vector = check_query(query, self.recipe().model.dimension)
        where = None if query.where is None else fitted(query.where, self.schema())
        decoder = Decoder(self.schema(), self._shown(where))
        if self.recipe().metric != "cosine":
            return self._search_all(query, vector, where, decoder)
        self.asking.recent.append(vector)
        return nearest_rows(
            query.limit,
            None if query.exact else self._effort(where is not None),
            lambda wanted, effort: (
                first.pop() if first else self._nearest(vector, wanted, where, decoder, effort)
            ),
            lambda found: self._ranked(found, vector, where, query.limit),
            lambda found, nearest: settled(_with_vectors(found), nearest, "cosine", vector),
        )

    def searching(self) -> Searching:
        return how_searched(self._coverage, self.asking)

    def _effort(self, filtered: bool) -> Effort | None:
        """How thorough a vector search has to be; None means exact."""
        return choose(self._coverage, self.asking, filtered=filtered)[0]

    @lazy
    def _coverage(self) -> Coverage:
        return coverage_of(self._points, self.head, self.asking)

    def keyword(self, words: Words) -> pa.Table:
        """The chunks that contain any of the words. Reads all texts of the index."""
        where = None if words.where is None else fitted(words.where, self.schema())
        columns = [name for name in self._shown(where) if name != "_vector"]
        batches = list(self._read(self._valid, columns))
        found = pa.Table.from_batches(batches, Decoder(self.schema(), columns).schema)
        # Over all chunks: how rare a word is does not depend on the filter.
        scores = relevance(found["_text"].to_pylist(), words.text, words.language)
        keep = np.flatnonzero(scores)
        keep = keep[_passes(found.take(pa.array(keep)), where)]
        return first_rows(best_first(found.take(pa.array(keep)), scores[keep]), words.limit)[0]

    def languages(self) -> dict[str, str]:
        return self._languages

    @lazy
    def _languages(self) -> dict[str, str]:
        texts: dict[str, list[str | None]] = {f.name: [] for f in self.recipe().fields}
        for batch in self._read(self._valid, ["_field", "_text"]):
            columns = (batch[name].to_pylist() for name in ("_field", "_text"))
            for name, text in zip(*columns, strict=True):
                texts.setdefault(name, []).append(text)
        return languages_of_texts(texts)

    @property
    def _points(self) -> Points:
        return self.fence.points

    @property
    def _valid(self) -> Filter:
        return valid_at(self.head.version)

    def _shown(self, where: Where | None) -> list[str]:
        asked = {leaf.column for leaf in leaves(where)} if where else set()
        kept = {"_vector"} | asked
        return [n for n in self.schema().names if n not in HIDDEN or n in kept]

    def _nearest(
        self,
        vector: np.ndarray,
        limit: int,
        where: Where | None,
        decoder: Decoder,
        effort: Effort | None,
    ) -> pa.Table:
        """The `limit` nearest chunks by cosine, as Qdrant finds them."""
        asked = self._asking_for(vector, limit, effort)
        found = self._points.nearest(
            self.head.collection, where=self._asked(where), fields=decoder.fields, **asked
        )
        self._check_kept()
        return pa.Table.from_batches([decoder.batch(found)])

    def _asking_for(self, vector: np.ndarray, limit: int, effort: Effort | None) -> dict[str, Any]:
        """What a request for the nearest chunks says, besides its filter."""
        length = float(np.linalg.norm(vector.astype(np.float64)))
        return {
            "query": (vector.astype(np.float64) / (length or 1.0)).tolist(),
            "limit": limit,
            "exact": effort is None,
            # At least `limit`: Qdrant keeps no more candidates than this.
            "ef": max(effort.probes, limit) if effort else None,
        }

    def _search_all(
        self, query: Query, vector: np.ndarray, where: Where | None, decoder: Decoder
    ) -> pa.Table:
        """Search by a metric other than the collection's: compare every chunk that passes."""
        batches = list(self._read(self._asked(where), decoder.schema.names))
        found = pa.Table.from_batches(batches, decoder.schema)
        return self._ranked(found, vector, where, query.limit)[0]

    def _ranked(
        self, found: pa.Table, vector: np.ndarray, where: Where | None, limit: int
    ) -> tuple[pa.Table, int]:
        """The chunks that pass the filter itself, best first, up to `limit` rows; how many rows."""
        keep = _passing(_with_vectors(found), where)
        return first_rows(rank(keep, self.recipe().metric, vector), limit)

    def _asked(self, where: Where | None) -> Filter:
        """As much of the filter as Qdrant can express, on the chunks of this version."""
        return every(self._valid, *([to_filter(where, self.schema())] if where else []))

    def _having(
        self, column: str, values: set[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The chunks with one of the values in a column."""
        listed = sorted(values)
        for start in range(0, len(listed), LIST_LENGTH):
            some = among(column, listed[start : start + LIST_LENGTH])
            yield from self._read(every(self._valid, some), columns)

    def _read(self, where: Filter, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.read_from(None, None, where, columns)

    def read_from(
        self, start: str | None, end: str | None, where: Filter | None, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The chunks whose point ids are in a range."""
        decoder = Decoder(self.schema(), columns)
        pages = self._points.pages(
            self.head.collection,
            where or self._valid,
            decoder.fields,
            vectors=decoder.vectors,
            start=start,
        )
        for page in pages:
            inside = [p for p in page if end is None or str(p.id) < end]
            self._check_kept()
            if inside:
                yield decoder.batch(inside)
            if len(inside) < len(page):
                return

    def _check_kept(self) -> None:
        """Raise if upkeep may have removed some of what was just read.

        Raises:
            StoreError: this version is too old.
        """
        if not self.fence.holds(self.head):
            raise StoreError(
                f"version {self.head.version} of index '{self.fence.name}' is no longer kept",
                hint="open the index again; its newest version is always kept",
            )


@dataclass(frozen=True)
class ScanPart:
    """Some columns of the chunks in one of several equal ranges of point ids; can be pickled."""

    reader: QdrantReader
    columns: tuple[str, ...]
    number: int
    of: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        start, end = (_bound(n, self.of) for n in (self.number, self.number + 1))
        return self.reader.read_from(start, end, None, self.columns)


def _with_vectors(chunks: pa.Table) -> pa.Table:
    return chunks.filter(pc.is_valid(chunks["_vector"]))


def _passing(chunks: pa.Table, where: Where | None) -> pa.Table:
    """The chunks that pass the filter itself: the filter given to Qdrant may let through more."""
    return chunks if where is None else chunks.filter(pa.array(_passes(chunks, where), pa.bool_()))


def _passes(chunks: pa.Table, where: Where | None) -> np.ndarray:
    """Which chunks pass the filter itself."""
    if where is None:
        return np.ones(chunks.num_rows, bool)
    columns = {name: chunks[name].combine_chunks() for name in columns_of(where)}
    return np.asarray(passing(where, columns, chunks.num_rows))


def _bound(n: int, of: int) -> str | None:
    """The smallest point id of a range; None at the beginning and end of all ranges."""
    return None if n in (0, of) else str(UUID(int=n * 2**128 // of))
