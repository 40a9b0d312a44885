"""A reporter that notes what a person would see, and work that waits until somebody has seen it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

from lakewake.progress import Silent, Stage


@dataclass
class Shown:
    """One step.

    Attributes:
        counts: what was shown, one after another.
    """

    name: str
    total: int | None
    counts: list[int] = field(default_factory=lambda: [0])
    ended: bool = False

    def advance(self, n: int) -> None:
        self.counts.append(self.counts[-1] + n)

    @property
    def done(self) -> int:
        return self.counts[-1]

    @property
    def is_complete(self) -> bool:
        """Whether its counts grew up to the total, and it ended there."""
        return self.ended and self.counts == sorted(self.counts) and self.done == self.total


class Watching(Silent):
    """Notes the steps of all stages. It cannot be pickled."""

    def __init__(self) -> None:
        self.steps: list[Shown] = []
        self.begun = threading.Event()

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Stage]:
        shown = Shown(name, total)
        self.steps.append(shown)
        self.begun.set()
        try:
            yield shown
        finally:
            shown.ended = True

    def named(self, name: str) -> list[Shown]:
        return [shown for shown in self.steps if shown.name == name]


class Gate:
    """Where tasks of other processes wait."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(120)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def let_one_pass(self) -> None:
        """Wait for the next task, and let it go on."""
        self._listener.accept()[0].close()

    def opened_by(self, event: threading.Event) -> AbstractContextManager[None]:
        """Let all tasks pass once something has happened."""
        return _opened(self, event)


@contextmanager
def _opened(gate: Gate, event: threading.Event) -> Iterator[None]:
    def open_() -> None:
        event.wait(120)
        # The gate is closed at the end.
        with suppress(OSError):
            while True:
                gate.let_one_pass()

    waiting = threading.Thread(target=open_, daemon=True)
    waiting.start()
    yield


def wait_at(port: int) -> None:
    """Wait at the gate with this port."""
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.recv(1)
