"""What the tests share: doubles, tables, servers, oracles. No test is in here."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def environment(**more: str) -> dict[str, str]:
    """Environment of a process that imports what the tests import: `python -m support.…`."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}
