"""An answer without a model: the sentences of the rows that best match the question. Pure.

It invents nothing: every sentence is quoted word for word from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakewake.model.query import Hit
from lakewake.model.rows import RowId
from lakewake.model.sentences import sentences
from lakewake.model.words import stems
from lakewake.recommend.tame import cut, speaks_to_a_model, tame

#: Most rows that an answer quotes, most characters of one quote, and most characters of a text that
#: are searched for one.
QUOTED, LONGEST, SEARCHED = 3, 300, 20_000
#: Payload columns that may hold a row's title.
TITLES = ("name", "title", "label")
#: The weight of the best hit's rank; a sentence with every word of the question has weight 1.
RANK = 0.5


@dataclass(frozen=True)
class Extract:
    """Sentences of the best rows, each followed by the number of its row among the hits."""

    message: str
    used: tuple[RowId, ...]


@dataclass(frozen=True)
class _Quote:
    worth: float
    n: int
    text: str


def extract(query: str, hits: Sequence[Hit]) -> Extract | None:
    """The best sentence of each of the best rows; None if no row has anything to quote."""
    asked = stems(query)
    ranks = _ranks(hits)
    found = (
        _quote(asked, hit, n, rank) for n, (hit, rank) in enumerate(zip(hits, ranks, strict=True))
    )
    quotes = sorted((q for q in found if q is not None), key=lambda q: (-q.worth, q.n))[:QUOTED]
    if not quotes:
        return None
    quotes.sort(key=lambda q: q.n)
    message = " ".join(f"{q.text} [{q.n + 1}]" for q in quotes)
    return Extract(message, tuple(RowId(hits[q.n].partition, hits[q.n].key) for q in quotes))


def _ranks(hits: Sequence[Hit]) -> list[float]:
    """Each hit's score, scaled to 0 to 1: a re-ranker's scores have no fixed range."""
    scores = [hit.score for hit in hits]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(s - low) / (high - low) if high > low else 1.0 for s in scores]


def _quote(asked: frozenset[str], hit: Hit, n: int, rank: float) -> _Quote | None:
    title = _title(hit)
    best, worth = "", -1.0
    for sentence in _sentences(hit):
        overlap = len(asked & stems(f"{title} {sentence}")) / max(len(asked), 1)
        if sentence.rstrip(".!?") != title and overlap > worth:
            best, worth = sentence, overlap
    text = title if not best else best if not title or title in best else f"{title}: {best}"
    return _Quote(max(worth, 0.0) + RANK * rank, n, cut(text, LONGEST)) if text else None


def _title(hit: Hit) -> str:
    named = (hit.payload.get(column) for column in TITLES)
    found = next((v for v in named if isinstance(v, str) and v.strip()), "")
    return "" if speaks_to_a_model(found) else " ".join(tame(found).split()).rstrip(".!?")


def _sentences(hit: Hit) -> list[str]:
    """The text's sentences, except those that speak to a model."""
    text = tame((hit.text or "")[:SEARCHED])
    parts = (text[start:end] for start, end in sentences(text))
    return [" ".join(p.split()) for p in parts if not speaks_to_a_model(p)]
