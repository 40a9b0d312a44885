"""The folder for what Lakewake fetched."""

from __future__ import annotations

import os
from pathlib import Path


def lakewake_home() -> Path:
    """`$LAKEWAKE_HOME`, else `$XDG_CACHE_HOME/lakewake`, else `~/.cache/lakewake`."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("LAKEWAKE_HOME") or f"{cache}/lakewake").expanduser()
