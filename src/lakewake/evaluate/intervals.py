"""Intervals of means, by the bootstrap: what the mean would be with other questions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakewake.model.evaluation import Mean

#: How often questions are drawn, and the share of the means that an interval covers.
DRAWS, COVERED = 2_000, 0.95
#: How many numbers are drawn at once.
AT_ONCE = 4_000_000


def mean_of(values: Sequence[float]) -> Mean:
    """The mean, with the interval of means of as many questions drawn from these.

    The same values always have the same interval.
    """
    if not values:
        return Mean(0.0, 0.0, 0.0)
    known, dice = np.asarray(values, np.float64), np.random.default_rng(0)
    each = max(1, AT_ONCE // len(known))
    sizes = [min(each, DRAWS - done) for done in range(0, DRAWS, each)]
    drawn = [known[dice.integers(0, len(known), (n, len(known)))].mean(axis=1) for n in sizes]
    rest = 100 * (1 - COVERED) / 2
    low, high = np.percentile(np.concatenate(drawn), [rest, 100 - rest])
    return Mean(float(known.mean()), float(low), float(high))
