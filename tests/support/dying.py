"""Work in processes that end as `kill -9` ends them. Run by tests as `-m support.dying`:

hudi CONFIG STAGE POINT   one sync of a real table, killed at a point of a stage
hudi CONFIG               the same, printing each point, to be killed by someone else
cases                     one case per line of JSON, each in its own process
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lakewake.embed.hashing import HashingEmbedder
from lakewake.progress import Stage

if TYPE_CHECKING:
    from support.killing import Case


class DiesAt:
    """A reporter that ends the process, as `kill -9` does, at one point of one stage.

    Points are `begin`, `during` (something is done), `at N` (N items are done) and `end`.
    """

    def __init__(self, stage: str, point: str) -> None:
        self._at = (stage, point)

    def reached(self, stage: str, point: str) -> None:
        """Called at each point."""
        if (stage, point) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A stage in which the process may end."""
        self.reached(name, "begin")
        yield _Steps(self, name)
        self.reached(name, "end")

    def say(self, text: str) -> None:
        """Ignore messages."""


class SaysWhere(DiesAt):
    """A reporter that prints each point, so that another process can kill this one there."""

    def __init__(self) -> None:
        super().__init__("", "")

    def reached(self, stage: str, point: str) -> None:
        """Called at each point."""
        print(stage, point, flush=True)


class _Steps:
    def __init__(self, reporter: DiesAt, name: str) -> None:
        self._reporter, self._name, self._done = reporter, name, 0

    def advance(self, n: int) -> None:
        for _ in range(n):
            self._done += 1
            self._reporter.reached(self._name, f"at {self._done}")
        if n:
            self._reporter.reached(self._name, "during")


class Remembered(HashingEmbedder):
    """An embedder that writes the texts it receives to a file, which survives a kill."""

    def __init__(self, folder: Path) -> None:
        from support.killing import RECEIVED
        from support.sampling import HASHING

        super().__init__(HASHING)
        folder.mkdir(exist_ok=True)
        self._file = os.open(folder / RECEIVED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Write the texts to the file, then embed them."""
        os.write(self._file, "".join(f"{text}\n" for text in texts).encode())
        return super().embed(texts)


def in_memory(case: Case) -> None:
    """Work on the Lance index of a memory table."""
    from lakewake.sync import sync
    from lakewake.verify import repair
    from support.killing import lance_parts

    folder = Path(case.folder)
    parts = lance_parts(folder, case.history, rows=case.rows)
    reporter = DiesAt(case.stage, case.point)
    parts = replace(parts, embedder=Remembered(folder), reporter=reporter)
    repair(parts) if case.task == "repair" else sync(parts)


def on_hudi(config: str, *at: str) -> None:
    """Work on the index of a Hudi table, through the public API."""
    import lakewake

    reporter = DiesAt(*at) if at else SaysWhere()
    with lakewake.open(config, reporter=reporter) as lake:
        lake["sample"].sync()


def serve_cases() -> None:
    """Fork for each case, since starting takes longer than the work; print how the fork ended."""
    import lakewake.verify  # noqa: F401
    from support.killing import Case

    # Lance starts its threads when it is first used, which is in the fork.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for line in sys.stdin:
        case = Case(**json.loads(line))
        child = os.fork()
        if not child:
            in_memory(case)
            os._exit(0)
        if case.seconds is not None:
            signal.sigtimedwait([signal.SIGCHLD], case.seconds)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        signal.sigtimedwait([signal.SIGCHLD], 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "hudi":
        on_hudi(*rest)
    else:
        serve_cases()
