"""The memory that the processes of a server share: counts, rates, totals and the state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lakewake.serve import shared as layout
from lakewake.serve.metrics import Totals
from lakewake.serve.shared import BUCKETS, COUNTS, NAME, PLACES, Shared, open_memory


@pytest.fixture
def memory() -> Iterator[int]:
    fd = open_memory(2)
    yield fd
    os.close(fd)


def test_counts_of_all_processes_are_added(memory: int) -> None:
    first, second = Shared(memory, 0), Shared(memory, 1)
    assert first.workers == 2
    first.add("a", [1.0, 2.0])
    second.add("a", [10.0])
    second.add("b", [5.0])
    assert first.sums()["a"][:3] == second.sums()["a"][:3] == [11.0, 2.0, 0.0]
    assert first.sums()["b"][0] == 5


def test_a_worker_that_is_started_again_goes_on_counting(memory: int) -> None:
    Shared(memory, 1).add("a", [1.0])
    again = Shared(memory, 1)
    again.add("a", [1.0])
    assert again.sums() == {"a": [2.0, *[0.0] * 15]}


def test_a_name_that_does_not_fit_is_left_out() -> None:
    alone = Shared()
    alone.add("x" * (NAME + 1), [1.0])
    for n in range(COUNTS + 1):
        alone.add(str(n), [1.0])
    assert set(alone.sums()) == {str(n) for n in range(COUNTS)}


def test_threads_and_connections_of_a_worker_that_is_gone_do_not_count(memory: int) -> None:
    first, second = Shared(memory, 0), Shared(memory, 1)
    first.set_running(2)
    second.set_running(3)
    first.set_connections(4)
    second.set_connections(3)
    assert first.running == 5
    assert (first.has_fewest_connections, second.has_fewest_connections) == (False, True)
    first.forget(1)
    assert first.running == 2
    assert first.has_fewest_connections


def test_the_state_is_what_was_reported_last(memory: int) -> None:
    parent, worker = Shared(memory), Shared(memory, 1)
    assert worker.state == {}
    parent.report({"watch": {"last_words": ["x" * 400] * 8}})
    parent.report({"workers": 2})
    assert worker.state == {"workers": 2}


def test_totals_that_fail_to_be_counted_stay_as_they_were(memory: int) -> None:
    first, second = Shared(memory, 0), Shared(memory, 1)
    with first.totals() as kept:
        kept["sample"] = {"syncs": 1}

    def fail() -> None:
        with second.totals() as kept:
            kept["sample"] = {"syncs": 2}
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fail()
    with second.totals() as kept:
        assert kept == {"sample": {"syncs": 1}}


def test_totals_go_on_in_another_process() -> None:
    counts = {"embedded": 2, "reused": 0, "rows_deleted": 0, "rows_changed": 1}
    record = {"time": "1", "action": "follow", "to_instant": "1", "error": None, **counts}
    totals = Totals()
    totals.read(lambda _: [record])
    other = Totals.of(totals.as_dict())
    other.read(lambda _: [record])
    assert other.as_dict() == totals.as_dict()
    assert (other.syncs, other.sums["embedded"]) == (1, 2)


#: Takes as often as it may, and prints how often that was.
TAKING = """
import sys
from lakewake.serve.shared import Shared
shared = Shared(int(sys.argv[1]), int(sys.argv[2]))
print(sum(shared.take("key a", 1.0, 2000.0, 100.0) == 0 for _ in range(2000)))
"""


def test_processes_that_count_at_the_same_time_exceed_no_rate(memory: int) -> None:
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKING, str(memory), str(n)],
            pass_fds=[memory],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    taken = [int(taker.communicate()[0]) for taker in takers]
    assert sum(taken) == 2000


def test_a_caller_waits_no_longer_than_its_new_rate_asks_for() -> None:
    alone = Shared()
    assert alone.take("a", 0.001, 1.0, 0.0) == 0
    assert alone.take("a", 0.001, 1.0, 0.0) == pytest.approx(1000)
    assert alone.take("a", 10.0, 20.0, 0.0) == pytest.approx(0.1)
    assert alone.take("a", 10.0, 20.0, 0.2) == 0


def test_many_callers_do_not_make_the_server_forget_a_busy_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "BUCKETS", 1)
    alone = Shared()
    assert alone.take("busy", 0.001, 1.0, 5.0) == 0
    for n in range(3 * PLACES):
        # They may send all at once again a second later, so their entries are free then.
        assert alone.take(f"other {n}", 1.0, 2.0, 10.0 + 2 * n) == 0
    assert alone.take("busy", 0.001, 1.0, 100.0) > 0


def test_there_is_room_for_more_callers_than_a_server_has() -> None:
    alone = Shared()
    names = [f"token {n}" for n in range(10_000)]
    assert 5 * len(names) < BUCKETS * PLACES
    assert all(alone.take(name, 0.001, 1.0, 1.0) == 0 for name in names)
    assert all(alone.take(name, 0.001, 1.0, 1.0) > 0 for name in names)
