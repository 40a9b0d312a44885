"""Check that two indexes with the same content give the same answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakewake.embed import Embedder
from lakewake.model.query import Mode, Query, Question, SearchResult, Words
from lakewake.model.recipe import ModelIdentity
from lakewake.model.where import Where
from lakewake.search.run import search
from lakewake.store import StoreReader
from lakewake.store.memory import MemoryReader

#: Stores keep vectors in single precision.
CLOSE = 1e-5


@dataclass(frozen=True)
class Answering:
    """The queries to compare two indexes by.

    Attributes:
        wheres: filters, each as stores take it and as users write it.
    """

    embedder: Embedder
    texts: Sequence[str]
    limits: Sequence[int] = (1, 3, 50)
    wheres: Sequence[tuple[Where | None, str | None]] = ((None, None),)

    def assert_alike(self, index: StoreReader, built: StoreReader) -> None:
        """Check chunks, order and scores of vector, keyword and hybrid searches."""
        assert index.languages() == built.languages()
        for text in self.texts:
            vector = self.embedder.embed([text])[0]
            for limit in self.limits:
                for where, written in self.wheres:
                    near = Query(vector, limit, where, exact=True)
                    _same_table(index.search(near), built.search(near), "_similarity")
                    for language in ("none", "english"):
                        words = Words(text, limit, where, language)
                        _same_table(index.keyword(words), built.keyword(words), "_relevance")
                    both = Question(
                        "any", text, k=limit, where=written, mode=Mode.HYBRID, exact=True
                    )
                    _same_hits(*(search(i, self.embedder, both) for i in (index, built)))


def _same_table(found: pa.Table, expected: pa.Table, score: str) -> None:
    assert found["_id"].to_pylist() == expected["_id"].to_pylist()
    np.testing.assert_allclose(found[score].to_numpy(), expected[score].to_numpy(), atol=CLOSE)


def _same_hits(found: SearchResult, expected: SearchResult) -> None:
    assert [_shown(h) for h in found.hits] == [_shown(h) for h in expected.hits]
    one, other = ([h.score for h in result.hits] for result in (found, expected))
    np.testing.assert_allclose(one, other, atol=CLOSE)


def _shown(hit: Any) -> tuple[Any, ...]:
    return hit.row, hit.field, hit.chunk, hit.text


def built_of(index: StoreReader, chunks: Iterable[dict[str, Any]]) -> MemoryReader:
    """Build an index of these chunks from nothing, in the reference store."""
    table = pa.Table.from_pylist(list(chunks), schema=index.schema())
    return MemoryReader(index.recipe(), index.frontier(), 1, table)


class ByText:
    """An embedder that calls a function."""

    def __init__(self, identity: ModelIdentity, vector_of: Any) -> None:
        self.identity = identity
        self._vector_of = vector_of

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self._vector_of(text) for text in texts], np.float32)
