"""Merges several rankings of rows into one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakewake.model.query import Hit
from lakewake.model.rows import RowId

#: The constant of the paper on reciprocal rank fusion. It flattens the weights of the first ranks.
RANKS = 60


def best_of_rows(hits: Iterable[Hit]) -> list[Hit]:
    """Each row once, with its best chunk, best first. Equal scores are ordered by row."""
    best: dict[RowId, Hit] = {}
    for hit in hits:
        if hit.row not in best or hit.score > best[hit.row].score:
            best[hit.row] = hit
    return sorted(best.values(), key=lambda h: (-h.score, h.row))


def fuse(by_vector: Sequence[Hit], by_words: Sequence[Hit]) -> list[Hit]:
    """Reciprocal rank fusion: rows high in either ranking, and higher if in both.

    A row in both is shown with the chunk that has the words, and the similarity of the other chunk.
    """
    scores: dict[RowId, float] = {}
    shown: dict[RowId, Hit] = {}
    for ranking in (by_vector, by_words):
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.row] = scores.get(hit.row, 0.0) + 1 / (RANKS + rank)
            former = shown.get(hit.row)
            near = hit.similarity if former is None else former.similarity
            shown[hit.row] = replace(hit, similarity=near)
    fused = (replace(hit, score=scores[row]) for row, hit in shown.items())
    return sorted(fused, key=lambda h: (-h.score, h.row))
