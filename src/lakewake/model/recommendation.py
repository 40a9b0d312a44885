"""An answer in words, with the rows it is based on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lakewake.model.query import Hit, RowChunk
from lakewake.model.rows import RowId
from lakewake.show.notebook import Shown


class AnsweredBy(StrEnum):
    """What phrased the message."""

    MODEL = "model"
    EXTRACT = "extract"
    NONE = "none"


@dataclass(frozen=True)
class Recommendation(Shown):
    """The answer to a question, and all rows that were found for it.

    Attributes:
        used: the rows that the message cites, in that order; all are among `hits`.
        matched: all chunks of each hit's row that match the question, in the order of `hits`.
        asked: the question that was searched for, if a conversation led to it; else None.
        reason: why no model answered, or warnings about its answer; None if there are none.
    """

    query: str
    message: str
    answered_by: AnsweredBy
    used: tuple[RowId, ...]
    hits: tuple[Hit, ...]
    instant: str
    reason: str | None = None
    matched: tuple[tuple[RowChunk, ...], ...] = ()
    asked: str | None = None

    @property
    def success(self) -> bool:
        """Whether there is an answer."""
        return self.answered_by is not AnsweredBy.NONE

    def plain(self) -> dict[str, Any]:
        """The answer in the plain shape: the rows that the message names, each as one flat object.

        Columns keep their names; `_key`, `_partition` and `_score` are added.
        """
        of_row = {hit.row: hit for hit in self.hits}
        shown = [of_row[row] for row in self.used if row in of_row]
        products = [
            {**h.payload, "_key": h.key, "_partition": h.partition, "_score": h.score}
            for h in shown
        ]
        return {
            "success": self.success,
            "query": self.query,
            "message": self.message,
            "products": products,
        }

    def as_dict(self) -> dict[str, Any]:
        """The object that `recommend --json` prints."""
        return {
            "query": self.query,
            "message": self.message,
            "answered_by": self.answered_by.value,
            "used": [{"key": row.key, "partition": row.partition} for row in self.used],
            "hits": [hit.as_dict() for hit in self.hits],
            "instant": self.instant,
            "reason": self.reason,
            "matched": [[asdict(chunk) for chunk in row] for row in self.matched],
            "asked": self.asked,
        }
