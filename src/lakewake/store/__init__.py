"""5 · Where an index lives. A batch is written whole or not at all.

A store has three small interfaces: one writes, one reads, one does upkeep.
`memory.py` is the reference; every store passes the same contract suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import Batch, ScanParts, StoredChunk
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query, Words
from lakewake.model.recall import Retrained, Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId


class StoreReader(Protocol):
    """One version of an index, pinned: everything it returns is from the same commit.

    No method shows the checkpoint row. A reader can be pickled, and reads the same version
    wherever the store can be reached.
    """

    @property
    def generation(self) -> int:
        """The number of this build of the index, counted from 1."""

    @property
    def is_service(self) -> bool:
        """Whether a service, which every machine can reach, answers its searches."""

    def pinned(self) -> AbstractContextManager[None]:
        """Keep upkeep from dropping this version during a long read."""

    def frontier(self) -> Frontier:
        """What this version has absorbed."""

    def recipe(self) -> Recipe:
        """The recipe that this version was built with."""

    def schema(self) -> pa.Schema:
        """The columns of the index, as `model.chunks.index_schema` defines them."""

    def counts(self) -> tuple[int, int]:
        """The number of rows and the number of chunks."""

    def probe(self) -> None:
        """Check that a search could be answered, by reading a little; takes milliseconds.

        Data that was sound a moment ago is not read again.

        Raises:
            IndexDamaged: files are missing, or differ from what was written.
            StoreUnreachable: the store did not answer.
        """

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        """The chunks of each given row; rows without chunks are left out."""

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All chunks of the given rows, only these columns, in bounded batches in any order."""

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Text hash → a vector of that text, for each hash that the index holds."""

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All chunks, only these columns, in bounded batches."""

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        """The same chunks, in parts that several machines can read.

        Args:
            at_most: how many chunks a part may have, if the store can divide its parts.
        """

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Up to `n` chunks, picked at random, only these columns."""

    def search(self, query: Query) -> pa.Table:
        """The nearest chunks, best first: the columns that a hit shows, plus `_similarity`.

        Leaves out `_vector`, `_checkpoint`, `_source_hash`, `_payload_hash` and `_instant`. Among
        equally near chunks an exact search prefers the smallest `_id`. `_similarity` is the cosine
        in [-1, 1]. If the metric of the recipe is another, `_score` is the dot product (`dot`) or
        the negative Euclidean distance (`l2`). Returns at least `query.limit` distinct rows if the
        filter leaves that many.

        Raises:
            FilterError: the filter names a column that the index does not hold.
        """

    def searching(self) -> Searching:
        """How `search` compares vectors, and the recall that was measured."""

    def keyword(self, words: Words) -> pa.Table:
        """The chunks that contain any of the words and all of the phrases; best first.

        Has the columns of `search`, with `_relevance` in place of `_similarity`. The relevance is
        that of `store.words`, over all chunks of this version. Ties are ordered by `_id`.

        Raises:
            FilterError: the filter names a column that the index does not hold.
        """

    def languages(self) -> dict[str, str]:
        """The language of each text field of the recipe, as `store.words` recognises it.

        Depends only on the texts that this version holds, not on a filter or on what it held.
        """


class Piece(Protocol):
    """Chunks of an index that were written together, and are never changed, only deleted."""

    @property
    def name(self) -> str:
        """Equal only for the same chunks, in whichever version; '' if that is not known."""

    def live(self) -> np.ndarray:
        """The numbers of those chunks that this version holds, ascending."""

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those chunks in that order, only these columns, in bounded batches."""


@runtime_checkable
class PiecedReader(Protocol):
    """A version of an index whose chunks are in pieces."""

    def pieces(self) -> Sequence[Piece]:
        """All of them."""


class BatchReader(StoreReader, Protocol):
    """A version of an index in a service, which answers several searches by one request."""

    def search_many(self, queries: Sequence[Query]) -> list[pa.Table]:
        """What `search` returns for each query."""


class Removed(NamedTuple):
    """`_id`s that a staged batch removes.

    Attributes:
        deletes: removed for good.
        replaced: removed because the batch carries new versions of them.
    """

    deletes: Collection[str] = ()
    replaced: tuple[str, ...] = ()


class Staging(Protocol):
    """Where several machines write the parts of one batch, unseen until it is committed.

    Can be pickled, and writes from wherever the store can be reached.
    """

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks, and return what `batch` needs to find them.

        Raises:
            StoreError: they cannot be written, or would not end up in the store.
        """

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        """The batch of exactly these parts; those of machines that failed are left out."""


class StoreWriter(Protocol):
    """The only thing that moves a frontier."""

    def generation(self) -> int:
        """The number of the active generation, without reading it; 0 if there was none.

        After a drop it is a number that no dropped generation has, for the next build to follow.
        """

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        """Write the whole of generation `after + 1`, then make it active.

        `after` is 0 for the first build.

        Raises:
            StaleFrontier: another builder made that generation; theirs stays, nothing of ours does.
            IndexDropped: the index was dropped since `after` was read; nothing of ours stays.
        """

    def staging(self, after: int | None = None) -> AbstractContextManager[Staging]:
        """Provide a staging for the parts of a batch, until the context ends.

        Pass `after` if the batch is for `create`.
        """

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Committing the same batch twice changes nothing. `then` carries a token that no other
        writer's frontier has: an index at this frontier holds this batch.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`; nothing landed.
            OutcomeUnknown: it may have landed; call again with the same batch.
        """


class StoreKeeper(Protocol):
    """Upkeep, which never changes an answer."""

    def maintain(self) -> dict[str, int]:
        """Compact, refresh indexes, drop old versions and generations; return what was done."""


class StoreDropper(Protocol):
    """Removes an index for good."""

    def drop(self, *, dry_run: bool = False) -> Dropped:
        """Remove all that the store holds of the index, readable or not, and nothing else.

        A sync that runs at the same time does not bring any of it back. If this is interrupted,
        call it again. With `dry_run`, only return what it would remove.

        Raises:
            StoreError: some of it is left; the message names it.
        """

    def was_dropped(self) -> bool:
        """Whether there is no index because it was dropped, and not because its files were lost."""


@runtime_checkable
class Retrainable(Protocol):
    """A store whose approximate index can be trained again on request."""

    def retrain(self) -> Retrained:
        """Train it again beside the one in use, and switch if the new one is not worse.

        Raises:
            IndexMissing: there is no index yet.
            OutcomeUnknown: the new one may or may not be in use.
        """


class Store(StoreWriter, StoreKeeper, StoreDropper, Protocol):
    """Where one index is stored."""

    def open(self) -> StoreReader | None:
        """The newest version of the active generation, or None if there is no index yet.

        Raises:
            StoreError: something else is there, or the index cannot be read.
        """

    def as_of(self, instant: str) -> StoreReader:
        """The newest version that is still kept and holds no table commit after `instant`.

        Raises:
            ConfigError: no such version is kept; the message names the range. Or this store keeps
                no earlier versions.
            IndexMissing: there is no index yet.
        """
