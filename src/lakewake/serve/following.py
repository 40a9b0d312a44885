"""With `--watch`: runs `lakewake sync --watch` beside the server, and restarts it if it dies.

It is a separate process, so that searches wait neither for Spark nor for an embedder. Its output is
passed on, and its last lines are kept for `/indexes`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from lakewake.show.redact import without_secrets

#: How many lines of output are kept, and the most characters of each.
LINES, LINE_CHARS = 8, 400
#: Seconds before a restart: at first, and at most. After `SETTLED` seconds of running, the pauses
#: begin at first again.
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 1.0, 60.0, 120.0
#: Seconds after the first signal to stop: when the second one follows, and when it is killed.
AT_ONCE, KILLED = 2.0, 3.0


@dataclass(frozen=True)
class FollowerState:
    """The state of the syncing process."""

    running: bool
    restarts: int
    last_words: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The state as JSON."""
        return {
            "running": self.running,
            "restarts": self.restarts,
            "last_words": list(self.last_words),
        }


def pause_before(tries: int) -> float:
    """Seconds before the next start of a process that died `tries` times in a row."""
    return float(min(FIRST_PAUSE * 2 ** min(tries - 1, 30), LONGEST_PAUSE))


class Follower:
    """Keeps one process alive until it is asked to stop.

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
        self._command, self._say, self._pause = list(command), say, pause
        self._lines: deque[str] = deque(maxlen=LINES)
        self._process: subprocess.Popen[str] | None = None
        self._restarts = 0
        self._stopping = threading.Event()
        self._asked = 0.0
        # Reentrant, because a signal handler may interrupt the code that holds it.
        self._starting = threading.RLock()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    @property
    def state(self) -> FollowerState:
        """The state of the process now."""
        process = self._process
        running = process is not None and process.poll() is None
        return FollowerState(running, self._restarts, tuple(self._lines))

    def start(self) -> None:
        """Start the process, and restart it whenever it dies."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask it to end after the running sync, and do not restart it. Returns at once."""
        if self._stopping.is_set():
            return
        self._asked = monotonic()
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the process, gently at first. A batch lands whole or not at all, however it ends."""
        self.ask_to_stop()
        # The second signal asks it to stop at once.
        for seconds, number in ((AT_ONCE, signal.SIGTERM), (KILLED, signal.SIGKILL)):
            self._thread.join(max(self._asked + seconds - monotonic(), 0))
            if not self._thread.is_alive():
                return
            self._signal(number)
        self._thread.join(1)

    def _keep_alive(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            began = monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return
            tries = 1 if monotonic() - began > SETTLED else tries + 1
            seconds = self._pause(tries)
            self._hear(f"the sync process ended with code {code}; restarting in {seconds:g} s")
            self._stopping.wait(seconds)
            self._restarts += not self._stopping.is_set()

    def _run_once(self) -> int | None:
        """Run the process until it ends. Returns its exit code, or None if it did not start."""
        try:
            process = self._launch()
        except OSError as error:
            self._hear(f"the sync process cannot be started: {error}")
            return None
        if process is None:
            return None
        with process:
            for line in process.stdout or ():
                self._hear(line)
            return process.wait()

    def _launch(self) -> subprocess.Popen[str] | None:
        with self._starting:
            # Asked to stop in the meantime.
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # Ctrl-C goes to the server alone, which then asks this process to stop.
                start_new_session=True,
            )
            return self._process

    def _hear(self, line: str) -> None:
        if shown := without_secrets(line.rstrip()):
            self._lines.append(shown[:LINE_CHARS])
            self._say(shown)

    def _signal(self, number: signal.Signals) -> None:
        with self._starting:
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                # Together with its children, above all the JVM.
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
