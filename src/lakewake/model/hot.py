"""The hot tier: how much memory it may take, and what it holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

AUTO, OFF = "auto", "off"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(MB|GB|TB)", re.IGNORECASE)
_UNITS: Mapping[str, int] = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int | None:
    """The number of bytes in `512MB` or `1.5GB`; None if it is not a size above 0."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _UNITS[match[2].upper()]) or None if match else None


def in_words(size: int) -> str:
    """A number of bytes for people: `260 MB`, `1.9 GB`."""
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{-(-size // 10**6)} MB"


@dataclass(frozen=True)
class HotStatus:
    """What the hot tier of an index holds in this process.

    Attributes:
        state: `off`, `waiting` (until this process searches more), `building`, `ready`, or
            `refused`.
        why: the reason, in a few words.
        bytes: the memory that it takes, or would take; 0: not known yet.
        limit: the most that it may take.
        instant: the table instant that it holds; '' if it holds none.
        chunks: how many chunks it was read from.
        since: how many came since, and are compared one by one.
        gone: how many are gone since.
        probes, cells: how many of the cells a search reads; 0: each vector is compared.
        recall_mean: what a probe of the cells found; None: each vector is compared.
        persisted: whether it was read from a file that a sync wrote.
    """

    state: str = OFF
    why: str = ""
    bytes: int = 0
    limit: int = 0
    instant: str = ""
    chunks: int = 0
    since: int = 0
    gone: int = 0
    probes: int = 0
    cells: int = 0
    recall_mean: float | None = None
    persisted: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return asdict(self)
