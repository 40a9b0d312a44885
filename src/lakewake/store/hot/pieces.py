"""A version of an index in pieces that never change, so that only new ones need to be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewake.store import Piece, PiecedReader, StoreReader


@dataclass(frozen=True)
class WholePiece:
    """All chunks of a version whose store has no pieces. It has no name: its content is unknown."""

    reader: StoreReader
    name: str = ""

    def live(self) -> np.ndarray:
        return np.arange(self.reader.counts()[1])

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self.reader.scan(columns)


def pieces_of(reader: StoreReader) -> Sequence[Piece]:
    """The pieces of a version."""
    return reader.pieces() if isinstance(reader, PiecedReader) else [WholePiece(reader)]
