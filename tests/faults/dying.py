"""A sync in a process of its own that kills itself at a named point. Run by the tests beside it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lakewake.progress import Stage


class DiesAt:
    """A reporter that ends the process, as `kill -9` does, at one point of one stage."""

    def __init__(self, stage: str, point: str) -> None:
        self._at = (stage, point)

    def _reached(self, stage: str, point: str) -> None:
        if (stage, point) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A stage that may be the last."""
        self._reached(name, "begin")
        yield _Steps(self, name)
        self._reached(name, "end")

    def say(self, text: str) -> None:
        """Nothing."""


class _Steps:
    def __init__(self, reporter: DiesAt, name: str) -> None:
        self._reporter, self._name = reporter, name

    def advance(self, n: int) -> None:
        if n:
            self._reporter._reached(self._name, "during")


def in_memory(folder: str, commits: int, stage: str, point: str) -> None:
    """A memory table's index in Lance."""
    from test_kill import lance_parts

    from lakewake.sync import sync

    parts = lance_parts(Path(folder), commits)
    sync(replace(parts, reporter=DiesAt(stage, point)))


def on_hudi(config: str, stage: str, point: str) -> None:
    """A Hudi table's index, through the public API."""
    import lakewake

    with lakewake.open(config, reporter=DiesAt(stage, point)) as lake:
        lake["sample"].sync()


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "memory":
        in_memory(rest[0], int(rest[1]), rest[2], rest[3])
    else:
        on_hudi(*rest)
