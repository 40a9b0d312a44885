"""The lock of an index in S3: a lease in a small object, which its holder renews.

    lock    {"format": 1, "writer": "3f0c…", "state": "77ab…"}

Every write of it is conditional on the state that was read before, so of two writers one wins. The
holder writes a new state every few seconds. A lease whose state has not changed for `LEASE`
seconds, by the clock of the one who waits, is taken over: no two clocks are compared. An empty
writer means that the lease is free.

A holder that was stopped finds out when it renews its lease, or when it checks it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from lakewake.errors import StaleFrontier
from lakewake.net.conditional import Tagged, Unsure
from lakewake.store.hudi.lock import LOCK, PATIENCE, Hold, waited
from lakewake.store.location import Location

FORMAT = 1
#: Seconds. A writer that was killed holds others up for this long, and for one more look.
LEASE = 30.0
#: Seconds between two renewals, and between two looks at a lease that another process holds.
RENEWED_EVERY, LOOKED_EVERY = 5.0, 0.5
#: Seconds after which a holder that cannot renew its lease stops: others may take it over soon.
STOPS_AFTER = 20.0
#: Seconds between two calls that stop what a writer without a lease still does.
STOPPED_EVERY = 0.2


class Objects(Protocol):
    """Objects that are written only if nobody else wrote them first; see `ConditionalBucket`."""

    def read(self, name: str) -> Tagged | None:
        """An object; None if there is none."""

    def put(self, name: str, content: bytes, after: str | None) -> str | None:
        """Write an object if its tag is `after`, and return its new tag; None: not written."""


@dataclass(frozen=True)
class Lease:
    """The lease of one index.

    Args:
        objects: the folder of the index, for writes.
        location: the same folder, for everybody who checks the lease.
        clock, sleep: the time. A test passes its own.
    """

    objects: Objects
    location: Location
    name: str
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @contextmanager
    def held(self, patience: float = PATIENCE) -> Iterator[Hold]:
        writer = uuid4().hex
        tag = self._acquired(writer, patience)
        hold = LeaseHold(self, writer, tag)
        renewing = threading.Thread(target=hold.keep, daemon=True)
        renewing.start()
        try:
            yield hold
        finally:
            hold.done.set()
            renewing.join()
            hold.release()

    def _acquired(self, writer: str, patience: float) -> str:
        """The tag of the lease, once it is this writer's."""
        seen, since = "", self.clock()
        until = since + patience
        while True:
            found = self.objects.read(LOCK)
            now = self.clock()
            if found is None or found.tag != seen:
                seen, since = found.tag if found else "", now
            if tag := self._tried(found, writer, now - since):
                return tag
            if now > until:
                raise waited(self.name, patience)
            self.sleep(LOOKED_EVERY)

    def _tried(self, found: Tagged | None, writer: str, unchanged: float) -> str | None:
        """The tag of the lease if this writer has it now."""
        holder = writer_of(found.content) if found else ""
        if found and holder == writer:
            # The answer to an earlier write was lost.
            return found.tag
        if holder and unchanged <= LEASE:
            return None
        # If no answer comes, the next look shows whether it landed.
        with suppress(Unsure):
            return self.objects.put(LOCK, state_of(writer), found.tag if found else None)
        return None


@dataclass
class LeaseHold:
    """A lease that is held, and the thread that renews it.

    Attributes:
        done: set when it is to be released.
        lost: set when another process may have it.
    """

    lease: Lease
    writer: str
    tag: str
    done: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)
    stops: list[Callable[[], None]] = field(default_factory=list)
    losable: bool = True

    @property
    def check(self) -> LeaseCheck:
        return LeaseCheck(self.lease.location, self.lease.name, self.writer)

    @contextmanager
    def when_lost(self, stop: Callable[[], None]) -> Iterator[None]:
        self.stops.append(stop)
        try:
            yield
        finally:
            self.stops.remove(stop)

    def keep(self) -> None:
        """Renew the lease until it is released. If it is lost, stop what the holder does."""
        renewed = self.lease.clock()
        while not self.done.wait(RENEWED_EVERY):
            began = self.lease.clock()
            if self.renewed():
                renewed = began
            if self.lost.is_set() or self.lease.clock() - renewed > STOPS_AFTER:
                break
        else:
            return
        self.lost.set()
        while not self.done.wait(STOPPED_EVERY):
            for stop in list(self.stops):
                stop()

    def renewed(self) -> bool:
        """Renew the lease once; whether that is certain. Sets `lost` if another process has it."""
        # A service that does not answer may do so at the next renewal.
        with suppress(OSError):
            tag = self.lease.objects.put(LOCK, state_of(self.writer), self.tag)
            if tag is None:
                found = self.lease.objects.read(LOCK)
                if found is None or writer_of(found.content) != self.writer:
                    self.lost.set()
                    return False
                # An earlier renewal landed after all.
                tag = found.tag
            self.tag = tag
            return True
        return False

    def release(self) -> None:
        """Let the next writer in at once. If this fails, it waits until the lease ends."""
        with suppress(OSError):
            self.lease.objects.put(LOCK, state_of(""), self.tag)


@dataclass(frozen=True)
class LeaseCheck:
    """Whether a writer still has its lease, on any machine."""

    location: Location
    name: str
    writer: str

    def __call__(self) -> None:
        """Look once.

        Raises:
            StaleFrontier: another process has it.
            OSError: it cannot be read.
        """
        if writer_of(self.location.read(LOCK) or b"") != self.writer:
            raise StaleFrontier(
                f"another process took over writing index '{self.name}'",
                hint="run the sync again",
            )


def state_of(writer: str) -> bytes:
    """The content of a lease; each is unlike all others, and so its tag is."""
    return json.dumps({"format": FORMAT, "writer": writer, "state": uuid4().hex}).encode()


def writer_of(content: bytes) -> str:
    """Who holds a lease; '' if nobody does. Content that is not a lease has an unknown holder."""
    try:
        value = json.loads(content)
        return str(value["writer"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
