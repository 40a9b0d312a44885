import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from lakewake.errors import (
    ConfigError,
    EmbedError,
    LakewakeError,
    RecipeMismatch,
    SetupError,
    TableError,
)
from lakewake.model.plan import Action
from lakewake.model.report import SyncReport
from lakewake.sync.watch import LONGEST_PAUSE, StopSignal, rounds_to_wait, watch


class Round:
    """Count the rounds, and stop after enough of them."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.left -= 1
        return self.left == 0


class Sync:
    """A sync that follows its script, and then does nothing."""

    def __init__(self, name: str, *script: Exception | Action) -> None:
        self.name, self.script, self.calls = name, list(script), 0

    def __call__(self) -> SyncReport:
        self.calls += 1
        step = self.script.pop(0) if self.script else Action.NOTHING
        if isinstance(step, Exception):
            raise step
        return SyncReport(self.name, step, "why")


def run(
    syncs: Sequence[Sync], wait: Callable[[float], bool], interval: float = 5
) -> tuple[list[list[str]], list[str]]:
    shown: list[list[str]] = []
    said: list[str] = []
    watch(
        {s.name: s for s in syncs},
        interval=interval,
        wait=wait,
        say=said.append,
        show=lambda reports: shown.append([r.index for r in reports]),
    )
    return shown, said


def test_rounds_that_do_nothing_are_not_shown() -> None:
    wines = Sync("wines", Action.BUILD, Action.NOTHING, Action.FOLLOW)
    shown, said = run([wines], Round(5))
    assert wines.calls == 5
    assert shown == [["wines"], ["wines"]]
    assert said == []


def test_the_watch_waits_the_interval_between_rounds() -> None:
    wait = Round(3)
    run([Sync("wines")], wait, interval=7)
    assert wait.waited == [7, 7, 7]


def test_a_failed_sync_is_reported_and_the_next_try_is_shown() -> None:
    wines = Sync("wines", TableError("no such file"), Action.FOLLOW)
    shown, said = run([wines], Round(4))
    assert said == ["wines: sync failed: no such file; nothing was written; next try in 10 s"]
    assert shown == [["wines"]]


def test_a_failed_sync_is_reported_with_the_command_that_helps() -> None:
    wines = Sync("wines", TableError("no such file", hint="`lakewake ingest`"))
    _, said = run([wines], Round(2))
    assert said[0].endswith("; next try in 10 s; hint: `lakewake ingest`")


def test_a_round_that_embedded_but_lost_the_commit_is_shown() -> None:
    assert SyncReport("wines", Action.NOTHING, "why", embedded=1).did_something
    assert not SyncReport("wines", Action.NOTHING, "why").did_something


def test_an_unexpected_error_does_not_end_the_watch() -> None:
    wines = Sync("wines", ZeroDivisionError("by zero"), Action.FOLLOW)
    shown, said = run([wines], Round(4))
    assert said == ["wines: sync failed: ZeroDivisionError: by zero; next try in 10 s"]
    assert shown == [["wines"]]


def test_each_failure_doubles_the_pause_and_a_success_resets_it() -> None:
    fault = EmbedError("down")
    wines = Sync("wines", fault, fault, fault, Action.FOLLOW, fault)
    _, said = run([wines], Round(40), interval=5)
    assert [line.rsplit("next try in ")[1] for line in said] == ["10 s", "20 s", "40 s", "10 s"]


def test_the_pause_never_exceeds_five_minutes() -> None:
    pauses = [rounds_to_wait(times, 5) * 5 for times in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_an_interval_longer_than_five_minutes_is_kept_after_a_failure() -> None:
    assert rounds_to_wait(3, 3600) == 1


def test_an_index_that_fails_does_not_hold_up_the_others() -> None:
    broken = Sync("broken", *[TableError("gone")] * 9)
    wines = Sync("wines", *[Action.FOLLOW] * 5)
    shown, _ = run([broken, wines], Round(5))
    assert wines.calls == 5
    assert shown == [["wines"]] * 5
    assert broken.calls == 2


def test_each_round_is_within_a_context_that_gets_the_names_of_what_is_synced() -> None:
    rounds: list[tuple[list[str], int]] = []
    broken, wines = Sync("broken", *[TableError("gone")] * 9), Sync("wines")

    @contextmanager
    def around(names: Sequence[str]) -> Iterator[None]:
        before = wines.calls
        yield
        rounds.append((list(names), wines.calls - before))

    watch(
        {s.name: s for s in (broken, wines)},
        interval=5,
        wait=Round(3),
        say=lambda _: None,
        show=lambda _: None,
        around=around,
    )
    assert rounds == [(["broken", "wines"], 1), (["wines"], 1), (["broken", "wines"], 1)]


@pytest.mark.parametrize("error", [ConfigError("x"), RecipeMismatch("x"), SetupError("x")])
def test_an_error_that_waiting_cannot_fix_ends_the_watch(error: LakewakeError) -> None:
    wines = Sync("wines", error)
    with pytest.raises(type(error)):
        run([wines], Round(3))
    assert wines.calls == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_running_sync_stops_the_watch_after_it(number: signal.Signals) -> None:
    finished = []

    def sync() -> SyncReport:
        os.kill(os.getpid(), number)
        finished.append("whole")
        return SyncReport("wines", Action.FOLLOW, "why")

    shown: list[Sequence[SyncReport]] = []
    with StopSignal() as stop:
        watch({"wines": sync}, interval=600, wait=stop.wait, say=print, show=shown.append)
    assert finished == ["whole"]
    assert len(shown) == 1


def test_a_second_signal_stops_at_once() -> None:
    with StopSignal():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_a_wait_that_has_begun() -> None:
    with StopSignal() as stop:
        before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            assert stop.wait(600)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_a_wait_without_a_signal_continues_the_watch() -> None:
    with StopSignal() as stop:
        assert not stop.wait(0.001)


def test_the_previous_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with StopSignal():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
