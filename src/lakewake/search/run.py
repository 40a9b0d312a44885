"""One search: check the question, retrieve by vector and words, weight, fuse, re-rank, cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.errors import ConfigError, RecipeMismatch, StoreError
from lakewake.model.chunks import chunk_id, text_hash
from lakewake.model.query import Hit, Mode, Query, Question, SearchResult, Words
from lakewake.model.recipe import RESERVED
from lakewake.model.rows import RowId
from lakewake.model.where import And, Compare
from lakewake.search.fuse import best_of_rows, fuse
from lakewake.search.highlight import highlight
from lakewake.search.values import python_rows
from lakewake.search.where import check_columns
from lakewake.search.where_json import read_where

if TYPE_CHECKING:
    from lakewake.embed import Embedder
    from lakewake.model.recipe import ModelIdentity
    from lakewake.model.where import Where
    from lakewake.store import StoreReader


#: Nobody reads more rows than this, and a store would sort its whole index for them.
MAX_K = 10_000
#: How many rows a hybrid search takes from each ranking: a row of both may be far down in one. The
#: depth grows in steps, because another depth reorders rows. Pages within one step share a ranking.
HYBRID_ROWS = (200, 1_000, MAX_K + 2)


@dataclass(frozen=True)
class Ranking:
    """How the hits of a store are ranked further.

    Attributes:
        weights: text field → the factor for its scores; fields that are not listed have 1.
        rerank: question and texts → a score for each text, to re-rank the best rows; None: off.
        rerank_rows: how many of the best rows are re-ranked.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    rerank: Callable[[str, Sequence[str]], Sequence[float]] | None = None
    rerank_rows: int = 30


PLAIN = Ranking()


def search(
    reader: StoreReader, embedder: Embedder, question: Question, ranking: Ranking = PLAIN
) -> SearchResult:
    """The `k` best rows for the question, each with its best chunk, best first.

    Raises:
        ConfigError: the question is not valid; FilterError if its filter is not.
        RecipeMismatch: the index was not built with the model that embeds the text.
        StoreError: the index is damaged.
        EmbedError: the model or the re-ranking service failed.
    """
    where = check_question(question)
    if where is not None:
        check_columns(where, reader.schema())
    end = question.offset + question.k
    rows = max(end + 1, ranking.rerank_rows if ranking.rerank else 0)
    hits = _Retrieval(reader, embedder, question, where, ranking.weights).hits(rows)
    hits = [hit for hit in hits if hit.row != question.like]
    if ranking.rerank and question.text is not None:
        hits = reranked(hits, question.text, ranking)
    if question.min_score is not None:
        hits = [hit for hit in hits if hit.score >= question.min_score]
    page = tuple(_highlighted(hit, question.text) for hit in hits[question.offset : end])
    instant = reader.frontier().newest
    return SearchResult(
        question.index, instant, page, question.mode, question.offset, len(hits) > end
    )


def reranked(hits: Sequence[Hit], question: str, ranking: Ranking) -> list[Hit]:
    """The best rows, re-ranked, followed by the others in their old order."""
    assert ranking.rerank is not None
    first, rest = hits[: ranking.rerank_rows], hits[ranking.rerank_rows :]
    if not first:
        return list(rest)
    scores = ranking.rerank(question, [hit.text or "" for hit in first])
    rescored = [replace(hit, score=float(s)) for hit, s in zip(first, scores, strict=True)]
    lowest = min(hit.score for hit in rescored)
    # Rows that were not re-ranked must not score higher than rows that were.
    behind = [replace(hit, score=min(hit.score, lowest)) for hit in rest]
    return [*best_of_rows(rescored), *behind]


def _highlighted(hit: Hit, question: str | None) -> Hit:
    if question is None or hit.text is None:
        return hit
    return replace(hit, highlight=highlight(hit.text, question))


