"""Hints that several stores give."""

from __future__ import annotations


def rebuild(name: str) -> str:
    """The hint for a damaged index."""
    return f"run `lakewake sync {name} --rebuild`; texts embedded before are reused"
