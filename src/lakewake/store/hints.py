"""Hints and errors that several stores give."""

from __future__ import annotations

from lakewake.errors import IndexDropped, IndexMissing


def missing(name: str) -> IndexMissing:
    """The error if there is no index."""
    return IndexMissing(f"there is no index '{name}' yet", hint=f"run `lakewake sync {name}`")


def rebuild(name: str) -> str:
    """The hint for a damaged index."""
    return f"run `lakewake sync {name} --rebuild`; texts embedded before are reused"


def dropped(name: str) -> IndexDropped:
    """The error of a sync whose index was dropped in the meantime."""
    return IndexDropped(
        f"index '{name}' was dropped while it was synced",
        landed="nothing of this sync is left",
        hint=f"run `lakewake sync {name}` if it is to be built again",
    )
