"""A view: one version of an index. Everything read through it is of the same table commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lakewake.errors import IndexMissing, IndexStale, StoreError, StoreUnreachable
from lakewake.model.choices import one_of
from lakewake.model.query import Mode, Question
from lakewake.net.deadline import at_most
from lakewake.search.diverse import vectors_of
from lakewake.search.facets import FacetCache
from lakewake.search.narrowed import Narrow, NarrowedCache, Narrowing, narrowed_facets
from lakewake.search.rows import read_rows
from lakewake.search.run import Ranking, matched, search, within
from lakewake.search.where_json import read_where

if TYPE_CHECKING:
    import pyarrow as pa

    from lakewake.embed import Embedder
    from lakewake.model.facets import Facet
    from lakewake.model.frontier import Frontier
    from lakewake.model.query import Hit, IndexedRow, RowChunk, SearchResult
    from lakewake.model.recall import Searching
    from lakewake.model.recipe import Recipe
    from lakewake.model.rows import RowId
    from lakewake.store import StoreReader

T = TypeVar("T")
#: How often a read is tried if its version was removed. Two rebuilds in a row are rare.
ATTEMPTS = 3


@dataclass(frozen=True)
class SearchParts:
    """What an index is searched with, whichever version is read.

    Attributes:
        ranking: how hits are ranked if re-ranking is wanted (True), is not (False), or depends on
            the configuration (None).
        timeout: the seconds that a service may take to embed a question.
        narrow: what of a version passes a filter, for facets.
    """

    index: str
    embedder: Embedder
    ranking: Callable[[bool | None], Ranking]
    timeout: float
    facets: FacetCache
    narrowed: NarrowedCache
    narrow: Narrow


class View:
    """One version of an index. Commits and repairs that come later do not change its answers.

    Upkeep keeps a version for at least ten minutes. A rebuild removes it at once: reading then
    raises `StoreError`, and a new view reads the new version.
    """

    def __init__(self, reader: StoreReader, parts: SearchParts) -> None:
        self._reader, self._parts = reader, parts

    @property
    def instant(self) -> str:
        """The newest table commit that this version holds."""
        return self._reader.frontier().newest

    @property
    def frontier(self) -> Frontier:
        """All table commits that this version holds."""
        return self._reader.frontier()

    @property
    def generation(self) -> int:
        """The number of this build of the index."""
        return self._reader.generation

    @property
    def recipe(self) -> Recipe:
        """The recipe that this version was built with."""
        return self._reader.recipe()

    @property
    def schema(self) -> pa.Schema:
        """The index's columns; the payload columns are those without a leading underscore."""
        return self._reader.schema()

    def counts(self) -> tuple[int, int]:
        """How many rows and chunks it holds."""
        return self._reader.counts()

    def searching(self) -> Searching:
        """How it is searched by vector."""
        return self._reader.searching()

    def search(
        self,
        text: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        like: RowId | None = None,
        k: int = 5,
        offset: int = 0,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        min_score: float | None = None,
        rerank: bool | None = None,
        exact: bool = False,
        diversity: float = 0.0,
    ) -> SearchResult:
        """The same as `Index.search`, in this version."""
        how = one_of(Mode, "mode", mode)
        name = self._parts.index
        question = Question(
            name, text, vector, k, where, exact, like, how, offset, min_score, diversity
        )
        return self.answer(question, rerank=rerank)

    def within(
        self,
        question: str | Sequence[float],
        distance: float,
        *,
        where: str | Mapping[str, Any] | None = None,
    ) -> SearchResult:
        """All rows within a distance of a text or vector, nearest first."""
        text = question if isinstance(question, str) else None
        vector = None if isinstance(question, str) else question
        asked, parts = Question(self._parts.index, text, vector, where=where), self._parts
        with at_most(parts.timeout):
            return within(self._reader, parts.embedder, asked, distance)

    def answer(self, question: Question, *, rerank: bool | None = None) -> SearchResult:
        """Answer a `Question`."""
        parts = self._parts
        # A caller waits for a search, so `timeout` limits the whole of it. In a sync it limits
        # each request to the service.
        with at_most(parts.timeout):
            return search(self._reader, parts.embedder, question, parts.ranking(rerank))

    def answer_whole(
        self, question: Question, *, rerank: bool | None = None
    ) -> tuple[SearchResult, tuple[tuple[RowChunk, ...], ...]]:
        """Answer a `Question`, with all chunks of each hit's row that match it."""
        parts, embedder = self._parts, _Once(self._parts.embedder)
        with at_most(parts.timeout):
            ranking = parts.ranking(rerank)
            found = search(self._reader, embedder, question, ranking)
            return found, matched(self._reader, embedder, question, ranking, found.hits)

    def rows(self, rows: Collection[RowId]) -> dict[RowId, IndexedRow]:
        """All that the index holds of these rows; rows that it does not hold are left out.

        Raises:
            StoreError: the index is damaged.
        """
        return read_rows(self._reader, rows, self._parts.index)

    def vectors(self, hits: Sequence[Hit]) -> list[np.ndarray]:
        """The vector of each hit's chunk."""
        return vectors_of(self._reader, hits)

    def facets(
        self,
        text: str | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
    ) -> tuple[Facet, ...]:
        """What the payload columns hold, for filters to choose from. Computed once per version.

        Args:
            text: count only the 200 best rows for this text.
            where: count only rows that pass this filter. Conditions on one column alone do not
                narrow that column's own values, so that several can be chosen.
            mode: how the text is searched for.
        """
        if text is None and where is None:
            return self._parts.facets.of(self._reader)
        parts, how = self._parts, one_of(Mode, "mode", mode)
        asked = Narrowing(text, None if where is None else read_where(where), how)

        def count() -> tuple[Facet, ...]:
            with at_most(parts.timeout):
                embedder, ranking = _Once(parts.embedder), parts.ranking(False)
                return narrowed_facets(
                    self._reader, embedder, asked, parts.narrow, ranking, parts.index
                )

        return parts.narrowed.of(self._reader, asked, count)


class _Once:
    """Embeds a text once, however often it is needed for one answer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[tuple[str, ...], np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        key = tuple(texts)
        if key not in self._known:
            self._known[key] = self._embedder.embed(texts)
        return self._known[key]


def again(work: Callable[[], T]) -> T:
    """What `work` returns, called again if a rebuild may have removed the version that it read.

    A rebuild removes the files of the former version at once, also while they are read.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except (IndexMissing, IndexStale, StoreUnreachable):
            raise
        except StoreError:
            continue
    return work()
