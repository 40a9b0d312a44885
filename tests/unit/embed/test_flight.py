"""How many requests are in flight, and the budget of tokens."""

from __future__ import annotations

import pytest

from lakewake.embed.flight import Budget, Gate, all_done


def done(gate: Gate, times: int) -> None:
    for _ in range(times):
        with gate.slot():
            pass


def test_a_refusal_halves_and_rounds_without_one_add_one_each():
    gate = Gate(8)
    with gate.slot() as epoch:
        gate.slow(epoch)
    assert gate.limit == 4
    done(gate, 4)
    assert gate.limit == 5
    done(gate, 5 + 6 + 7 + 8 + 8)
    assert gate.limit == 8


def test_requests_refused_together_halve_once():
    gate = Gate(8)
    with gate.slot() as first, gate.slot() as second, gate.slot() as third:
        for epoch in (first, second, third):
            gate.slow(epoch)
    assert gate.limit == 4


def test_at_least_one_request_is_in_flight():
    gate = Gate(2)
    for _ in range(5):
        with gate.slot() as epoch:
            gate.slow(epoch)
    assert gate.limit == 1
    done(gate, 1)


def test_jobs_after_an_error_are_not_begun():
    begun = []

    def fail():
        raise ValueError("broken")

    jobs = [fail, *[lambda n=n: begun.append(n) for n in range(100)]]
    with pytest.raises(ValueError, match="broken"):
        all_done(jobs, 1)
    assert begun == []
    with pytest.raises(ValueError, match="broken"):
        all_done(jobs, 2)


def test_a_budget_lets_a_burst_through_and_then_waits():
    now, waits = [0.0], []
    budget = Budget(600, waits.append, lambda: now[0])
    budget.take(100)
    assert waits == []
    budget.take(50)
    assert waits == [5.0]
    now[0] = 60.0
    budget.take(100)
    assert len(waits) == 1


def test_a_request_larger_than_the_burst_waits_for_a_whole_burst_only():
    now, waits = [0.0], []
    budget = Budget(600, waits.append, lambda: now[0])
    budget.take(1_000)
    assert waits == []
    budget.take(1)
    assert waits == [pytest.approx(90.1)]


def test_a_correction_is_part_of_the_budget():
    waits = []
    budget = Budget(600, waits.append, lambda: 0.0)
    budget.take(100)
    budget.correct(-60)
    budget.take(50)
    assert waits == []


def test_without_a_budget_nothing_waits():
    waits = []
    Budget(0, waits.append).take(10**9)
    assert waits == []
