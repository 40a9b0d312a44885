"""Keeps indexes up to date: sync, wait, sync again, until asked to stop.

If the sync of an index fails, the next tries come later and later, at most five minutes apart, and
do not hold up the other indexes. Only errors that waiting cannot fix end the watch. An index whose
files are damaged is built again.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lakewake.errors import (
    ConfigError,
    IndexDamaged,
    LakewakeError,
    RecipeMismatch,
    SetupError,
    StoreError,
)
from lakewake.show.plain import spelled_out

if TYPE_CHECKING:
    from lakewake.model.report import SyncReport

#: The longest time between two tries of an index that fails.
LONGEST_PAUSE = 300.0
#: Errors that only a person can fix.
UNHEALABLE = (ConfigError, RecipeMismatch, SetupError)
STOPPING = (signal.SIGINT, signal.SIGTERM)


class Watched(Protocol):
    """What a watch asks of an index: `lakewake.api.Index` is one."""

    @property
    def name(self) -> str: ...

    def sync(self, *, reconcile: bool | None = None) -> SyncReport: ...

    def probe(self) -> None: ...

    def heal(self, damage: IndexDamaged) -> SyncReport: ...


@dataclass(frozen=True)
class Failing:
    """An index whose last syncs failed: how many times, and the round of its next try."""

    times: int
    due: int


def rounds_to_wait(times: int, interval: float) -> int:
    """How many rounds an index waits for its next try after `times` failures in a row."""
    return max(1, min(1 << min(times, 30), math.floor(LONGEST_PAUSE / interval)))


def failed_again(before: Failing | None, round_number: int, interval: float) -> Failing:
    """The state of an index after one more failure."""
    times = before.times + 1 if before else 1
    return Failing(times, round_number + rounds_to_wait(times, interval))


def watch(
    syncs: Mapping[str, Callable[[], SyncReport]],
    *,
    interval: float,
    wait: Callable[[float], bool],
    say: Callable[[str], None],
    show: Callable[[Sequence[SyncReport]], None],
    around: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> None:
    """Sync every index each `interval` seconds until `wait` returns True.

    Args:
        syncs: index name → its sync.
        wait: waits for this many seconds; returns True to stop.
        say: gets a line for each sync that failed.
        show: gets the reports of each round that did something.
        around: gets the names of the indexes that a round syncs; the round is within its context.

    Raises:
        ConfigError, RecipeMismatch, SetupError: waiting cannot fix these.
    """
    failing: dict[str, Failing] = {}
    for round_number in itertools.count():
        reports = []
        due = [n for n in syncs if n not in failing or failing[n].due <= round_number]
        with around(due):
            for name in due:
                try:
                    reports.append(syncs[name]())
                    failing.pop(name, None)
                except UNHEALABLE:
                    raise
                except Exception as error:
                    failing[name] = failed_again(failing.get(name), round_number, interval)
                    pause = (failing[name].due - round_number) * interval
                    say(failed_line(name, error, pause))
        if done := [r for r in reports if r.did_something]:
            show(done)
        if wait(interval):
            return


def sync_or_heal(
    index: Watched, say: Callable[[str], None], *, reconcile: bool | None = None
) -> SyncReport:
    """Bring the index to its table, or build it again if its files are damaged.

    Args:
        reconcile: as for `Index.sync`. With False, damage is an error, because a build reads the
            whole table.
    """
    damage = damage_of(index)
    if damage is None:
        return index.sync(reconcile=reconcile)
    if reconcile is False:
        raise damage
    say(f"{index.name}: {damage.fact}; building it again, without embedding known texts")
    return index.heal(damage)


def damage_of(index: Watched) -> IndexDamaged | None:
    """The damage to an index's files, if seen twice; None: no damage, or it cannot be found out."""
    found = None
    # Twice: another writer's rebuild removes the files of the version that was being read.
    for _ in range(2):
        try:
            index.probe()
            return None
        except IndexDamaged as damage:
            found = damage
        except StoreError:
            return None
    return found


def failed_line(name: str, error: Exception, seconds: float) -> str:
    """A failed sync in one line: the fact, what landed, the time of the next try, and the hint."""
    again = f"next try in {seconds:.0f} s"
    if not isinstance(error, LakewakeError):
        return spelled_out(f"{name}: sync failed: {type(error).__name__}: {error}; {again}")
    hint = f"; hint: {error.hint}" if error.hint else ""
    return spelled_out(f"{name}: sync failed: {error.fact}; {error.landed}; {again}{hint}")


class StopSignal:
    """SIGINT or SIGTERM: the first asks to stop after the running round, the second stops at once.

    Stopping at once is safe too: a batch lands whole or not at all.
    """

    def __init__(self) -> None:
        self._asked = False
        # Unlike an Event, it allows a signal handler's `put` to interrupt its own `get`.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {n: signal.signal(n, self._on_signal) for n in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._wake.put(None)
        # Not print: the signal may have interrupted a print.
        os.write(2, b"stopping after the running sync; Ctrl-C again stops at once\n")

    def wait(self, seconds: float) -> bool:
        """Wait this many seconds or until a signal comes; True if one has come."""
        try:
            self._wake.get(timeout=seconds)
        except Empty:
            return self._asked
        return True
