"""`python -m lakewake.cli.tethered COMMAND …`: a command that does not outlive who started it.

Its standard input is a line to the parent: when that closes, the parent is gone, and the command is
asked to stop as by SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from lakewake.cli import main

GIVES_WAY = 5


def follow_parent() -> None:
    """Wait until standard input ends, then ask this process to stop."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=follow_parent, daemon=True).start()
    sys.argv[0] = "lakewake"
    if sys.argv[1:2] == ["sync"]:
        # On a busy machine searches come first, and the index a little later.
        os.nice(GIVES_WAY)
    main()
