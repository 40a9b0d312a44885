"""Vectors that an index held and holds no more: some of them, to ask it about.

Questions about what was deleted are those that an approximate index answers worst. Before upkeep
removes what was deleted it takes a few of the vectors into a small file beside the index, or a
point beside the frontier. It has a bound and can be removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

import numpy as np

#: This many are kept; half of them make room for others each time.
KEPT = 64


class Shelf(Protocol):
    """Where it lies: a folder, or the collection of the frontier."""

    def read(self, name: str) -> bytes | None:
        """Its content; None when it is not there."""

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write it whole."""


@dataclass(frozen=True)
class DeletedVectors:
    """The file. What it holds counts only for vectors of the same recipe."""

    location: Shelf
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
