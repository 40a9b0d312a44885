"""Counts of one sync."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from lakewake.model.frontier import Refusal
from lakewake.model.rows import Changes, RowId
from lakewake.plan.after import Outcome
from lakewake.plan.deletes import RemovedRows


@dataclass
class Tally:
    """Counts of one sync. `embedded` and `tokens` cover all attempts, the rest only the last one.

    Attributes:
        other_length: rows whose vectors do not have the length that the recipe names.
    """

    rows_changed: int = 0
    rows_deleted: int = 0
    chunks_upserted: int = 0
    chunks_deleted: int = 0
    embedded: int = 0
    tokens: int = 0
    reused: int = 0
    to_embed: int = 0
    rows_emptied: int = 0
    other_length: int = 0
    stored_twice: set[RowId] = field(default_factory=set)
    refused: dict[RowId, Refusal] = field(default_factory=dict)
    seen_again: set[RowId] = field(default_factory=set)

    def removed(self, coming: int | None = 0) -> RemovedRows:
        """What is known so far about the rows to remove."""
        return RemovedRows(self.rows_deleted, self.rows_emptied, self.rows_changed, coming)

    def outcome(self, changes: Changes) -> Outcome:
        """What the frontier has to record of the batch."""
        return Outcome(changes.duplicates, self.stored_twice, self.refused, self.seen_again)

    def add(self, part: Tally) -> None:
        """Add the counts of a task."""
        for f in fields(Tally):
            mine, theirs = getattr(self, f.name), getattr(part, f.name)
            setattr(self, f.name, mine + theirs if isinstance(mine, int) else mine | theirs)
