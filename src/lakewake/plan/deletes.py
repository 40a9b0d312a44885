"""Decides whether a sync may remove this many rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: This many rows may be removed without `allow_deletes`, whatever their share.
UNASKED = 1_000


@dataclass(frozen=True)
class RemovedRows:
    """What a sync has counted so far.

    Attributes:
        deleted: rows that are gone from the table.
        emptied: rows that are still there, and have nothing to index any more.
        written: rows that a build has written.
        coming: rows that a build is still to read, at most; None: unknown.
    """

    deleted: int = 0
    emptied: int = 0
    written: int = 0
    coming: int | None = 0


def too_many(gone: int, held: int, share: float) -> bool:
    """Whether `gone` of `held` rows are more than may be removed without asking."""
    return gone > UNASKED and gone > share * held
