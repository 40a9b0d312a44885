"""One search: check the question, retrieve by vector and words, weight, fuse, re-rank, cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lakewake.errors import ConfigError, RecipeMismatch, StoreError
from lakewake.lazy import lazy
from lakewake.model.chunks import chunk_id, text_hash
from lakewake.model.fusion import USUAL, Fusion
from lakewake.model.languages import NONE, language_of
from lakewake.model.query import Hit, Mode, Query, Question, RowChunk, SearchResult, Words
from lakewake.model.recipe import RESERVED
from lakewake.model.rows import RowId
from lakewake.model.where import And, Compare, In
from lakewake.model.words import words_of
from lakewake.search.diverse import POOL, diversified
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

T = TypeVar("T")
#: Nobody reads more rows than this, and a store would sort its whole index for them.
MAX_K = 10_000
#: How many rows a hybrid search takes from each ranking: a row of both may be far down in one. The
#: depth grows in steps, because another depth reorders rows. Pages within one step share a ranking.
HYBRID_ROWS = (200, 1_000, MAX_K + 2)
#: How many rows a search within a distance takes first, and how many times more if they are all
#: near enough. Each try compares all vectors, so there should be few of them.
WITHIN, WITHIN_MORE = 256, 8
#: How many characters of a hit show its language, for the highlight of a search by vector.
RECOGNISED_BY = 300


@dataclass(frozen=True)
class Ranking:
    """How the hits of a store are ranked further.

    Attributes:
        weights: text field → the factor for its scores; fields that are not listed have 1.
        rerank: question and texts → a score for each text, to re-rank the best rows; None: off.
        rerank_rows: how many of the best rows are re-ranked.
        languages: text field → its language; those of other fields are recognised by their texts.
        fusion: how a hybrid search merges its two rankings.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    rerank: Callable[[str, Sequence[str]], Sequence[float]] | None = None
    rerank_rows: int = 30
    languages: Mapping[str, str] = field(default_factory=dict)
    fusion: Fusion = USUAL


PLAIN = Ranking()
#: Which chunks are kept of those that were found.
Keep = Callable[[list[Hit]], list[Hit]]


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
    rows = max(rows, POOL) if question.diversity else rows
    retrieval = _Retrieval(reader, embedder, question, where, ranking)
    hits = retrieval.hits(rows)
    if question.like is not None:
        hits = [hit for hit in hits if hit.row != question.like]
    if ranking.rerank and question.text is not None:
        hits = reranked(hits, question.text, ranking)
    if question.min_score is not None:
        hits = [hit for hit in hits if hit.score >= question.min_score]
    if question.diversity:
        hits = diversified(reader, hits, question.diversity)
    page = tuple(map(retrieval.highlighted, hits[question.offset : end]))
    instant = reader.frontier().newest
    return SearchResult(
        question.index, instant, page, question.mode, question.offset, len(hits) > end
    )


def best_rows(
    reader: StoreReader,
    embedder: Embedder,
    question: Question,
    where: Where | None,
    ranking: Ranking = PLAIN,
) -> list[Hit]:
    """The `k` best rows among those that pass a filter that is parsed already; not re-ranked.

    Raises:
        ConfigError: the question is not valid.
    """
    check_question(question)
    return _Retrieval(reader, embedder, question, where, ranking).hits(question.k)[: question.k]


def matched(
    reader: StoreReader,
    embedder: Embedder,
    question: Question,
    ranking: Ranking,
    hits: Sequence[Hit],
) -> tuple[tuple[RowChunk, ...], ...]:
    """All chunks of each hit's row that match the question, in reading order.

    A chunk matches if it has one of the words (in a search by words), or if its vector scores no
    lower than the last row's best chunk, or half as high as its own row's.
    """
    if not hits:
        return ()
    rows = (
        In("_key", tuple({hit.key for hit in hits})),
        In("_partition", tuple({hit.partition for hit in hits})),
    )
    where = check_question(question)
    only = And(rows if where is None else (*rows, where))
    return _Retrieval(reader, embedder, question, only, ranking).matched(hits)


