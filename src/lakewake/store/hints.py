"""Hints and errors that several stores give."""

from __future__ import annotations

from lakewake.errors import IndexMissing


def missing(name: str) -> IndexMissing:
    """The error if there is no index."""
    return IndexMissing(f"there is no index '{name}' yet", hint=f"run `lakewake sync {name}`")


def rebuild(name: str) -> str:
    """The hint for a damaged index."""
    return f"run `lakewake sync {name} --rebuild`; texts embedded before are reused"
