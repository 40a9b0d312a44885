"""A search and its answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakewake.model.choices import Mode as Mode
from lakewake.model.frames import data_frame
from lakewake.model.languages import NONE
from lakewake.model.rows import RowId
from lakewake.model.where import Where
from lakewake.show.notebook import Shown


@dataclass(frozen=True)
class Question:
    """A user's search: the rows nearest to a text, to a vector or to another row.

    Attributes:
        where: a filter in the grammar of `search.where`, or the same as JSON.
        exact: do not use an approximate index.
        offset: how many of the best rows are skipped, for the next page.
        min_score: rows with a lower score are left out.
        diversity: from 0 to 1: how much rows that repeat better ones fall behind.
    """

    index: str
    text: str | None = None
    vector: Sequence[float] | None = None
    k: int = 5
    where: str | Mapping[str, Any] | None = None
    exact: bool = False
    like: RowId | None = None
    mode: Mode = Mode.VECTOR
    offset: int = 0
    min_score: float | None = None
    diversity: float = 0.0


@dataclass(frozen=True)
class Query:
    """A store's search: the chunks nearest to a vector.

    Attributes:
        limit: how many *rows* are wanted; a store may return several chunks of one row, best first,
            but at least `limit` distinct rows if the index has them.
        exact: do not use an approximate index.
    """

    vector: np.ndarray
    limit: int
    where: Where | None = None
    exact: bool = False


@dataclass(frozen=True)
class Words:
    """A store's search: the chunks that have any of a text's words.

    Attributes:
        text: words; `model.asked` reads phrases, beginnings and similar words in it.
        limit: how many rows are wanted, as in `Query`.
        language: whose stems are compared; `none`: the words as they are.
    """

    text: str
    limit: int
    where: Where | None = None
    language: str = NONE


@dataclass(frozen=True)
class Hit:
    """One row that was found, with its best chunk.

    Attributes:
        score: what ranked it: in a search by vector the cosine, the dot product or the negative
            distance, by the metric of the index.
        similarity: the cosine of its vector with the question's; None in a search by words only.
        text: the words of the chunk; None if the index holds vectors without texts.
        highlight: where in `text` its best sentence begins and ends.
    """

    key: str
    partition: str
    score: float
    similarity: float | None
    text: str | None
    field: str
    chunk: int
    payload: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    highlight: tuple[int, int] | None = None

    @property
    def row(self) -> RowId:
        """Which row it is."""
        return RowId(self.partition, self.key)

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {
            "key": self.key,
            "partition": self.partition,
            "score": self.score,
            "similarity": self.similarity,
            "text": self.text,
            "field": self.field,
            "chunk": self.chunk,
            "highlight": None if self.highlight is None else list(self.highlight),
            "payload": dict(self.payload),
        }


@dataclass(frozen=True)
class SearchResult(Shown):
    """The hits, and the table instant that they reflect.

    Attributes:
        offset: how many better rows were skipped.
        more: whether the next page has any hits.
        fallback: why the table was scanned instead of the index; None if it was not.
    """

    index: str
    instant: str
    hits: tuple[Hit, ...]
    mode: Mode = Mode.VECTOR
    offset: int = 0
    more: bool = False
    fallback: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The object that `search --json` prints."""
        return {
            "index": self.index,
            "instant": self.instant,
            "mode": self.mode.value,
            "offset": self.offset,
            "hits": [h.as_dict() for h in self.hits],
            "more": self.more,
            "fallback": self.fallback,
        }

    def to_pandas(self) -> Any:
        """The hits as a DataFrame, best first.

        The columns are `_key`, `_partition`, `_score`, `_similarity`, `_text`, and the payload.

        Raises:
            SetupError: pandas is not installed.
        """
        own = {name: f"_{name}" for name in ("key", "partition", "score", "similarity", "text")}
        rows = [
            {shown: getattr(hit, name) for name, shown in own.items()} | dict(hit.payload)
            for hit in self.hits
        ]
        return data_frame(rows, list(dict.fromkeys([*own.values(), *(n for r in rows for n in r)])))


@dataclass(frozen=True)
class RowChunk:
    """One chunk of a row's text.

    Attributes:
        field: the text field that it was cut from.
        chunk: its number in that field, from 0.
        text: its words; None if the index holds vectors without texts.
    """

    field: str
    chunk: int
    text: str | None


@dataclass(frozen=True)
class IndexedRow:
    """All that an index holds of one row.

    Attributes:
        text: its whole text, joined from the chunks; a paragraph for each field.
        chunks: in the order of the fields and of the text.
    """

    key: str
    partition: str
    text: str
    payload: Mapping[str, Any]
    chunks: tuple[RowChunk, ...]

    @property
    def row(self) -> RowId:
        """Which row it is."""
        return RowId(self.partition, self.key)