def within(
    reader: StoreReader, embedder: Embedder, question: Question, distance: float
) -> SearchResult:
    """All rows within a distance of the question, nearest first; `k` and weights do not apply.

    Raises:
        ConfigError: the question or the distance is not valid; FilterError if its filter is not.
    """
    least = least_score(reader.recipe().metric, distance)
    where = check_question(question)
    if where is not None:
        check_columns(where, reader.schema())
    asked = replace(question, exact=True, mode=Mode.VECTOR)
    retrieval, limit = _Retrieval(reader, embedder, asked, where, PLAIN), WITHIN
    hits = retrieval.hits(limit)
    while len(hits) >= limit and hits[-1].score >= least:
        limit *= WITHIN_MORE
        hits = retrieval.hits(limit)
    near = tuple(retrieval.highlighted(h) for h in hits if h.score >= least)
    return SearchResult(question.index, reader.frontier().newest, near, Mode.VECTOR)


def least_score(metric: str, distance: float) -> float:
    """The score of what is just within a distance: 1 - cosine, minus dot product, or Euclidean.

    Raises:
        ConfigError: there is no such distance.
    """
    # Of vectors that point the same way, the negative dot product is negative.
    if not math.isfinite(distance) or (distance < 0 and metric != "dot"):
        raise ConfigError(
            f"the distance is {distance}", hint="pass 0 or more, such as 0.4; 1 is a right angle"
        )
    return 1 - distance if metric == "cosine" else -distance


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


@dataclass(frozen=True)
class _Retrieval:
    """Finds the rows for one question in one version of an index."""

    reader: StoreReader
    embedder: Embedder
    question: Question
    where: Where | None
    ranking: Ranking

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
        return fuse(self._by_vector(each), self._by_words(each), self.ranking.fusion)

    def matched(self, hits: Sequence[Hit]) -> tuple[tuple[RowChunk, ...], ...]:
        """The chunks of these hits' rows that match; `where` leaves no other rows."""
        rows = {hit.row for hit in hits}
        keys, partitions = ({row.key for row in rows}, {row.partition for row in rows})
        limit, mode = len(keys) * len(partitions) + 1, self.question.mode
        near = [] if mode is Mode.KEYWORD else self._by_vector(limit, each=list)
        best = {hit.row: hit.score for hit in best_of_rows(near) if hit.row in rows}
        least = min(best.values(), default=0.0)
        chunks = [c for c in near if c.row in rows and c.score >= min(least, _half(best[c.row]))]
        if mode is not Mode.VECTOR:
            chunks += self._by_words(limit, each=list)
        found = {(c.row, c.field, c.chunk): c for c in (*chunks, *hits)}
        order = {field.name: n for n, field in enumerate(self.reader.recipe().fields)}
        ranked = sorted(found.values(), key=lambda c: (order.get(c.field, 0), c.chunk))
        return tuple(
            tuple(RowChunk(c.field, c.chunk, c.text) for c in ranked if c.row == hit.row)
            for hit in hits
        )

    def _by_vector(self, rows: int, each: Keep = best_of_rows) -> list[Hit]:
        vector, exact = self._vector(), self.question.exact
        found = (
            (weight, python_rows(self.reader.search(Query(vector, rows, where, exact))))
            for weight, where in self._by_field(self._weight)
        )
        metric = self.reader.recipe().metric
        return each(self._chunks(found, "_similarity" if metric == "cosine" else "_score"))

    def _by_words(self, rows: int, each: Keep = best_of_rows) -> list[Hit]:
        text = self.question.text or ""
        found = (
            (weight, python_rows(self.reader.keyword(Words(text, rows, where, language))))
            for (weight, language), where in self._by_field(self._scored)
        )
        return each(self._chunks(found, "_relevance"))

    def _weight(self, name: str) -> float:
        return self.ranking.weights.get(name, 1.0)

    def _scored(self, name: str) -> tuple[float, str]:
        """The weight and the language of a text field."""
        language = self.ranking.languages.get(name)
        return self._weight(name), language or self._recognised.get(name, NONE)

    @lazy
    def _recognised(self) -> Mapping[str, str]:
        """The languages of the text fields, by their texts: only a search by words reads those."""
        return self.reader.languages()

    def _by_field(self, of: Callable[[str], T]) -> list[tuple[T, Where | None]]:
        """What applies to some text fields, each with the filter for their chunks."""
        names = [f.name for f in self.reader.recipe().fields]
        each = {name: of(name) for name in names} or {"": of("")}
        if len(set(each.values())) == 1:
            # The same applies to all fields, so one search ranks them.
            return [(next(iter(each.values())), self.where)]
        of_field = {name: Compare("_field", "=", name) for name in names}
        return [
            (one, of_field[name] if self.where is None else And((self.where, of_field[name])))
            for name, one in each.items()
        ]

    def highlighted(self, hit: Hit) -> Hit:
        """The hit, with the place of its best sentence."""
        asked = self.question.text
        if asked is None or hit.text is None:
            return hit
        return replace(hit, highlight=highlight(hit.text, asked, self._language_of(hit)))

    def _language_of(self, hit: Hit) -> str:
        """The language that was searched in; a search by vector looks only at the hit."""
        known = self.ranking.languages.get(hit.field)
        if known is None and self.question.mode is not Mode.VECTOR:
            known = self._recognised.get(hit.field)
        return known or language_of(words_of((hit.text or "")[:RECOGNISED_BY]))

    def _chunks(self, found: Iterable[tuple[float, list[dict[str, Any]]]], by: str) -> list[Hit]:
        hits = []
        for weight, chunks in found:
            check_sound(chunks, self.question.index)
            hits += [_hit(chunk, by, weight) for chunk in chunks]
        return hits

    def _vector(self) -> np.ndarray:
        built_by, asked = self.reader.recipe().model, self.question
        if asked.like is not None:
            return self._vector_of(asked.like)
        if asked.text is None:
            return check_vector(asked.vector, built_by.dimension)
        check_model(asked.index, built_by, self.embedder.identity)
        return check_vector(self.embedder.embed([asked.text])[0], built_by.dimension)

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
        needs_direction = self.reader.recipe().metric == "cosine"
        return vectors[0] if needs_direction and not np.linalg.norm(mean) > 0 else mean


