"""Keeps one sync from removing most of an index unasked: the table may have been replaced.

Whether a TRUNCATE, an overwrite or another table at the same path was meant cannot be read from the
table. Each of them is the same question, answered by `--allow-deletes` or by `max_delete`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from lakewake.errors import StoreError, StoreUnreachable, TooManyDeletes
from lakewake.model.rows import RowId
from lakewake.plan.deletes import UNASKED, RemovedRows, too_many
from lakewake.store import StoreReader


class DeleteGuard:
    """Counts the rows of an index that one sync removes, and refuses too many.

    Args:
        index: the version that they are removed from; None: there is none.
        share: the share of its rows that may go.
        why: why the sync does what it does, for the refusal.
        builds: a new generation is written. Rows of the old one that it does not have are removed.
    """

    def __init__(
        self, name: str, index: StoreReader | None, share: float, why: str, *, builds: bool
    ) -> None:
        self._name, self._index, self._share, self._why = name, index, share, why
        self._builds, self._met_any = builds, False

    def meet(self, rows: Sequence[RowId]) -> None:
        """Note rows that the table holds; of use only where a new generation is built."""
        if self._builds and self._held > UNASKED:
            ids, met = self._meeting
            numbers = _numbers(rows)
            at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
            met[at[ids[at] == numbers]] = True
            self._met_any = True

    def check(self, removed: RemovedRows) -> None:
        """Refuse to go on when too many rows would go.

        Raises:
            TooManyDeletes: nothing was written.
        """
        if fact := self.refusal(removed):
            raise TooManyDeletes(
                fact,
                hint=f"if the table is meant to have lost them, `lakewake sync {self._name}"
                " --allow-deletes`; `max_delete` of the index sets the share that may go unasked",
            )

    def refusal(self, removed: RemovedRows) -> str:
        """Why this many deletes are refused; empty: they are not."""
        gone = self._gone(removed)
        if not too_many(gone, self._held, self._share):
            return ""
        return (
            f"this sync would remove {gone:,} of the {self._held:,} rows of index '{self._name}'"
            f" ({self._why})"
        )

    def _gone(self, removed: RemovedRows) -> int:
        if not self._builds:
            return removed.deleted + removed.emptied
        if removed.coming is None:
            return 0
        left = self._held - removed.written - removed.coming
        # Executors meet the rows of a cluster elsewhere; then only their number is known.
        if removed.coming or not self._met_any:
            return left
        return max(left, int(np.count_nonzero(~self._meeting[1])))

    @cached_property
    def _held(self) -> int:
        """How many rows the index holds; none that a damaged one could be asked about."""
        try:
            return self._index.counts()[0] if self._index else 0
        except StoreUnreachable:
            raise
        except StoreError:
            return 0

    @cached_property
    def _meeting(self) -> tuple[np.ndarray, np.ndarray]:
        """A number for each row of the index, in order, and whether the table was seen to hold it.

        Eight bytes a row: rows that share a number are counted as one, once in 2^64.
        """
        assert self._index is not None
        try:
            parts = [
                _numbers(list(zip(*(batch[c].to_pylist() for c in _IDENTITY), strict=True)))
                for batch in self._index.scan(_IDENTITY)
            ]
        except StoreUnreachable:
            raise
        except StoreError:
            parts = []
        ids = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
        return ids, np.zeros(len(ids), bool)


_IDENTITY = ("_partition", "_key")


def _numbers(rows: Sequence[tuple[str, str]]) -> np.ndarray:
    return np.fromiter((hash(tuple(row)) for row in rows), np.int64, len(rows))
