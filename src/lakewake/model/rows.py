"""Rows on their way from the table: what is read of them, and their identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa


class RowId(NamedTuple):
    """Hudi's own identity of a row: partition path and record key."""

    partition: str
    key: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of the table, cut down to what a recipe uses. All lists have one entry a row.

    Attributes:
        ids: who the rows are.
        instants: requested time of the commit that wrote each version.
        source_hashes: equal where what the row's chunks are made from is equal.
        payload_hashes: equal where the payload values are equal.
        texts: text field → rendered text (None or blank: the row has no chunk of that field).
        vectors: the vector column, when the recipe takes vectors from the table (null: no chunk).
        payload: the payload columns.
        appeared: ids that a commit added, which may not have looked whether the table already
            holds them elsewhere.
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
#: What is done with one part of the rows, given where the files lie that were sent along.
Work = Callable[[Iterator[RowBatch], Mapping[Path, Path]], T]


class Distributed(Protocol):
    """Does some work on the machines where the rows are, instead of bringing the rows here."""

    def __call__(self, work: Work[T], files: Sequence[Path]) -> list[T]:
        """Do it once for each part of the rows; what it returned for each.

        Args:
            work: can be pickled, and so can what it returns. What a machine did that was lost on
                the way is done again elsewhere, and does not count.
            files: files and folders that it needs there; it is told where each has come to lie.
        """


@dataclass(frozen=True)
class Changes:
    """What a stretch of history (or a whole snapshot) did to the rows of a table.

    Attributes:
        rows: new and changed rows, in batches; can be walked once.
        deleted: ids of rows that are gone.
        duplicates: ids of which the table now holds more than one version.
        total: how many rows will come, where that is known.
        payload: names and types of the payload columns, where no row may come to tell them.
        removed: of deleted rows, the instant of the version that went, where it was seen to go.
        gone: further rows that are gone, where they are many: in lots, each with the same instants
            ('' where it was not seen to go); can be walked once.
        spread: works on the rows elsewhere, where they are many and there are machines for it; then
            `rows` can be walked all the same.
    """

    rows: Iterable[RowBatch]
    deleted: tuple[RowId, ...] = ()
    duplicates: AbstractSet[RowId] = frozenset()
    total: int | None = None
    payload: pa.Schema | None = None
    distributed: Distributed | None = None
    removed: Mapping[RowId, str] = field(default_factory=dict)
    gone: Iterable[Mapping[RowId, str]] = ()


@dataclass(frozen=True)
class Difference:
    """How an index differs from the table, row by row. Empty when they agree."""

    missing: tuple[RowId, ...] = ()
    orphaned: tuple[RowId, ...] = ()
    stale: tuple[RowId, ...] = ()
    duplicated: tuple[RowId, ...] = ()
