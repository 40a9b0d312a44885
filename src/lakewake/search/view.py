"""A view: one version of an index. Everything read through it is of the same table commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lakewake.errors import IndexMissing, IndexStale, StoreError, StoreUnreachable
from lakewake.model.choices import one_of
from lakewake.model.chunks import chunk_id
from lakewake.model.query import Mode, Question
from lakewake.net.deadline import at_most
from lakewake.search.facets import FacetCache
from lakewake.search.rows import read_rows
from lakewake.search.run import Ranking, search

if TYPE_CHECKING:
    import pyarrow as pa

    from lakewake.embed import Embedder
    from lakewake.model.facets import Facet
    from lakewake.model.frontier import Frontier
    from lakewake.model.query import Hit, IndexedRow, SearchResult
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
    """

    index: str
    embedder: Embedder
    ranking: Callable[[bool | None], Ranking]
    timeout: float
    facets: FacetCache


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
    ) -> SearchResult:
        """The same as `Index.search`, in this version."""
        how = one_of(Mode, "mode", mode)
        name = self._parts.index
        question = Question(name, text, vector, k, where, exact, like, how, offset, min_score)
        return self.answer(question, rerank=rerank)

    def answer(self, question: Question, *, rerank: bool | None = None) -> SearchResult:
        """Answer a `Question`."""
        parts = self._parts
        # A caller waits for a search, so `timeout` limits the whole of it. In a sync it limits
        # each request to the service.
        with at_most(parts.timeout):
            return search(self._reader, parts.embedder, question, parts.ranking(rerank))

    def rows(self, rows: Collection[RowId]) -> dict[RowId, IndexedRow]:
        """All that the index holds of these rows; rows that it does not hold are left out.

        Raises:
            StoreError: the index is damaged.
        """
        return read_rows(self._reader, rows, self._parts.index)

    def vectors(self, hits: Sequence[Hit]) -> list[np.ndarray]:
        """The vector of each hit's chunk."""
        batches = self._reader.chunks({hit.row for hit in hits}, ["_id", "_vector"])
        held = {c["_id"]: c["_vector"] for batch in batches for c in batch.to_pylist()}
        ids = (chunk_id(hit.row, hit.field, hit.chunk) for hit in hits)
        return [np.asarray(held[id], np.float32) for id in ids]

    def facets(self) -> tuple[Facet, ...]:
        """What the payload columns hold, for filters to choose from. Computed once per version."""
        return self._parts.facets.of(self._reader)


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
