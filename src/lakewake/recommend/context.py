"""Which chunks of the rows found a model is shown, within a budget of tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lakewake.model.query import Hit, RowChunk, SearchResult

#: Characters of one token: about four in Latin script, one in others.
PER_TOKEN = 4


@dataclass(frozen=True)
class Context:
    """The rows found, and all chunks of each that match, best rows first."""

    found: SearchResult
    matched: tuple[tuple[RowChunk, ...], ...] = ()

    def within(self, tokens: int) -> Context:
        """The same with as many chunks as the budget allows.

        Each row has its best chunk, whatever it costs. Then rows take turns with their other
        chunks, in the order in which they were found.
        """
        if not self.matched:
            return self
        kept = [[chunk for chunk in row if _is_best(chunk, hit)] for hit, row in self._pairs]
        left = tokens - sum(token_count(chunk.text or "") for row in kept for chunk in row)
        others = [[c for c in row if not _is_best(c, hit)] for hit, row in self._pairs]
        for turn in range(max(map(len, others), default=0)):
            for row, own in zip(kept, others, strict=True):
                cost = token_count(own[turn].text or "") if turn < len(own) else left + 1
                if cost <= left:
                    row.append(own[turn])
                    left -= cost
        order = [
            tuple(c for c in row if c in keep)
            for (_, row), keep in zip(self._pairs, kept, strict=True)
        ]
        return replace(self, matched=tuple(order))

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The hits, each with the text of all its chunks."""
        if not self.matched:
            return self.found.hits
        return tuple(
            replace(hit, text=_text(row)) if len(row) > 1 else hit for hit, row in self._pairs
        )

    @property
    def _pairs(self) -> Sequence[tuple[Hit, tuple[RowChunk, ...]]]:
        rows = self.matched or ((),) * len(self.found.hits)
        return tuple(zip(self.found.hits, rows, strict=True))


def token_count(text: str) -> int:
    """About how many tokens a text has for a chat model, whose own tokens are not known."""
    plain = sum(character < "\u0370" for character in text)
    return -(-plain // PER_TOKEN) + len(text) - plain


def _is_best(chunk: RowChunk, hit: Hit) -> bool:
    return (chunk.field, chunk.chunk) == (hit.field, hit.chunk)


def _text(row: Sequence[RowChunk]) -> str:
    """The chunks' texts in reading order, with a mark where something between them is left out."""
    joined = row[0].text or ""
    for before, chunk in pairwise(row):
        follows = before.field == chunk.field and before.chunk + 1 == chunk.chunk
        joined += (" " if follows else " … ") + (chunk.text or "")
    return joined
