"""Vector indexes that follow your Apache Hudi table, commit by commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakewake.errors import LakewakeError

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake, open

__all__ = ["Index", "Lakewake", "LakewakeError", "__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported on first use: `lakewake --help` needs none of it.
    if name in ("Index", "Lakewake", "open"):
        from lakewake import api

        return getattr(api, name)
    raise AttributeError(f"module 'lakewake' has no attribute {name!r}")
