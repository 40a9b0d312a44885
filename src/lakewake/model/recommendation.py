"""An answer in words, with the rows it is based on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakewake.model.query import Hit
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
        reason: why no model answered, or warnings about its answer; None if there are none.
    """

    query: str
    message: str
    answered_by: AnsweredBy
    used: tuple[RowId, ...]
    hits: tuple[Hit, ...]
    instant: str
    reason: str | None = None

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
        }
