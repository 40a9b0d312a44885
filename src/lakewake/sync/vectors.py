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
    """Where a known vector may come from.

    Attributes:
        index: an index whose vectors may be copied; None: none.
        doubted: hashes of texts that are embedded again even if their vectors are known.
        trusted: rows whose hashes the index has are left alone.
        replaced: the index is being replaced, perhaps because it is damaged. The vector cache,
            which checks its entries, is asked first, and unreadable vectors are made again.
    """

    index: StoreReader | None
    vector_cache: VectorCache
    doubted: frozenset[str] = frozenset()
    trusted: bool = True
    replaced: bool = False

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The known vectors among these texts."""
        wanted = set(hashes) - self.doubted
        sources = [self._copied, self.vector_cache.get]
        found: dict[str, np.ndarray] = {}
        for source in reversed(sources) if self.replaced else sources:
            if rest := wanted - found.keys():
                found |= source(rest)
        return found

    def kept(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Vectors that another sync has put into the vector cache since."""
        return self.vector_cache.get(set(hashes) - self.doubted)

    def _copied(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        try:
            return self.index.vectors(hashes) if self.index else {}
        except StoreError as error:
            # Texts of a damaged index are embedded again. An unreachable index may come back.
            if not self.replaced or isinstance(error, StoreUnreachable):
                raise
            return {}
