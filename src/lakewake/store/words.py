"""Finding chunks by words, without an index: what every store's keyword search amounts to. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakewake.model.words import words_of
from lakewake.store.nearest import HIDDEN

#: Okapi BM25, with the constants that everybody uses.
K1, B = 1.2, 0.75


def relevance(texts: Sequence[str | None], question: str) -> np.ndarray:
    """How well each text answers the question's words, by BM25; 0 where it has none of them."""
    counts = [Counter(words_of(text or "")) for text in texts]
    lengths = np.array([c.total() for c in counts], np.float64)
    mean = lengths.mean() if len(texts) else 0.0
    out = np.zeros(len(texts))
    for word in sorted(set(words_of(question))):
        have = np.array([c[word] for c in counts], np.float64)
        among = int((have > 0).sum())
        rarity = math.log(1 + (len(texts) - among + 0.5) / (among + 0.5))
        out += rarity * have * (K1 + 1) / (have + K1 * (1 - B + B * lengths / max(mean, 1)))
    return out


def by_words(chunks: pa.Table, question: str) -> pa.Table:
    """The chunks that have any of the question's words, best first, with `_relevance`."""
    return best_first(chunks, relevance(chunks["_text"].to_pylist(), question))


def best_first(chunks: pa.Table, scores: np.ndarray) -> pa.Table:
    """Chunks with a score above 0, by it and then by id, without the hidden columns."""
    shown = chunks.drop_columns([c for c in HIDDEN if c in chunks.column_names])
    order = np.lexsort((chunks["_id"].to_numpy(), -scores))
    order = order[scores[order] > 0]
    told = pa.array(scores.tolist(), pa.float64())
    return shown.append_column("_relevance", told).take(pa.array(order.tolist(), pa.int64()))
