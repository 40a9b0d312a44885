"""A sample of the vectors that were deleted from an index, to probe it with.

An approximate index answers questions about deleted vectors worst. Before upkeep removes deleted
chunks, it copies a few of their vectors into a small file beside the index, or a point beside the
frontier. The sample is bounded, and it can be removed at any time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

import numpy as np

#: How many are kept. Once there are as many, half of them make room for new ones each time.
KEPT = 128


class Shelf(Protocol):
    """Where the sample is kept: a folder, or the collection of the frontier."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file whole."""


@dataclass(frozen=True)
class DeletedVectors:
    """The sample. It is valid only for vectors of the same recipe."""

    location: Shelf
    name: str

    def read(self, fingerprint: str, dimension: int) -> np.ndarray:
        """The vectors that are kept, one per row."""
        head, _, body = (self.location.read(f"{self.name}.deleted") or b"").partition(b"\n")
        try:
            fits = json.loads(head) == {"fingerprint": fingerprint, "dimension": dimension}
            vectors = np.frombuffer(body if fits else b"", "<f4").reshape(-1, dimension)
        except ValueError:
            # Truncated, or not ours. It is only a sample: do without.
            return np.empty((0, dimension), np.float32)
        return vectors.astype(np.float32)[:KEPT]

    def add(self, fingerprint: str, vectors: np.ndarray, rng: np.random.Generator) -> None:
        """Add these vectors; drop some of the earlier ones if that is too many.

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