def _half(score: float) -> float:
    """Half as high: half the cosine or dot product, or twice the distance."""
    return score / 2 if score > 0 else score * 2


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
        score=_weighted(float(chunk[by]), weight, by),
        similarity=None if similarity is None else float(similarity),
        text=chunk["_text"],
        field=chunk["_field"],
        chunk=chunk["_chunk"],
        payload={k: v for k, v in chunk.items() if not k.startswith(RESERVED)},
    )


def _weighted(score: float, weight: float, by: str) -> float:
    """The score times the weight. A larger weight never makes a distance longer."""
    return score / weight if by == "_score" and score < 0 else score * weight


def check_question(question: Question) -> Where | None:
    """Check a question without reading the index, and return its parsed filter.

    Raises:
        ConfigError: the question is not valid; FilterError if its filter is not.
    """
    if question.k < 1 or question.offset < 0 or question.k + question.offset > MAX_K:
        after = f" after {question.offset}" if question.offset else ""
        raise ConfigError(f"k is {question.k}{after}", hint=f"ask for 1 to {MAX_K:,} rows: -k 5")
    given = (question.text, question.vector, question.like)
    # Not `count`, which compares: a NumPy array does not say whether it equals None.
    if sum(one is not None for one in given) != 1:
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
    # Written so that it refuses NaN too.
    if not 0 <= question.diversity <= 1:
        raise ConfigError(f"diversity is {question.diversity}", hint="pass 0 to 1, such as 0.3")
    return None if question.where is None else read_where(question.where)


def check_model(index: str, built_by: ModelIdentity, asked: ModelIdentity) -> None:
    """Check that an index was built with the model that embeds the questions.

    Raises:
        RecipeMismatch: it was not.
    """
    differs = built_by.differs_from(asked)
    if differs:
        both = ", ".join(f"{name} {mine!r} ≠ {yours!r}" for name, (mine, yours) in differs.items())
        raise RecipeMismatch(
            f"index {index!r} was not built with the configured model: {both}",
            hint="configure the model that the index was built with, or run "
            f"`lakewake sync {index} --rebuild`",
        )


def check_vector(vector: object, dimension: int) -> np.ndarray:
    """The vector of a question as float32.

    Raises:
        ConfigError: it is not a list of this many finite numbers.
    """
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
