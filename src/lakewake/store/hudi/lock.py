"""Lets one process at a time write an index: a lock of the file system, or a lease in S3."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from lakewake.errors import StoreError
from lakewake.store.location import Location

#: The file that is locked, or that holds the lease.
LOCK = "lock"
#: How long a writer waits for another one.
PATIENCE = 600.0


class Check(Protocol):
    """Raises if another process may write by now. It can be pickled: executors call it."""

    def __call__(self) -> None:
        """Look once.

        Raises:
            StaleFrontier: another process has the lock.
        """


class Hold(Protocol):
    """A lock while it is held."""

    @property
    def check(self) -> Check:
        """Whether it is still held."""

    @property
    def losable(self) -> bool:
        """Whether another process may take it over."""

    def when_lost(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `stop`, again and again, if the lock is lost while the context lasts."""


class Lock(Protocol):
    """The lock of one index."""

    def held(self, patience: float = PATIENCE) -> AbstractContextManager[Hold]:
        """Let no other process write while the context lasts.

        Raises:
            StoreError: another process still writes after `patience` seconds.
        """


@dataclass(frozen=True)
class FileLock:
    """A lock of the file system, which ends with the process that holds it."""

    location: Location
    name: str

    @contextmanager
    def held(self, patience: float = PATIENCE) -> Iterator[Hold]:
        self.location.prepare()
        with open(self.location.path(LOCK), "wb") as file:
            until = time.monotonic() + patience
            while not _locked(file.fileno()):
                if time.monotonic() > until:
                    raise waited(self.name, patience)
                time.sleep(0.02)
            yield NeverLost()


class NeverLost:
    """A hold that ends only when it is released."""

    losable = False

    @property
    def check(self) -> Check:
        return _nothing

    @contextmanager
    def when_lost(self, stop: Callable[[], None]) -> Iterator[None]:
        yield


def _nothing() -> None:
    """Nothing can have happened."""


def waited(name: str, patience: float) -> StoreError:
    """What to raise if the lock cannot be had."""
    return StoreError(
        f"another process has been writing index '{name}' for {patience:.0f} seconds",
        hint="stop the other process, or wait until it is done; then sync again",
    )


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
