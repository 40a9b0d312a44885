"""Rows on their way from the table: their identity, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from lakewake.model.reads import NO_READS, Reads


class RowId(NamedTuple):
    """Hudi's own identity of a row: partition path and record key."""

    partition: str
    key: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of the table, reduced to what a recipe uses. All lists have one entry per row.

    Attributes:
        ids: the identities of the rows.
        instants: requested time of the commit that wrote each version.
        source_hashes: equal if what the row's chunks are made from is equal.
        payload_hashes: equal if the payload values are equal.
        texts: text field → rendered text (None or blank: the row has no chunk of that field).
        vectors: the vector column, if the recipe takes vectors from the table (null: no chunk).
        payload: the payload columns.
        appeared: ids that a commit added, perhaps without checking whether the table already holds
            them elsewhere.
        undecodable: ids of rows whose text is not valid Unicode; what cannot be read is marked in
            the text.
    """

    ids: tuple[RowId, ...]
    instants: tuple[str, ...]
    source_hashes: tuple[str, ...]
    payload_hashes: tuple[str, ...]
    texts: Mapping[str, tuple[str | None, ...]]
    payload: pa.RecordBatch
    vectors: pa.Array | None = None
    appeared: frozenset[RowId] = frozenset()
    undecodable: frozenset[RowId] = frozenset()

    def __len__(self) -> int:
        return len(self.ids)


T = TypeVar("T")
#: The work on one part of the rows; it also gets the new path of each file that was sent along.
Work = Callable[[Iterator[RowBatch], Mapping[Path, Path]], T]


class Distributed(Protocol):
    """Does some work on the machines where the rows are, instead of bringing the rows here."""

    def __call__(self, work: Work[T], files: Sequence[Path]) -> list[T]:
        """Do the work once for each part of the rows, and return its results.

        Args:
            work: can be pickled, and so can its result. If a result is lost on the way, the work
                is done again elsewhere, and the lost one does not count.
            files: files and folders that the work needs there; it gets the new path of each.
        """


@dataclass(frozen=True)
class Changes:
    """What a stretch of the timeline (or a whole snapshot) did to the rows of a table.

    Attributes:
        rows: new and changed rows, in batches; can be iterated once.
        deleted: ids of rows that are gone.
        duplicates: ids that the table now holds more than once.
        total: the number of rows to come, if it is known.
        payload: names and types of the payload columns, in case no row comes to show them.
        removed: the instant of the deleted version of a row, if it is known.
        gone: further deleted rows, in groups, each with these instants ('' if unknown). Can be
            iterated once.
        distributed: works on the rows on executors, if there are many rows and a cluster; `rows`
            can be iterated all the same.
        reads: how much of the table was read for them.
    """

    rows: Iterable[RowBatch]
    deleted: tuple[RowId, ...] = ()
    duplicates: AbstractSet[RowId] = frozenset()
    total: int | None = None
    payload: pa.Schema | None = None
    distributed: Distributed | None = None
    removed: Mapping[RowId, str] = field(default_factory=dict)
    gone: Iterable[Mapping[RowId, str]] = ()
    reads: Reads = NO_READS


@dataclass(frozen=True)
class Difference:
    """How an index differs from the table, row by row. Empty when they agree."""

    missing: tuple[RowId, ...] = ()
    orphaned: tuple[RowId, ...] = ()
    stale: tuple[RowId, ...] = ()
    duplicated: tuple[RowId, ...] = ()
