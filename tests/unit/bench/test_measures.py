"""Only its numbers decide whether a bar is met."""

from __future__ import annotations

import pytest

from bench.measures import Measure, Outcome, percentile


def test_a_value_within_its_bound_meets_the_bar() -> None:
    assert Outcome((Measure("x", 1.7, "≤", 2),)).as_text() == "met 1.7 (≤ 2)"


def test_a_value_beyond_its_bound_misses_the_bar() -> None:
    assert Outcome((Measure("x", 2.6, "≤", 2),)).as_text() == "missed 2.6 (≤ 2)"


def test_one_missed_measure_of_several_misses_the_bar() -> None:
    outcome = Outcome((Measure("x", 1, "≤", 2), Measure("y", 99, "≥", 100)))
    assert outcome.as_text() == "missed 1 (≤ 2), 99 (≥ 100)"


def test_a_bar_without_its_number_is_not_met() -> None:
    assert Outcome((Measure("x", None, "≤", 2),)).verdict == "not run"


def test_a_miss_counts_even_if_another_number_is_missing() -> None:
    outcome = Outcome((Measure("x", None, "≤", 2), Measure("y", 3, "≤", 2)))
    assert outcome.verdict == "missed"


def test_a_number_without_a_bound_is_only_reported() -> None:
    outcome = Outcome((Measure("x", 1, "≤", 2), Measure("y", 7.5)))
    assert outcome.as_text() == "met 1 (≤ 2), 7.5 (reported)"


def test_a_bar_that_was_aborted_fails_whatever_it_measured() -> None:
    assert Outcome((Measure("x", 1, "≤", 2),), fault="no room").as_text() == "failed no room"


@pytest.mark.parametrize(("percent", "value"), [(95, 19), (99, 20), (50, 10), (100, 20)])
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 21)], percent) == value
