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
    return (*_COMPARED, "_payload_hash", made_from, *recipe.payload_columns)


class Table(Protocol):
    """The source of truth, seen through one recipe. Never written to.

    Each method sees only the rows that the recipe selects, on the day of the look if the day
    matters: a row that leaves the selection is gone, and one that enters is new.
    """

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

    def first(self, look: Look, limit: int) -> Changes:
        """A snapshot of only this many rows: the first by their ids."""

    def scan(self, look: Look, *, spark: bool) -> Changes:
        """Every row as of `look`, for a search of its vectors.

        Args:
            spark: Spark may be used. Otherwise no JVM is started.

        Raises:
            TableError: it cannot be read so.
            TableMoved: a commit completed since the look; look again.
        """

    def read_together(
        self,
        recipes: Sequence[Recipe],
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
    ) -> SharedRead | None:
        """Read once, for several recipes, what `pending` changed.

        Each table of one of the recipes then takes its `changes` from it, until it is closed.

        Returns:
            None if no rows have to be read.

        Raises:
            HistoryLost, TableMoved: as for `changes`.
            TableError: the rows cannot be read for all the recipes.
        """

    def changes(
        self,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
        shared: SharedRead | None = None,
    ) -> Changes:
        """Exactly the rows that `pending` changed and removed, as of `look`.

        Rows are selected on the day that `frontier` is at.

        Args:
            shared: what `read_together` of this table, or of one with another recipe, has read.

        Raises:
            HistoryLost: the files needed for this are gone, or the order of commits is unknown.
            TableMoved: a commit completed since the look; look again.
        """

    def moved(self, look: Look, frontier: Frontier) -> Changes:
        """The rows that enter and leave as the day moves from that of `frontier` to that of `look`.

        The commits of `look` are those that `frontier` has absorbed.

        Raises:
            HistoryLost: the table holds some of these rows more than once.
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


class SharedRead(Protocol):
    """What some commits changed, read once for several recipes."""

    def close(self) -> None:
        """Free what it holds. Changes taken from it must have been read by then."""


class TableMoved(Exception):
    """A commit completed between a look and the read that should have been pinned to it."""
