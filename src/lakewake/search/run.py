"""One search: check the question, embed it, ask the store, keep the best chunk of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.errors import ConfigError, RecipeMismatch, StoreError
from lakewake.model.chunks import RESERVED, chunk_id, text_hash
from lakewake.model.query import Hit, Query, Question, SearchResult
from lakewake.model.rows import RowId
from lakewake.search.where import check_columns, parse_where

if TYPE_CHECKING:
    from lakewake.embed import Embedder
    from lakewake.model.recipe import ModelIdentity
    from lakewake.model.where import Where
    from lakewake.store import StoreReader


#: More than anybody reads; a store would sort its whole index for it.
MAX_K = 10_000


def search(reader: StoreReader, embedder: Embedder, question: Question) -> SearchResult:
    """The `k` rows nearest to the question, each with its best chunk, best first.

    Raises:
        ConfigError: k, the text or the vector cannot be used; FilterError for the filter.
        RecipeMismatch: the index was built by another model than the one that would embed the text.
        StoreError: the index is damaged.
    """
    where = check_question(question)
    if where is not None:
        check_columns(where, reader.schema())
    vector = _vector(reader, embedder, question)
    found = reader.search(Query(vector, question.k, where, question.exact))
    chunks = found.to_pylist()
    check_sound(chunks, question.index)
    hits = best_hits(chunks, question.k)
    return SearchResult(question.index, reader.frontier().newest, hits)


def best_hits(chunks: list[dict[str, Any]], k: int) -> tuple[Hit, ...]:
    """The first `k` rows of chunks that come best first, each with its best chunk."""
    best: dict[RowId, dict[str, Any]] = {}
    for chunk in chunks:
        best.setdefault(RowId(chunk["_partition"], chunk["_key"]), chunk)
    return tuple(_hit(row, chunk) for row, chunk in list(best.items())[:k])


def check_sound(chunks: list[dict[str, Any]], index: str) -> None:
    """Refuse to pass on what a damaged file says: ids and hashes tell a row's key and text.

    Raises:
        StoreError: a chunk contradicts itself.
    """
    for chunk in chunks:
        row, text = RowId(chunk["_partition"], chunk["_key"]), chunk["_text"]
        sound = chunk["_id"] == chunk_id(row, chunk["_field"], chunk["_chunk"])
        if not sound or (text is not None and text_hash(text) != chunk["_hash"]):
            raise StoreError(
                f"index '{index}' is damaged: what it holds of {row.key!r} contradicts itself",
                hint=f"`lakewake verify {index} --repair`, or `lakewake sync {index} --rebuild`",
            )


def _hit(row: RowId, chunk: dict[str, Any]) -> Hit:
    similarity = float(chunk["_similarity"])
    return Hit(
        key=row.key,
        partition=row.partition,
        score=similarity,
        similarity=similarity,
        text=chunk["_text"],
        field=chunk["_field"],
        chunk=chunk["_chunk"],
        payload={k: v for k, v in chunk.items() if not k.startswith(RESERVED)},
    )


def check_question(question: Question) -> Where | None:
    """Refuse a question that no index could answer; its filter, parsed.

    Raises:
        ConfigError: k, the text or the vector cannot be used; FilterError for the filter.
    """
    if not 1 <= question.k <= MAX_K:
        raise ConfigError(f"k is {question.k}", hint=f"ask for 1 to {MAX_K:,} rows: -k 5")
    if (question.text is None) == (question.vector is None):
        raise ConfigError("a search takes a text or a vector, one of them")
    if question.text is not None and not question.text.strip():
        raise ConfigError("the text to search for is blank", hint="say what to look for")
    return None if question.where is None else parse_where(question.where)


def _vector(reader: StoreReader, embedder: Embedder, question: Question) -> np.ndarray:
    built_by = reader.recipe().model
    if question.text is None:
        return _checked(question.vector, built_by.dimension)
    _check_model(question.index, built_by, embedder.identity)
    return _checked(embedder.embed([question.text])[0], built_by.dimension)


def _check_model(index: str, built_by: ModelIdentity, asked: ModelIdentity) -> None:
    differs = built_by.differs_from(asked)
    if differs:
        both = ", ".join(f"{name} {mine!r} ≠ {yours!r}" for name, (mine, yours) in differs.items())
        raise RecipeMismatch(
            f"index {index!r} was built by another model than the one set: {both}",
            hint="set the model that the index was built by, or build the index again",
        )


def _checked(vector: object, dimension: int) -> np.ndarray:
    try:
        out = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigError("the query vector is no list of numbers") from error
    if out.shape != (dimension,):
        raise ConfigError(
            f"the query vector has shape {out.shape}, the index {dimension} dimensions"
        )
    if not np.isfinite(out).all():
        raise ConfigError("the query vector holds a number that is not finite")
    return out
