"""1 · What changed in the table.

First a look at the table's metadata, which needs no JVM; then a read of its rows, through Spark.
`memory.py` is the reference implementation, `hudi.py` the real one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from lakewake.model.chunks import ScanParts
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, Difference, RowId
from lakewake.model.timeline import Instant, Look

#: The hint of an error that explains why the timeline cannot be followed.
COMPARE_HINT = "run `lakewake sync`: it compares the index with the table instead"
_COMPARED = ("_id", "_key", "_partition", "_field", "_chunk", "_hash", "_source_hash")


def compared(recipe: Recipe) -> tuple[str, ...]:
    """The columns of an index that a comparison with its table needs."""
    made_from = "_vector" if recipe.vector else "_text"
    return (*_COMPARED, "_payload_hash", made_from, *recipe.payload)


class Table(Protocol):
    """The source of truth, seen through one recipe. Never written to."""

    def look(self, frontier: Frontier | None) -> Look:
        """Look at the timeline, and open the commits that `frontier` has not absorbed.

        Raises:
            TableError: there is no Hudi table, or it cannot be followed.
        """

    def written(self, look: Look, instant: Instant) -> float | None:
        """When the file of a completed instant was written, by the storage's clock.

        Seconds since 1970; None if unknown.
        """

    def snapshot(self, look: Look) -> Changes:
        """Every row as of `look`; `deleted` is empty.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def scan(self, look: Look, *, spark: bool) -> Changes:
        """Every row as of `look`, for a search of its vectors.

        Args:
            spark: Spark may be used. Otherwise no JVM is started.

        Raises:
            TableError: it cannot be read so.
            TableMoved: a commit completed since the look; look again.
        """

    def changes(self, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> Changes:
        """Exactly the rows that `pending` changed and removed, as of `look`.

        Raises:
            HistoryLost: the files needed for this are gone, or the order of commits is unknown.
            TableMoved: a commit completed since the look; look again.
        """

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        """The given rows as of `look`.

        `deleted` holds those that the table lacks, `duplicates` those that it holds more than once.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def reconcile(self, look: Look, index: ScanParts) -> Changes:
        """The changes that make an index (given as for `compare`) equal to the table at `look`.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """

    def compare(self, look: Look, index: ScanParts) -> Difference:
        """How an index (its `compared` columns) differs from the table as of `look`.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """


class TableMoved(Exception):
    """A commit completed between a look and the read that should have been pinned to it."""
