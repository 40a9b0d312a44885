"""With `--watch`: runs `lakewake sync --watch` beside the server, and restarts it if it dies.

It is a separate process, so that searches wait neither for Spark nor for an embedder. Its output is
passed on, and its last lines are kept for `/indexes`.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lakewake.serve.alive import KeptAlive, Program, pause_before
from lakewake.show.redact import without_secrets

#: How many lines of output are kept, and the most characters of each.
LINES, LINE_CHARS = 8, 400
#: The second signal asks it to stop at once. A batch lands whole or not at all, however it ends.
STOPS = ((2.0, signal.SIGTERM), (3.0, signal.SIGKILL))


@dataclass(frozen=True)
class FollowerState:
    """The state of the syncing process."""

    running: bool
    restarts: int
    last_words: tuple[str, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FollowerState:
        """The state that another process wrote as JSON."""
        return cls(given["running"], given["restarts"], tuple(given["last_words"]))

    def as_dict(self) -> dict[str, Any]:
        """The state as JSON."""
        return {
            "running": self.running,
            "restarts": self.restarts,
            "last_words": list(self.last_words),
        }


class Followed(Protocol):
    """Knows the syncing process. The process of the server that owns it need not be this one."""

    @property
    def state(self) -> FollowerState:
        """The state of the process now."""


class Follower(KeptAlive):
    """Keeps the syncing process alive until it is asked to stop.

    Args:
        command: the command to run. Its output goes to `say`, line by line.
        pause: how often in a row it died → seconds before the next start.
    """

    def __init__(
        self,
        command: Sequence[str],
        say: Callable[[str], None],
        pause: Callable[[int], float] = pause_before,
    ) -> None:
        super().__init__(Program("the sync process", command, STOPS), pause)
        self._say = say
        self._lines: deque[str] = deque(maxlen=LINES)
        #: Called whenever the state is another one.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def state(self) -> FollowerState:
        """The state of the process now."""
        return FollowerState(self.running, self.restarts, tuple(self._lines))

    def hear(self, line: str) -> None:
        """Pass a line on, and keep it."""
        if shown := without_secrets(line.rstrip()):
            self._lines.append(shown[:LINE_CHARS])
            self._say(shown)
            self.on_change()

    def changed(self) -> None:
        """The process has started or ended."""
        self.on_change()
