"""Several requests in flight: as many as the service takes, within a budget of tokens a minute."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

#: The share of a minute's tokens that may be sent at once.
BURST = 1 / 6


class Gate:
    """How many requests may be in flight: all at first, half after a refusal, then one more after
    each round without one.

    Args:
        most: never more than these.
    """

    def __init__(self, most: int) -> None:
        self._most = self.limit = most
        self._active = self._fine = 0
        self._epoch = 0
        self._free = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[int]:
        """Wait for a slot, and hold it. It has the number that `slow` needs."""
        with self._free:
            self._free.wait_for(lambda: self._active < self.limit)
            self._active += 1
            epoch = self._epoch
        try:
            yield epoch
            self._went_well(epoch)
        finally:
            with self._free:
                self._active -= 1
                self._free.notify_all()

    def slow(self, epoch: int) -> None:
        """The service refused a request that began in this epoch. One refusal halves, however
        many requests were refused at the same time."""
        with self._free:
            if epoch == self._epoch:
                self.limit = max(1, self.limit // 2)
                self._epoch += 1
                self._fine = 0

    def _went_well(self, epoch: int) -> None:
        with self._free:
            self._fine += epoch == self._epoch
            if self._fine >= self.limit and self.limit < self._most:
                self.limit += 1
                self._fine = 0


class Budget:
    """Tokens a minute; 0: no limit."""

    def __init__(
        self,
        per_minute: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst = per_minute / 60, per_minute * BURST
        self._sleep, self._clock = sleep, clock
        self._left, self._at = self._burst, clock()
        self._lock = threading.Lock()

    def take(self, tokens: int) -> None:
        """Wait until this many tokens may be sent."""
        if not self._rate:
            return
        with self._lock:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
            self._at = now
            # A request larger than the burst is sent when the burst is whole; the next one waits.
            wait = (min(tokens, self._burst) - self._left) / self._rate
            self._left -= tokens
        if wait > 0:
            self._sleep(wait)

    def correct(self, more: int) -> None:
        """A request had this many tokens more than estimated."""
        with self._lock:
            self._left -= more


def all_done(jobs: Sequence[Callable[[], None]], threads: int) -> None:
    """Do the jobs, several at a time. After an error none is begun; the first error is raised."""
    if len(jobs) < 2 or threads < 2:
        for job in jobs:
            job()
        return
    stopped = threading.Event()

    def guarded(job: Callable[[], None]) -> None:
        if stopped.is_set():
            return
        try:
            job()
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(min(threads, len(jobs)), thread_name_prefix="embed") as pool:
        # A caller's deadline is known in its context.
        futures = [pool.submit(contextvars.copy_context().run, guarded, job) for job in jobs]
        try:
            for future in futures:
                future.result()
        finally:
            stopped.set()
