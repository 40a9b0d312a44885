"""What readers share whose version is a value: it lasts as long as it is referenced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from lakewake.model.chunks import StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.store.held import STORED, chunks_by_row, of_rows, with_identity


@dataclass(frozen=True)
class ValueReader(ABC):
    """One version of an index, as a value."""

    built_by: Recipe
    absorbed: Frontier

    @abstractmethod
    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All chunks, only these columns, in bounded batches."""

    @property
    def is_service(self) -> bool:
        return False

    def pinned(self) -> AbstractContextManager[None]:
        """Do nothing: no upkeep can remove a value."""
        return nullcontext()

    def frontier(self) -> Frontier:
        return self.absorbed

    def recipe(self) -> Recipe:
        return self.built_by

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        return chunks_by_row(self.scan(STORED), set(rows))

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return of_rows(self.scan(with_identity(columns)), rows, columns)
