"""The answers of the tools, as types. Their schemas are generated from them.

They add to those of `model.shapes` only what `mcp.answer` and the tools add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lakewake.model.shapes import Hit, IndexStatus, RecommendAnswer, RowId, SearchAnswer


class Answer(BaseModel):
    """An answer. Fields that are not described, such as `note` and `cut`, are passed through."""

    model_config = ConfigDict(extra="allow")


class FoundRow(Answer, Hit):
    """One row that was found, with its best chunk."""


class Part(Answer, RowId):
    """A part of a row's text or of one of its payload values.

    Attributes:
        length: characters of the whole text.
        next: where the next part begins; None: this is the last part.
    """

    index: str
    instant: str
    text: str
    start: int
    length: int
    next: int | None


class Found(Answer, SearchAnswer):
    """The rows that were found, best first, and the table instant that they are from."""

    hits: Sequence[FoundRow]


class Recommended(Answer, RecommendAnswer):
    """A message based on the rows in `used`, and all rows that were found."""

    hits: Sequence[FoundRow]


class Turn(BaseModel):
    """What somebody said before."""

    role: Literal["user", "assistant"]
    content: Annotated[str, Field(max_length=2000)]


class Failure(Answer):
    """An index that could not be read, and why."""

    index: str
    error: str
    hint: str


class StatusList(Answer):
    """How far the indexes are behind; `failures` names those that could not be read."""

    indexes: list[IndexStatus]
    failures: list[Failure]


class Listed(Answer):
    """What an index can be searched for. Without an instant, it is not built yet."""

    name: str
    instant: str
    rows: int
    chunks: int
    texts: list[str]
    payload: dict[str, str]


class Listing(Answer):
    """All indexes; `failures` names those that could not be read."""

    indexes: list[Listed]
    failures: list[Failure]
