"""The judgement of a probe is not a matter of luck."""

from __future__ import annotations

import numpy as np
import pytest

from lakewake.model.recall import DELETED, RECALL, Effort, Probed
from lakewake.store import recall
from lakewake.store.deleted import KEPT
from lakewake.store.recall import PER_KIND

ROUNDS = 1_000
EFFORTS = (Effort(128, 1), Effort(256, 1))


def accepted(misses: float, rng: np.random.Generator) -> int:
    """In how many of all rounds the cheaper effort passes.

    It finds all about what the index holds; of the questions about deleted vectors, `misses` of
    them miss one or two of the ten nearest, as seen of Qdrant's graph.
    """
    asked = recall.questions(
        rng.normal(size=(3 * PER_KIND, 4)), rng.normal(size=(KEPT, 4)), (), rng
    )

    def measure(effort: Effort) -> Probed:
        gone = len(asked[DELETED])
        shares = np.ones(recall.number(asked))
        if effort == EFFORTS[0]:
            shares[-gone:] -= rng.choice([0.1, 0.2], gone) * (rng.random(gone) < misses)
        return recall.judged(asked, shares.tolist(), effort)

    assert [*asked][-1] == DELETED
    tried = [recall.cheapest(measure, EFFORTS, RECALL) for _ in range(ROUNDS)]
    return sum(probed is not None and probed.effort == EFFORTS[0] for probed in tried)


@pytest.mark.parametrize("seed", range(3))
def test_an_effort_that_misses_a_fiftieth_around_deleted_vectors_does_not_pass_by_luck(
    seed: int,
) -> None:
    assert accepted(0.02 / 0.15, np.random.default_rng(seed)) <= ROUNDS // 1_000


@pytest.mark.parametrize("seed", range(3))
def test_an_effort_that_misses_very_little_passes(seed: int) -> None:
    assert accepted(0.001 / 0.15, np.random.default_rng(seed)) >= 0.99 * ROUNDS
