"""Where the vectors of known texts come from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from lakewake.embed.cache import VectorCache
from lakewake.errors import StoreError, StoreUnreachable
from lakewake.store import StoreReader


@dataclass(frozen=True)
class VectorSources:
    """Where vectors may come from, and what an index says that is to be believed.

    Attributes:
        index: an index whose vectors may be copied; None: none.
        embeddings: the embedding store.
        doubted: hashes of texts whose vectors are to be made anew whoever has one.
        trusted: whether rows whose hashes the index has are left alone.
        replaced: whether the index is to be replaced, perhaps for being damaged: then what the
            embedding store has checked comes first, and what cannot be read is made anew.
    """

    index: StoreReader | None
    vector_cache: VectorCache
    doubted: frozenset[str] = frozenset()
    trusted: bool = True
    replaced: bool = False

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Vectors of those texts that are known."""
        wanted = set(hashes) - self.doubted
        sources = [self._copied, self.vector_cache.get]
        found: dict[str, np.ndarray] = {}
        for source in reversed(sources) if self.replaced else sources:
            if rest := wanted - found.keys():
                found |= source(rest)
        return found

    def kept(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Vectors that somebody has put into the embedding store meanwhile."""
        return self.vector_cache.get(set(hashes) - self.doubted)

    def _copied(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        try:
            return self.index.vectors(hashes) if self.index else {}
        except StoreError as error:
            # What a damaged index held is embedded again; one that is out of reach is waited for.
            if not self.replaced or isinstance(error, StoreUnreachable):
                raise
            return {}
