"""1 · What changed in the table.

A table is looked at (its metadata, no JVM), then read (its rows, Spark). `memory.py` is the
reference; Hudi is the real one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from lakewake.model.chunks import ScanParts
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, Difference, RowId
from lakewake.model.timeline import Instant, Look

#: For an error that says why history cannot be followed.
COMPARE_HINT = "run `lakewake sync`: it compares the index with the table instead"
_COMPARED = ("_id", "_key", "_partition", "_field", "_chunk", "_hash", "_source_hash")


def compared(recipe: Recipe) -> tuple[str, ...]:
    """The columns of an index that a comparison with its table needs."""
    made_from = "_vector" if recipe.vector else "_text"
    return (*_COMPARED, "_payload_hash", made_from, *recipe.payload)


class Table(Protocol):
    """The source of truth, seen through one recipe. Never written to."""

    def look(self, frontier: Frontier | None) -> Look:
        """One look at the timeline; opens the commits that `frontier` has not absorbed.

        Raises:
            TableError: no Hudi table there, or one that cannot be followed.
        """

    def written(self, look: Look, instant: Instant) -> float | None:
        """When the file of a completed instant was written, by the clock of the storage.

        Seconds since 1970; None where it is not known.
        """

    def snapshot(self, look: Look) -> Changes:
        """Every row as of `look`; `deleted` is empty.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def changes(self, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> Changes:
        """The rows that `pending` changed and removed, as of `look`, exactly.

        Raises:
            HistoryLost: files that tell it are gone, or the order cannot be told.
            TableMoved: a commit completed since the look; look again.
        """

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        """The named rows as of `look`; `deleted` are not there, `duplicates` more than once.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def reconcile(self, look: Look, index: ScanParts) -> Changes:
        """What makes an index (given as for `compare`) equal to the table as of `look`.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def compare(self, look: Look, index: ScanParts) -> Difference:
        """How an index (its `compared` columns) differs from the table as of `look`.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """


class TableMoved(Exception):
    """A commit completed between a look and the read that it was to pin."""
