"""How good one ranking is. Pure. The values are those of ir-measures and trec_eval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

#: How many rows count for the gain, and for recall and the reciprocal rank.
GAIN_ROWS, DEPTH = 10, 100


def ndcg(ranking: Sequence[str], relevant: Mapping[str, float]) -> float:
    """nDCG@10: the gain of the best ten, by the gain of an ideal ranking."""
    gains = [max(relevant.get(key, 0.0), 0.0) for key in ranking[:GAIN_ROWS]]
    ideal = sorted((grade for grade in relevant.values() if grade > 0), reverse=True)
    best = _discounted(ideal[:GAIN_ROWS])
    return _discounted(gains) / best if best else 0.0


def recall(ranking: Sequence[str], relevant: Mapping[str, float]) -> float:
    """recall@100: the share of the relevant rows among the best hundred."""
    wanted = {key for key, grade in relevant.items() if grade > 0}
    return len(wanted & set(ranking[:DEPTH])) / len(wanted) if wanted else 0.0


def reciprocal_rank(ranking: Sequence[str], relevant: Mapping[str, float]) -> float:
    """1 / the rank of the first relevant row among the best hundred; 0 if there is none."""
    ranks = (n for n, key in enumerate(ranking[:DEPTH], start=1) if relevant.get(key, 0) > 0)
    return 1 / next(ranks, math.inf)


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(n + 2) for n, gain in enumerate(gains))


#: Name in reports → what it measures. `MRR` is the mean of the reciprocal ranks.
METRICS = {"ndcg@10": ndcg, "recall@100": recall, "mrr": reciprocal_rank}
