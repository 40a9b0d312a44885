"""Which approximate index finds the nearest vectors, and from what size on."""

from __future__ import annotations

from dataclasses import dataclass

#: Fewer chunks than this are searched exactly in a fraction of a second.
ANN_MIN_CHUNKS = 100_000
#: The store's own choice; and no approximate index, so that each vector is compared.
AUTO, FLAT = "auto", "flat"


@dataclass(frozen=True)
class Ann:
    """The key `ann` of an index.

    Attributes:
        kind: `auto`, `flat`, or a kind that the store has.
        least: an index with fewer chunks is searched exactly.
    """

    kind: str = AUTO
    least: int = ANN_MIN_CHUNKS
