"""Locations of Qdrant for tests: in memory, and with a moment before and after each write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from qdrant_client import QdrantClient

from lakewake.store.qdrant.location import CONNECTIONS, QdrantLocation

WRITES = {
    "create_collection",
    "delete_collection",
    "upsert",
    "set_payload",
    "overwrite_payload",
    "delete",
    "update_collection_aliases",
}


@dataclass(frozen=True)
class InMemory:
    """The client's local mode, which lasts as long as the process."""

    name: str = field(default_factory=lambda: uuid4().hex)

    @property
    def address(self) -> str:
        return ":memory:"

    @property
    def reached_by_all(self) -> bool:
        return False

    @property
    def has_indexes(self) -> bool:
        return False

    def connect(self) -> QdrantClient:
        return QdrantClient(":memory:")


@dataclass(frozen=True)
class Disturbed:
    """Another location, as seen by a process that is disturbed before and after each write."""

    inner: QdrantLocation
    moment: Callable[[], None]
    name: str = field(default_factory=lambda: uuid4().hex)

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def reached_by_all(self) -> bool:
        # The location behind has its own lock.
        return True

    @property
    def has_indexes(self) -> bool:
        return False

    def connect(self) -> Any:
        return _Disturbed(self.inner, self.moment)


class _Disturbed:
    def __init__(self, location: QdrantLocation, moment: Callable[[], None]) -> None:
        self._location, self._moment = location, moment

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            client, lock = CONNECTIONS.get(self._location)
            if name in WRITES:
                self._moment()
            with lock:
                out = getattr(client, name)(*args, **named)
            if name in WRITES:
                self._moment()
            return out

        return call


class Moments:
    """Count moments, and call something at one of them, undisturbed itself."""

    def __init__(self, at: int, deed: Callable[[], None]) -> None:
        self._left, self._deed = at, deed
        self._lock = threading.Lock()
        self.happened = False

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            now = self._left == -1
        if now:
            self.happened = True
            self._deed()
