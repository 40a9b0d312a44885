"""Keeps one process alive beside the server: restarts it if it dies, and stops it in time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

#: Seconds before a restart: at first, and at most. After `SETTLED` seconds of running, the pauses
#: begin at first again.
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 1.0, 60.0, 120.0


def pause_before(tries: int) -> float:
    """Seconds before the next start of a process that died `tries` times in a row."""
    return float(min(FIRST_PAUSE * 2 ** min(tries - 1, 30), LONGEST_PAUSE))


@dataclass(frozen=True)
class Program:
    """A process to keep alive.

    Attributes:
        name: what messages call it.
        command: its command line.
        stops: seconds after it is asked to stop, and the signal that it gets then.
        files: open files that it inherits.
        merged: whether its standard error is heard too; if not, it has that of this process.
    """

    name: str
    command: Sequence[str]
    stops: Sequence[tuple[float, signal.Signals]]
    files: Sequence[int] = ()
    merged: bool = True


class KeptAlive:
    """Runs one process again and again until it is asked to stop.

    The process ends with this one: its standard input is a pipe that closes then.

    Args:
        pause: how often in a row it died → seconds before the next start.
    """

    def __init__(self, program: Program, pause: Callable[[int], float] = pause_before) -> None:
        self._program, self._pause = program, pause
        self._process: subprocess.Popen[str] | None = None
        self.restarts = 0
        self._stopping = threading.Event()
        self._asked = 0.0
        # Reentrant, because a signal handler may interrupt the code that holds it.
        self._starting = threading.RLock()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    @property
    def running(self) -> bool:
        """Whether the process runs now."""
        process = self._process
        return process is not None and process.poll() is None

    def start(self) -> None:
        """Start the process, and restart it whenever it dies."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask it to end, and do not restart it. Returns at once."""
        if self._stopping.is_set():
            return
        self._asked = monotonic()
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the process, gently at first."""
        self.ask_to_stop()
        for seconds, number in self._program.stops:
            self._thread.join(max(self._asked + seconds - monotonic(), 0))
            if not self._thread.is_alive():
                return
            self._signal(number)
        self._thread.join(1)

    def hear(self, line: str) -> None:
        """Take a line that the process wrote, or one about it."""

    def died(self, line: str) -> None:
        """Take the line that says that it died, and when it is started again."""
        self.hear(line)

    def changed(self) -> None:
        """Called after the process has started, and after it has ended."""

    def _keep_alive(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            began = monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return
            tries = 1 if monotonic() - began > SETTLED else tries + 1
            seconds = self._pause(tries)
            name = self._program.name
            self.died(f"{name} ended with code {code}; restarting in {seconds:g} s")
            self._stopping.wait(seconds)
            self.restarts += not self._stopping.is_set()

    def _run_once(self) -> int | None:
        """Run the process until it ends. Returns its exit code, or None if it did not start."""
        try:
            process = self._launch()
        except OSError as error:
            self.hear(f"{self._program.name} cannot be started: {error}")
            return None
        if process is None:
            return None
        self.changed()
        with process:
            for line in process.stdout or ():
                self.hear(line)
            code = process.wait()
        self.changed()
        return code

    def _launch(self) -> subprocess.Popen[str] | None:
        with self._starting:
            # Asked to stop in the meantime.
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                list(self._program.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._program.merged else None,
                text=True,
                errors="replace",
                pass_fds=tuple(self._program.files),
                # Ctrl-C goes to the server alone, which then asks this process to stop.
                start_new_session=True,
            )
            return self._process

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
