"""Processes that begin at the same moment: each says `ready` and waits for a line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def start_together(writers: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until all are ready, then let them go."""
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
