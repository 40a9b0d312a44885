"""LangChain: a retriever and a read-only vector store over one index.

Needs `pip install 'lakewake[langchain]'`. Each document is a row's best chunk, or all of the row's
text with `whole_row`. Its metadata holds the row's payload and the entries of `METADATA`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lakewake.api import Index
from lakewake.api import open as open_lake
from lakewake.errors import ConfigError, SetupError
from lakewake.model.chunks import chunk_id
from lakewake.model.query import Hit, IndexedRow, SearchResult
from lakewake.model.rows import RowId

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore
    from pydantic import PrivateAttr
except ImportError as error:
    raise SetupError(
        "langchain-core is not installed", hint="pip install 'lakewake[langchain]'"
    ) from error

if TYPE_CHECKING:
    from lakewake.search.view import View

Filter = str | Mapping[str, Any]
#: Metadata of Lakewake's own. A payload column with one of these names becomes `payload.NAME`.
METADATA = ("key", "partition", "field", "chunk", "score", "similarity", "instant")
#: What a search by text takes besides the text and `k`.
TEXT_OPTIONS = ("filter", "mode", "min_score")


class Documents:
    """Searches an index and returns LangChain documents."""

    def __init__(self, index: Index, whole_row: bool) -> None:
        self.index = index
        self._whole_row = whole_row

    def search(self, text: str | None = None, **asked: Any) -> list[tuple[Document, Hit]]:
        """The hits of a search, best first, each with its document."""
        asked["text"] = text
        if not self._whole_row:
            result = self.index.search(**_given(asked))
            found = [(_of_hit(hit, result.instant), hit) for hit in result.hits]
            if result.fallback:
                for document, _ in found:
                    document.metadata["fallback"] = result.fallback
            return found
        return self.index.with_view(lambda view: self._whole_rows(view, asked))

    def diverse(self, k: int, closeness: float, asked: Mapping[str, Any]) -> list[Document]:
        """`k` hits of a search, chosen by maximal marginal relevance."""
        return self.index.with_view(lambda view: self._diverse(view, k, closeness, asked))

    def by_ids(self, ids: Sequence[str]) -> list[Document]:
        """The documents with these ids, of chunks or rows. Unknown ids are left out."""
        return self.index.with_view(lambda view: _by_ids(view, ids))

    def _whole_rows(self, view: View, asked: Mapping[str, Any]) -> list[tuple[Document, Hit]]:
        result = view.search(**_given(asked))
        return list(zip(_whole(result, view), result.hits, strict=True))

    def _diverse(
        self, view: View, k: int, closeness: float, asked: Mapping[str, Any]
    ) -> list[Document]:
        result = view.search(**_given(asked))
        near = [hit.similarity or 0.0 for hit in result.hits]
        chosen = most_diverse(view.vectors(result.hits), near, k, closeness)
        result = replace(result, hits=tuple(result.hits[n] for n in chosen))
        if self._whole_row:
            return _whole(result, view)
        return [_of_hit(hit, result.instant) for hit in result.hits]


class LakewakeRetriever(BaseRetriever):  # type: ignore[misc]
    """The rows nearest to a text, as documents.

    Attributes:
        index: an open `Index`, or its name in the configuration.
        config: the configuration file if `index` is a name, as in `lakewake.open`.
        k: how many rows.
        where: a filter on payload columns, as text or JSON.
        mode: `vector`, `keyword` or `hybrid`.
        min_score: leave out hits with a lower score.
        whole_row: documents hold all of the row's text instead of its best chunk.

    `invoke` also takes `k`, `where`, `mode` and `min_score`.
    """

    index: Index | str
    config: str | Path | None = None
    k: int = 5
    where: Filter | None = None
    mode: str | None = None
    min_score: float | None = None
    whole_row: bool = False
    _documents: Documents = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Open the index now, so that a wrong name fails at once."""
        super().model_post_init(context)
        self._documents = Documents(opened(self.index, self.config), self.whole_row)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any = None,
        k: int | None = None,
        where: Filter | None = None,
        mode: str | None = None,
        min_score: float | None = None,
    ) -> list[Document]:
        found = self._documents.search(
            query,
            k=self.k if k is None else k,
            where=self.where if where is None else where,
            mode=self.mode if mode is None else mode,
            min_score=self.min_score if min_score is None else min_score,
        )
        return [document for document, _ in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, **given: Any
    ) -> list[Document]:
        found: list[Document] = await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **given
        )
        return found


