"""When cells are trained again, when the new ones are used, and what is kept about it. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakewake.model.recall import Decision, Effort, Probed, Retrained
from lakewake.store.hudi.recall import (
    MIN_CELLS,
    Counted,
    Found,
    efforts,
    no_worse,
    retrain_due,
)

CELLS, CHUNKS = 640, 320_000


def probed(probes: int, mean: float = 1.0, worst: float = 1.0) -> Probed:
    return Probed(Effort(probes, 1), mean, worst, {"stored": mean})


def found(plain: Probed | None, retrained: Retrained | None = None, changes: int = 0) -> Found:
    decision = Decision(plain, None, "2026-01-01T00:00:00+00:00", 24, 0.95, CHUNKS)
    counted = Counted("20260101000000000", total=changes)
    return Found(decision, "20260101000000000", "g1-a", counted, retrained)


REFUSED = Retrained("2026-01-01T00:00:00+00:00", False, "no better", changes=1000)


@pytest.mark.parametrize(
    ("plain", "due"), [(probed(80), False), (probed(81), True), (None, True), (probed(10), False)]
)
def test_cells_are_trained_again_if_more_than_an_eighth_has_to_be_read(
    plain: Probed | None, due: bool
) -> None:
    assert retrain_due(found(plain), CELLS, CHUNKS) is due


def test_few_cells_are_never_trained_again() -> None:
    assert not retrain_due(found(None), MIN_CELLS - 1, CHUNKS)
    assert retrain_due(found(None), MIN_CELLS, CHUNKS)


def test_after_a_retrain_that_was_not_used_half_of_the_index_has_to_change() -> None:
    enough = REFUSED.changes + CHUNKS // 2
    assert not retrain_due(found(None, REFUSED, enough), CELLS, CHUNKS)
    assert retrain_due(found(None, REFUSED, enough + 1), CELLS, CHUNKS)


def measured(recalls: dict[int, float]) -> tuple[list[int], Probed | None]:
    """The efforts that were measured, and the one that was taken, beside old cells at 20 of 640."""
    tried: list[int] = []

    def measure(effort: Effort) -> Probed:
        tried.append(effort.probes)
        return probed(effort.probes, recalls.get(effort.probes, 0.0))

    return tried, no_worse(measure, CELLS, probed(20, 0.98), CELLS, 0.95)


def test_new_cells_are_used_if_they_find_no_less_by_reading_no_more() -> None:
    tried, taken = measured({10: 0.981})
    assert taken == probed(10, 0.981)
    assert tried == [10]
    assert measured({10: 0.9, 20: 0.98})[1] == probed(20, 0.98)


def test_new_cells_that_keep_the_promise_but_find_less_are_not_used() -> None:
    tried, taken = measured({10: 0.979, 20: 0.979})
    assert taken is None
    assert tried == [10, 20], "cells were measured that take more reading"


def test_the_worst_questions_count_too() -> None:
    def measure(effort: Effort) -> Probed:
        return probed(effort.probes, 1.0, 0.91)

    assert no_worse(measure, CELLS, probed(20, 0.98, 0.92), CELLS, 0.95) is None
    assert no_worse(measure, CELLS, probed(20, 0.98, 0.91), CELLS, 0.95) is not None


def test_shares_are_compared_if_there_are_more_cells_than_before() -> None:
    # A twentieth of 100 old cells is as much as a twentieth of 640 new ones.
    taken = no_worse(lambda e: probed(e.probes, 1.0), CELLS, probed(5), 100, 0.95)
    assert taken is not None
    assert taken.effort.probes <= CELLS / 20


def test_beside_cells_that_keep_no_promise_the_promise_decides() -> None:
    taken = no_worse(lambda e: probed(e.probes, e.probes / CELLS * 2), CELLS, None, CELLS, 0.95)
    assert taken == probed(320, 1.0)
    assert no_worse(lambda e: probed(e.probes, 0.5), CELLS, None, CELLS, 0.95) is None
    assert max(e.probes for e in efforts(CELLS)) == 320


def test_what_a_probe_found_is_read_back_unchanged() -> None:
    kept = found(probed(9), REFUSED, 7)
    assert Found.from_bytes(kept.to_bytes()) == kept


def test_what_an_earlier_version_kept_is_read() -> None:
    kept = found(probed(9))
    old = {"instant": kept.instant, "decision": kept.decision.to_json()}
    assert Found.from_bytes(json.dumps(old).encode()) == replace(kept, table="", counted=None)


@pytest.mark.parametrize("key", ["counted", "retrained"])
def test_what_a_later_version_may_keep_is_not_understood(key: str) -> None:
    value = json.loads(found(probed(9), REFUSED).to_bytes())
    value[key]["unheard_of"] = 1
    assert Found.from_bytes(json.dumps(value).encode()) is None


def test_a_probe_is_valid_for_later_states_of_its_own_table() -> None:
    kept, there = (
        found(probed(9)),
        ["20260101000000000_1.deltacommit", "20260102000000000_2.commit"],
    )
    assert kept.fits("g1-a", "20260101000000000", there)
    assert kept.fits("g1-a", "20260102000000000", there)
    assert not kept.fits("g1-a", "20251231000000000", there)
    assert not kept.fits("g1-b", "20260101000000000", there)
    assert replace(kept, table="").fits("g1-b", "20260101000000000", there)


def test_a_probe_of_a_state_that_a_restore_undid_is_not_valid() -> None:
    kept, restored = found(probed(9)), "20260103000000000"
    before = ["20251231000000000_1.deltacommit", f"{restored}_2.restore"]
    assert not kept.fits("g1-a", restored, before)
    # Of a state whose commit only has left the timeline, it still is.
    assert kept.fits("g1-a", restored, [f"{restored}_2.restore"])


def test_changes_are_counted_on_from_where_the_last_count_ended() -> None:
    first = Counted("1").plus(10, 3, "2")
    assert first == Counted("2", 10, 3, 13)
    assert first.plus(1, 0, "3") == Counted("3", 11, 3, 14)