@dataclass(frozen=True)
class _Retrieval:
    """Finds the rows for one question in one version of an index."""

    reader: StoreReader
    embedder: Embedder
    question: Question
    where: Where | None
    weights: Mapping[str, float]

    def hits(self, rows: int) -> list[Hit]:
        """Rows, best first: at least `rows` of them if the index has as many."""
        # The row given as `like` is found too, and left out later.
        rows += self.question.like is not None
        if self.question.mode is Mode.VECTOR:
            return self._by_vector(rows)
        if not self.reader.recipe().fields:
            raise ConfigError(
                f"index '{self.question.index}' holds vectors from a table column, and no text to "
                "search for words",
                hint="search it with mode vector",
            )
        if self.question.mode is Mode.KEYWORD:
            return self._by_words(rows)
        each = next(depth for depth in HYBRID_ROWS if depth >= rows)
        return fuse(self._by_vector(each), self._by_words(each))

    def _by_vector(self, rows: int) -> list[Hit]:
        vector, exact = self._vector(), self.question.exact
        found = (
            (weight, python_rows(self.reader.search(Query(vector, rows, where, exact))))
            for weight, where in self._fields()
        )
        return self._ranked(found, "_similarity")

    def _by_words(self, rows: int) -> list[Hit]:
        text = self.question.text or ""
        found = (
            (weight, python_rows(self.reader.keyword(Words(text, rows, where))))
            for weight, where in self._fields()
        )
        return self._ranked(found, "_relevance")

    def _fields(self) -> list[tuple[float, Where | None]]:
        """Weights, each with the filter for the chunks that it applies to."""
        names = [f.name for f in self.reader.recipe().fields]
        weights = {name: self.weights.get(name, 1.0) for name in names}
        if len(set(weights.values())) <= 1:
            # All fields have the same weight, so one search ranks them.
            return [(next(iter(weights.values()), 1.0), self.where)]
        of_field = {name: Compare("_field", "=", name) for name in names}
        return [
            (weight, of_field[name] if self.where is None else And((self.where, of_field[name])))
            for name, weight in weights.items()
        ]

    def _ranked(self, found: Iterable[tuple[float, list[dict[str, Any]]]], by: str) -> list[Hit]:
        hits = []
        for weight, chunks in found:
            check_sound(chunks, self.question.index)
            hits += [_hit(chunk, by, weight) for chunk in chunks]
        return best_of_rows(hits)

    def _vector(self) -> np.ndarray:
        built_by, asked = self.reader.recipe().model, self.question
        if asked.like is not None:
            return self._vector_of(asked.like)
        if asked.text is None:
            return _checked(asked.vector, built_by.dimension)
        _check_model(asked.index, built_by, self.embedder.identity)
        return _checked(self.embedder.embed([asked.text])[0], built_by.dimension)

    def _vector_of(self, row: RowId) -> np.ndarray:
        """The mean of the vectors of a row's chunks."""
        chunks = self.reader.existing([row]).get(row, ())
        vectors = list(self.reader.vectors({c.hash for c in chunks}).values())
        if not vectors:
            raise ConfigError(
                f"index '{self.question.index}' holds nothing of row {row.key!r}"
                + (f" in partition {row.partition!r}" if row.partition else ""),
                hint="pass key and partition (`--partition` in a shell) as a hit shows them",
            )
        mean: np.ndarray = np.asarray(np.mean(vectors, axis=0), np.float32)
        return mean if np.linalg.norm(mean) > 0 else vectors[0]


def check_sound(chunks: list[dict[str, Any]], index: str) -> None:
    """Check that the id and hash of each chunk match its key and text.

    Raises:
        StoreError: they do not match, so the index is damaged.
    """
    for chunk in chunks:
        row, text = RowId(chunk["_partition"], chunk["_key"]), chunk["_text"]
        sound = chunk["_id"] == chunk_id(row, chunk["_field"], chunk["_chunk"])
        if not sound or (text is not None and text_hash(text) != chunk["_hash"]):
            raise StoreError(
                f"index '{index}' is damaged: what it holds of {row.key!r} contradicts itself",
                hint=f"run `lakewake verify {index} --repair` or `lakewake sync {index} --rebuild`",
            )


def _hit(chunk: dict[str, Any], by: str, weight: float) -> Hit:
    similarity = chunk.get("_similarity")
    return Hit(
        key=chunk["_key"],
        partition=chunk["_partition"],
        score=float(chunk[by]) * weight,
        similarity=None if similarity is None else float(similarity),
        text=chunk["_text"],
        field=chunk["_field"],
        chunk=chunk["_chunk"],
        payload={k: v for k, v in chunk.items() if not k.startswith(RESERVED)},
    )


def check_question(question: Question) -> Where | None:
    """Check a question without reading the index, and return its parsed filter.

    Raises:
        ConfigError: the question is not valid; FilterError if its filter is not.
    """
    if question.k < 1 or question.offset < 0 or question.k + question.offset > MAX_K:
        after = f" after {question.offset}" if question.offset else ""
        raise ConfigError(f"k is {question.k}{after}", hint=f"ask for 1 to {MAX_K:,} rows: -k 5")
    if [question.text, question.vector, question.like].count(None) != 2:
        raise ConfigError(
            "a search takes either a text, a vector, or a row that the hits should be like",
            hint="pass exactly one of them",
        )
    if question.text is not None and not question.text.strip():
        raise ConfigError("the text to search for is blank", hint="pass a text to search for")
    if question.text is None and question.mode is not Mode.VECTOR:
        raise ConfigError(
            f"mode {question.mode.value} searches by words and needs a text",
            hint="search with a text, or with mode vector",
        )
    if question.min_score is not None and not math.isfinite(question.min_score):
        raise ConfigError(
            f"min_score cannot be {question.min_score}",
            hint="pass a finite number",
        )
    return None if question.where is None else read_where(question.where)


def _check_model(index: str, built_by: ModelIdentity, asked: ModelIdentity) -> None:
    differs = built_by.differs_from(asked)
    if differs:
        both = ", ".join(f"{name} {mine!r} ≠ {yours!r}" for name, (mine, yours) in differs.items())
        raise RecipeMismatch(
            f"index {index!r} was not built with the configured model: {both}",
            hint="configure the model that the index was built with, or run "
            f"`lakewake sync {index} --rebuild`",
        )


def _checked(vector: object, dimension: int) -> np.ndarray:
    wanted = f"pass a list of {dimension} finite numbers"
    try:
        # A number that is too large becomes infinite, and is refused below.
        with np.errstate(over="ignore"):
            out = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigError("the query vector is not a list of numbers", hint=wanted) from error
    if out.shape != (dimension,):
        raise ConfigError(
            f"the query vector has shape {out.shape}, the index {dimension} dimensions", hint=wanted
        )
    if not np.isfinite(out).all():
        raise ConfigError("the query vector holds a number that is not finite", hint=wanted)
    return out
