"""Keeps a sync from removing most of an index without consent: the table may have been replaced.

The table does not show whether a TRUNCATE, an overwrite or another table at the same path was
intended. A person decides, with `--allow-deletes` or `max_delete`.
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
        index: the version that rows are removed from; None: there is none.
        share: the share of its rows that may be removed.
        why: the reason for the sync, for the message.
        builds: the sync writes a new generation. Rows that only the old one has are removed.
    """

    def __init__(
        self, name: str, index: StoreReader | None, share: float, why: str, *, builds: bool
    ) -> None:
        self._name, self._index, self._share, self._why = name, index, share, why
        self._builds, self._met_any = builds, False

    def meet(self, rows: Sequence[RowId]) -> None:
        """Note rows that the table holds. Only a build needs this."""
        if self._builds and self._held > UNASKED:
            ids, met = self._meeting
            numbers = _numbers(rows)
            at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
            met[at[ids[at] == numbers]] = True
            self._met_any = True

    def check(self, removed: RemovedRows) -> None:
        """Raise if the sync would remove too many rows.

        Raises:
            TooManyDeletes: nothing was written.
        """
        if fact := self.refusal(removed):
            raise TooManyDeletes(
                fact,
                hint=f"if these rows were deleted on purpose, run `lakewake sync {self._name}"
                " --allow-deletes`; `max_delete` of the index sets the share that needs no asking",
            )

    def refusal(self, removed: RemovedRows) -> str:
        """Why this many deletes are refused; empty if they are not."""
        gone = self._gone(removed)
        # So few are never too many, and counting the rows of a large index takes a moment.
        if gone <= UNASKED or not too_many(gone, self._held, self._share):
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
        # On a cluster, executors read the rows: only their number is known here.
        if removed.coming or not self._met_any:
            return left
        return max(left, int(np.count_nonzero(~self._meeting[1])))

    @cached_property
    def _held(self) -> int:
        """How many rows the index holds; 0 if it is damaged."""
        try:
            return self._index.counts()[0] if self._index else 0
        except StoreUnreachable:
            raise
        except StoreError:
            return 0

    @cached_property
    def _meeting(self) -> tuple[np.ndarray, np.ndarray]:
        """A sorted number for each row of the index, and whether the table was seen to hold it.

        This takes eight bytes per row. Two rows share a number with probability about 2⁻⁶⁴.
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