class LakewakeVectorStore(VectorStore):  # type: ignore[misc]
    """An index as a read-only LangChain vector store. Its content comes from the table alone.

    Scores are similarities: larger is nearer. `filter` is what `Index.search` takes as `where`. A
    document has the id of its chunk, or of its row with `whole_row`.

    Args:
        index: an open `Index`, or its name in the configuration.
        config: the configuration file if `index` is a name, as in `lakewake.open`.
        whole_row: documents hold all of the row's text instead of its best chunk.
    """

    def __init__(
        self,
        index: Index | str,
        config: str | Path | None = None,
        *,
        whole_row: bool = False,
    ) -> None:
        self._documents = Documents(opened(index, config), whole_row)

    @property
    def index(self) -> Index:
        """The index that is searched."""
        return self._documents.index

    def similarity_search(self, query: str, k: int = 4, **given: Any) -> list[Document]:
        """The `k` rows nearest to a text. Also takes `filter`, `mode` and `min_score`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **given)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **given: Any
    ) -> list[tuple[Document, float]]:
        """Like `similarity_search`, with the score of each document."""
        found = self._documents.search(query, k=k, **_arguments(given, *TEXT_OPTIONS))
        return [(document, hit.score) for document, hit in found]

    def similarity_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, **given: Any
    ) -> list[Document]:
        """The `k` rows nearest to a vector of the index's model."""
        arguments = _arguments(given, "filter", "min_score")
        found = self._documents.search(vector=embedding, k=k, **arguments)
        return [document for document, _ in found]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **given: Any
    ) -> list[Document]:
        """`k` of the `fetch_k` nearest rows: near to the text, but different from each other."""
        arguments = {"k": fetch_k, **_arguments(given, "filter", "min_score")}
        return self._documents.diverse(k, lambda_mult, {"text": query, **arguments})

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **given: Any,
    ) -> list[Document]:
        """Like `max_marginal_relevance_search`, but near to a vector of the index's model."""
        arguments = {"k": fetch_k, **_arguments(given, "filter", "min_score")}
        return self._documents.diverse(k, lambda_mult, {"vector": embedding, **arguments})

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids that the index holds. They have no score."""
        return self._documents.by_ids(ids)

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **given: Any
    ) -> list[tuple[Document, float]]:
        # LangChain expects 0 to 1: the cosine, or 0 if it is negative or unknown.
        found = self._documents.search(query, k=k, **_arguments(given, *TEXT_OPTIONS))
        return [(document, max(0.0, hit.similarity or 0.0)) for document, hit in found]

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **given: Any
    ) -> list[tuple[Document, float]]:
        found: list[tuple[Document, float]] = await run_in_executor(
            None, self._similarity_search_with_relevance_scores, query, k, **given
        )
        return found

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **given: Any
    ) -> list[str]:
        """Always raises: write rows to the table instead.

        Raises:
            ConfigError: always.
        """
        _refuse(f"index '{self.index.name}'", f"`lakewake sync {self.index.name}`")

    def delete(self, ids: list[str] | None = None, **given: Any) -> bool | None:
        """Always raises: delete rows from the table instead.

        Raises:
            ConfigError: always.
        """
        _refuse(f"index '{self.index.name}'", f"`lakewake sync {self.index.name}`")

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Any, metadatas: Any = None, **given: Any
    ) -> LakewakeVectorStore:
        """Always raises: an index is built from a table.

        Raises:
            ConfigError: always.
        """
        _refuse("a Lakewake index", "`lakewake init TABLE`, `lakewake sync`")


def opened(index: Index | str, config: str | Path | None = None) -> Index:
    """`index` itself, or the index of that name in the configuration.

    Raises:
        ConfigError: the configuration cannot be used, or has no such index.
    """
    return index if isinstance(index, Index) else open_lake(config)[index]


def row_id(row: RowId) -> str:
    """The id of a whole-row document. That of a chunk is `model.chunks.chunk_id`."""
    return json.dumps([row.partition, row.key], ensure_ascii=False, separators=(",", ":"))


def most_diverse(
    vectors: Sequence[np.ndarray], near: Sequence[float], k: int, closeness: float
) -> list[int]:
    """Positions of up to `k` vectors, by maximal marginal relevance.

    Args:
        near: how near each vector is to the query.
        closeness: 1 picks the nearest vectors, 0 the least similar to each other.
    """
    units = [v / (np.linalg.norm(v) or 1.0) for v in vectors]
    chosen: list[int] = []

    def worth(n: int) -> float:
        if not chosen:
            return near[n]
        alike = max(float(units[n] @ units[c]) for c in chosen)
        return closeness * near[n] - (1.0 - closeness) * alike

    while len(chosen) < min(k, len(units)):
        chosen.append(max((n for n in range(len(units)) if n not in chosen), key=worth))
    return chosen


def _of_hit(hit: Hit, instant: str) -> Document:
    found = {"score": hit.score, "similarity": hit.similarity, "instant": instant}
    place = {"key": hit.key, "partition": hit.partition, "field": hit.field, "chunk": hit.chunk}
    metadata = _metadata(hit.payload, {**place, **found})
    return Document(id=_chunk_id(hit), page_content=hit.text or "", metadata=metadata)


def _whole(result: SearchResult, view: View) -> list[Document]:
    held = view.rows({hit.row for hit in result.hits})
    documents = ((_of_hit(hit, result.instant), hit.row) for hit in result.hits)
    return [
        document.model_copy(update={"id": row_id(row), "page_content": held[row].text})
        for document, row in documents
    ]


def _by_ids(view: View, ids: Sequence[str]) -> list[Document]:
    rows = {id: row for id in ids if (row := _row_named(id)) is not None}
    held = view.rows(set(rows.values()))
    found = (_of_id(id, held[row], view.instant) for id, row in rows.items() if row in held)
    return [document for document in found if document is not None]


def _of_id(id: str, row: IndexedRow, instant: str) -> Document | None:
    """The chunk of that id, or the whole row if the id is a row's."""
    chunk = next((c for c in row.chunks if chunk_id(row.row, c.field, c.chunk) == id), None)
    if chunk is None and id != row_id(row.row):
        return None
    shown = chunk or row.chunks[0]
    place = {"key": row.key, "partition": row.partition, "field": shown.field, "chunk": shown.chunk}
    metadata = _metadata(row.payload, {**place, "instant": instant})
    text = (chunk.text or "") if chunk else row.text
    return Document(id=id, page_content=text, metadata=metadata)


def _metadata(payload: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    columns = {f"payload.{c}" if c in METADATA else c: v for c, v in payload.items()}
    return {**columns, **own}


def _chunk_id(hit: Hit) -> str:
    return chunk_id(hit.row, hit.field, hit.chunk)


def _row_named(id: str) -> RowId | None:
    """The row that a document id names; None if the id has another form."""
    try:
        parts = json.loads(id)
    except (ValueError, RecursionError):
        return None
    named = isinstance(parts, list) and len(parts) in (2, 4)
    return RowId(*parts[:2]) if named and all(isinstance(p, str) for p in parts[:2]) else None


def _given(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that have a value. For the others, the search has its own defaults."""
    return {name: value for name, value in asked.items() if value is not None}


def _arguments(given: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The arguments of `Index.search` for LangChain's own.

    Raises:
        ConfigError: an argument is unknown. To ignore a filter silently would find too much.
    """
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown argument {name!r}", hint=f"pass one of {', '.join(known)}")
    return {"where" if name == "filter" else name: value for name, value in given.items()}


def _refuse(what: str, command: str) -> NoReturn:
    raise ConfigError(
        f"{what} cannot be written to: it follows its table, which is the source of truth",
        hint=f"write to the Hudi table, then {command}",
    )
