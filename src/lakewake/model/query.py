"""A search and its answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakewake.model.where import Where


@dataclass(frozen=True)
class Question:
    """What a person asks of an index: the rows nearest to a text, or to a vector.

    Attributes:
        where: a filter in the grammar of `search.where`.
        exact: do not use an approximate index.
    """

    index: str
    text: str | None = None
    vector: Sequence[float] | None = None
    k: int = 5
    where: str | None = None
    exact: bool = False


@dataclass(frozen=True)
class Query:
    """What a store is asked: the chunks nearest to a vector.

    Attributes:
        limit: how many *rows* are wanted; a store may return several chunks of one row, best first,
            but at least `limit` distinct rows where the index has them.
        exact: do not use an approximate index.
    """

    vector: np.ndarray
    limit: int
    where: Where | None = None
    exact: bool = False


@dataclass(frozen=True)
class Hit:
    """One row that was found, with its best chunk."""

    key: str
    partition: str
    score: float
    similarity: float
    text: str
    field: str
    chunk: int
    payload: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "key": self.key,
            "partition": self.partition,
            "score": self.score,
            "similarity": self.similarity,
            "text": self.text,
            "field": self.field,
            "chunk": self.chunk,
            "payload": dict(self.payload),
        }


@dataclass(frozen=True)
class SearchResult:
    """The hits, and the table instant they speak for."""

    index: str
    instant: str
    hits: tuple[Hit, ...]

    def as_dict(self) -> dict[str, Any]:
        """The object that `search --json` prints."""
        return {
            "index": self.index,
            "instant": self.instant,
            "hits": [h.as_dict() for h in self.hits],
        }
