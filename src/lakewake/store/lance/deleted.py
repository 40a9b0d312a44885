"""Vectors that an index held and holds no more: some of them, to ask it about.

Questions about what was deleted are those that an approximate index answers worst. The rows are
still in the files of a dataset until they are rewritten; before that, upkeep takes a few of their
vectors into a small file beside the index, `wines.deleted`. It has a bound and can be removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from lance import LanceDataset, LanceFragment
from lance.file import LanceFileReader

from lakewake.store.location import Location
from lakewake.store.ranking import as_matrix

#: This many are kept; half of them make room for others each time.
KEPT = 64


@dataclass(frozen=True)
class DeletedVectors:
    """The file. What it holds counts only for vectors of the same recipe."""

    location: Location
    name: str

    def read(self, fingerprint: str, dimension: int) -> np.ndarray:
        """What is kept, one vector in each row."""
        head, _, body = (self.location.read(f"{self.name}.deleted") or b"").partition(b"\n")
        try:
            fits = json.loads(head) == {"fingerprint": fingerprint, "dimension": dimension}
            vectors = np.frombuffer(body if fits else b"", "<f4").reshape(-1, dimension)
        except ValueError:
            # Cut off, or not ours: it is only a sample.
            return np.empty((0, dimension), np.float32)
        return vectors.astype(np.float32)[:KEPT]

    def add(self, fingerprint: str, vectors: np.ndarray, rng: np.random.Generator) -> None:
        """Keep these too; where that is too many, some of those before go.

        Raises:
            OSError: the file cannot be written.
        """
        dimension = vectors.shape[1]
        former = self.read(fingerprint, dimension)
        room = max(KEPT - len(vectors), KEPT // 2)
        former = former[rng.permutation(len(former))[:room]]
        kept = np.concatenate([former, vectors[: KEPT - len(former)]])
        head = json.dumps({"fingerprint": fingerprint, "dimension": dimension}).encode()
        body = kept.astype("<f4").tobytes()
        self.location.replace(f"{self.name}.deleted", head + b"\n" + body, lasting=False)


def deleted_vectors(dataset: LanceDataset, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Some of the vectors that were deleted and whose files are still there."""
    dimension = dataset.schema.field("_vector").type.list_size
    thinned = [f for f in dataset.get_fragments() if f.num_deletions]
    weights = np.array([f.num_deletions for f in thinned], np.float64)
    found = [np.empty((0, dimension), np.float32)]
    if len(thinned):
        shares = rng.multinomial(wanted, weights / weights.sum())
        for fragment, share in zip(thinned, shares, strict=True):
            if share:
                found.append(_deleted_of(dataset, fragment, int(share), dimension, rng))
    joined: np.ndarray = np.concatenate(found)
    return joined


def _deleted_of(
    dataset: LanceDataset,
    fragment: LanceFragment,
    wanted: int,
    dimension: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Some of a fragment's: Lance names the live rows, the others are read from its file."""
    living = dataset.scanner(columns=[], with_row_address=True, fragments=[fragment]).to_table()
    offsets = living["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF)
    gone = np.setdiff1d(np.arange(fragment.physical_rows, dtype=np.uint64), offsets)
    picked = np.sort(rng.permutation(gone)[:wanted]).tolist()
    location = f"{dataset.uri.rstrip('/')}/data/{fragment.data_files()[0].path}"
    file = LanceFileReader(location, dataset.latest_storage_options(), columns=["_vector"])
    return as_matrix(file.take_rows(picked).to_table()["_vector"].drop_null(), dimension)
