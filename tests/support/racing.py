"""Processes that start at the same moment, or are killed at a random one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

from support import environment


def started(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m module arguments`, with pipes for stdin and stdout."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_together(writers: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until all print `ready`, then send each a line."""
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()


def kill_after(process: subprocess.Popen[str], lines: int, seconds: float) -> int:
    """Kill the process some time after it printed N lines; return the last number it printed."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    assert process.wait() == -signal.SIGKILL
    return int((rest or [said[-1]])[-1])
