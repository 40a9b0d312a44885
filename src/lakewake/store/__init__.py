"""5 · Where an index lives: one whole batch or nothing.

A store is three small things: one that writes, one that reads, one that keeps house.
`memory.py` is the reference; every store passes the same contract suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import Batch, ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId


class StoreReader(Protocol):
    """One version of an index, pinned: everything it tells is of the same commit.

    The checkpoint row is hidden by every method. A reader can be pickled, and then reads the same
    version wherever the store can be reached.
    """

    @property
    def generation(self) -> int:
        """Which build of the index this is, counted from 1."""

    def pinned(self) -> AbstractContextManager[None]:
        """Keeps upkeep from dropping this version while it is read for long."""

    def frontier(self) -> Frontier:
        """What this version has absorbed."""

    def recipe(self) -> Recipe:
        """What this version was built by."""

    def schema(self) -> pa.Schema:
        """The index's columns, as `model.chunks.index_schema` makes them."""

    def counts(self) -> tuple[int, int]:
        """(rows, chunks) it holds."""

    def probe(self) -> None:
        """Read a little, to find out whether a search could be answered; costs milliseconds.

        What was found sound a moment ago is not read again.

        Raises:
            IndexDamaged: files are missing, or not as they were written.
            StoreUnreachable: the store did not answer.
        """

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        """The chunks of those of the given rows that have any."""

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All chunks of the given rows, only these columns, in bounded batches of any order."""

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Text hash → a vector of that text, for those it holds anywhere."""

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All chunks, only these columns, in bounded batches."""

    def scan_parts(self, columns: Sequence[str]) -> ScanParts:
        """The same, in pieces that can be read on several machines."""

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Up to `n` chunks, picked at random, only these columns."""

    def search(self, query: Query) -> pa.Table:
        """The nearest chunks: what a hit shows of them, plus `_similarity`.

        Not `_vector`, `_checkpoint`, `_source_hash`, `_payload_hash` and `_instant`. Best first; of
        equally near ones an exact search takes those with the smallest `_id`. `_similarity` is the
        cosine in [-1, 1]. At least `query.limit` distinct rows where the filter leaves that many.

        Raises:
            FilterError: the filter names a column that the index does not hold.
        """

    def searching(self) -> Searching:
        """How `search` compares vectors, and what share of the nearest that was found to find."""

    def keyword(self, words: Words) -> pa.Table:
        """The chunks with any of the words, in any case, as `search` shows them; best first.

        `_relevance` in place of `_similarity`: as `store.words` has it, by all the chunks that this
        version holds. Of equal ones the smallest `_id` comes first.

        Raises:
            FilterError: the filter names a column that the index does not hold.
        """


class Removed(NamedTuple):
    """`_id`s that a staged batch takes out: those that go, and those that it has anew."""

    deletes: Collection[str] = ()
    replaced: tuple[str, ...] = ()


class Staging(Protocol):
    """Where several machines write the parts of one batch. Nobody sees them until it is committed.

    Can be pickled, to write from wherever the store can be reached.
    """

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks, and tell what a batch has to know of it.

        Raises:
            StoreError: they cannot be written, or not to where the store lies.
        """

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        """The batch of just these parts: others, of machines that failed, are left out."""


class StoreWriter(Protocol):
    """The only thing that moves a frontier."""

    def generation(self) -> int:
        """The number of the active generation, without reading it; 0 when there is none."""

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        """Write generation `after + 1` whole, then make it the active one. `after` is 0 at first.

        Raises:
            StaleFrontier: another builder made that generation; its index stands, nothing of ours.
        """

    def staging(self, after: int | None = None) -> AbstractContextManager[Staging]:
        """A place for the parts of a batch, until the context ends.

        `after` is given where the batch is for `create`.
        """

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        The same batch twice changes nothing. `then` has a token that no other writer's has: an
        index that stands there has this batch.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`; nothing landed.
            OutcomeUnknown: it may have landed; call again with the same batch.
        """


class StoreKeeper(Protocol):
    """Upkeep that never changes what an index says."""

    def maintain(self) -> dict[str, int]:
        """Compact, refresh indexes, drop old versions and generations; says what it did."""


class Store(StoreWriter, StoreKeeper, Protocol):
    """A place for one index."""

    def open(self) -> StoreReader | None:
        """The newest version of the active generation, or None when there is no index yet.

        Raises:
            StoreError: something else lies there, or it cannot be read.
        """
