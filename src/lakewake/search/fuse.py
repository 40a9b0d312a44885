"""Merges several rankings of rows into one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lakewake.model.fusion import USUAL, Fusion
from lakewake.model.query import Hit
from lakewake.model.rows import RowId

#: The constant of the paper on reciprocal rank fusion. It flattens the weights of the first ranks.
RANKS = 60


def best_of_rows(hits: Iterable[Hit]) -> list[Hit]:
    """Each row once, with its best chunk, best first. Equal scores are ordered by row."""
    best: dict[RowId, Hit] = {}
    for hit in hits:
        row = hit.row
        if row not in best or hit.score > best[row].score:
            best[row] = hit
    ordered = sorted(best.items(), key=lambda item: (-item[1].score, item[0]))
    return [hit for _, hit in ordered]


def fuse(by_vector: Sequence[Hit], by_words: Sequence[Hit], how: Fusion = USUAL) -> list[Hit]:
    """Rows high in either ranking, and higher if in both.

    A row in both is shown with the chunk that has the words, and the similarity of the other chunk.
    """
    scores: dict[RowId, float] = {}
    shown: dict[RowId, Hit] = {}
    score_of = _SCORES[how.by]
    for ranking, share in ((by_vector, how.share), (by_words, 1 - how.share)):
        for hit, score in zip(ranking, score_of(ranking), strict=True):
            scores[hit.row] = scores.get(hit.row, 0.0) + share * score
            former = shown.get(hit.row)
            near = hit.similarity if former is None else former.similarity
            shown[hit.row] = replace(hit, similarity=near)
    fused = (replace(hit, score=scores[row]) for row, hit in shown.items())
    return sorted(fused, key=lambda h: (-h.score, h.row))


def _by_ranks(ranking: Sequence[Hit]) -> list[float]:
    return [1 / (RANKS + rank) for rank in range(1, len(ranking) + 1)]


def scaled(ranking: Sequence[Hit]) -> list[float]:
    """The scores, from 1 for the best to 0 for the last; 1 if all are equal."""
    if not ranking:
        return []
    best, last = ranking[0].score, ranking[-1].score
    return [(hit.score - last) / (best - last) if best > last else 1.0 for hit in ranking]


_SCORES: dict[str, Callable[[Sequence[Hit]], list[float]]] = {
    "scores": scaled,
    "ranks": _by_ranks,
}
