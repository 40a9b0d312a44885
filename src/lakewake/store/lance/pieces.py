"""The pieces of a version: its fragments. Their rows never change, they are only deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import LanceFragment

from lakewake.store.lance.reader import IS_CHUNK, SCANNED, reading

#: The lower half of Lance's row addresses is the row's number within its fragment.
OFFSET_BITS = 32


@dataclass(frozen=True)
class FragmentPiece:
    """One fragment.

    Attributes:
        name: a hash of the names of its files, which are unique.
        numbers: the numbers of its rows that are chunks of this version.
        index: the name of the index, for messages.
    """

    dataset: LanceDataset
    fragment: LanceFragment
    name: str
    numbers: np.ndarray
    index: str

    def live(self) -> np.ndarray:
        return self.numbers

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading(self.dataset, self.index):
            yield from self.dataset.scanner(
                columns=list(columns), filter=IS_CHUNK, fragments=[self.fragment], **SCANNED
            ).to_batches()


def pieces_of(dataset: LanceDataset, index: str) -> list[FragmentPiece]:
    """The pieces of a version. Only the addresses of its rows are read."""
    with reading(dataset, index):
        found = dataset.scanner(columns=["_checkpoint"], with_row_address=True).to_table()
        fragments = dataset.get_fragments()
    addresses = found["_rowaddr"].to_numpy()[pc.is_null(found["_checkpoint"]).to_numpy()]
    addresses = np.sort(addresses.astype(np.int64))
    pieces = []
    for fragment in fragments:
        first = int(fragment.fragment_id) << OFFSET_BITS
        there = slice(*np.searchsorted(addresses, (first, first + (1 << OFFSET_BITS))))
        numbers = (addresses[there] - first).astype(np.uint32)
        pieces.append(FragmentPiece(dataset, fragment, _name(fragment), numbers, index))
    return [piece for piece in pieces if len(piece.numbers)]


def _name(fragment: LanceFragment) -> str:
    metadata = fragment.metadata
    content = [file.path for file in metadata.files]
    content += [repr(overlay) for overlay in getattr(metadata, "overlays", ())]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
