"""What the tests share: doubles, tables, servers, oracles. This package contains no tests."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that can import `support`: `python -m support.…`."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}
