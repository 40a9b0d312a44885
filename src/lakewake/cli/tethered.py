"""`python -m lakewake.cli.tethered COMMAND …`: a command that does not outlive its parent.

Its standard input is a line to the parent. When that closes, the parent is gone, and the command
stops as if it got SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from lakewake.cli import main

NICENESS = 5


def follow_parent() -> None:
    """Wait until standard input ends, then ask this process to stop."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=follow_parent, daemon=True).start()
    sys.argv[0] = "lakewake"
    if sys.argv[1:2] == ["sync"]:
        # On a busy machine, searches come first and the sync a little later.
        os.nice(NICENESS)
    main()
