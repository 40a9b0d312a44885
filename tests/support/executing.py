"""Executors in this process. Everything is pickled on its way, as it is on a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any


class LocalExecutors:
    """Runs tasks one after the other.

    Attributes:
        ran: the names of the functions that tasks ran.
        before: called with a task's name before it runs; it may fail, or interfere.
    """

    parallel = 3

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.before: Callable[[str], None] = lambda name: None

    def __call__(self) -> LocalExecutors:
        return self

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        return [self._run(pickle.dumps(task)) for task in tasks]

    def _run(self, pickled: bytes) -> Any:
        task: Any = pickle.loads(pickled)
        name = task.args[0].__name__.strip("_")
        self.before(name)
        self.ran.append(name)
        return pickle.loads(pickle.dumps(task()))
