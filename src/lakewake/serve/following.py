"""With `--watch`: one `lakewake sync --watch` beside the server, started again when it dies.

It is a process of its own, so that searches wait neither for Spark nor for an embedder. What it
says is passed on, and its last words are kept for `/indexes`.
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

#: So many lines are kept, each cut to so many characters.
WORDS, WORD_CHARS = 8, 400
#: Seconds before it is started again: first, and at most. One that lived so long begins anew.
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 1.0, 60.0, 120.0
#: Seconds after it was asked to stop: when it is told to do so at once, and when it is killed.
TOLD, KILLED = 2.0, 3.0


@dataclass(frozen=True)
class FollowerState:
    """How the syncing process fares."""

    running: bool
    restarts: int
    last_words: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "running": self.running,
            "restarts": self.restarts,
            "last_words": list(self.last_words),
        }


def pause_before(tries: int) -> float:
    """Seconds to wait before a process is started again that died `tries` times in a row."""
    return float(min(FIRST_PAUSE * 2 ** min(tries - 1, 30), LONGEST_PAUSE))


class Follower:
    """Keeps one process alive until it is told to stop.

    Args:
        command: what to run; its output goes to `say`, line by line.
        pause: seconds before the next start, by how often in a row it died.
    """

    def __init__(
        self,
        command: Sequence[str],
        say: Callable[[str], None],
        pause: Callable[[int], float] = pause_before,
    ) -> None:
        self._command, self._say, self._pause = list(command), say, pause
        self._words: deque[str] = deque(maxlen=WORDS)
        self._process: subprocess.Popen[str] | None = None
        self._restarts = 0
        self._stopping = threading.Event()
        self._asked = 0.0
        # Taken by signal handlers too, which may interrupt who has it.
        self._starting = threading.RLock()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    @property
    def state(self) -> FollowerState:
        """How it fares now."""
        process = self._process
        running = process is not None and process.poll() is None
        return FollowerState(running, self._restarts, tuple(self._words))

    def start(self) -> None:
        """Start it, and look after it from now on."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask it to end after the running sync; it is not started again. Returns at once."""
        if self._stopping.is_set():
            return
        self._asked = monotonic()
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it: kindly at first. A batch lands whole or not at all, however it ends."""
        self.ask_to_stop()
        # The second signal means: at once.
        for seconds, number in ((TOLD, signal.SIGTERM), (KILLED, signal.SIGKILL)):
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
            self._hear(f"syncing ended with code {code}; it is started again in {seconds:g} s")
            self._stopping.wait(seconds)
            self._restarts += not self._stopping.is_set()

    def _run_once(self) -> int | None:
        """Start the process and listen until it ends; its exit code, if it did start."""
        try:
            process = self._launch()
        except OSError as error:
            self._hear(f"syncing cannot be started: {error}")
            return None
        if process is None:
            return None
        with process:
            for line in process.stdout or ():
                self._hear(line)
            return process.wait()

    def _launch(self) -> subprocess.Popen[str] | None:
        with self._starting:
            # Told to stop while it was about to start.
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # Ctrl-C at the terminal is for the server, which then asks it to stop.
                start_new_session=True,
            )
            return self._process

    def _hear(self, line: str) -> None:
        if words := without_secrets(line.rstrip()):
            self._words.append(words[:WORD_CHARS])
            self._say(words)

    def _signal(self, number: signal.Signals) -> None:
        with self._starting:
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                # With all that it started, the JVM first of all.
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
