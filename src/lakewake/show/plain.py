"""Values as plain text, and in JSON's own types."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """The value in JSON's own types: payloads hold dates, decimals, bytes and NaN too."""
    # The common ones first: asking whether a text is a Mapping costs more than all the rest.
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def spelled_out(text: str) -> str:
    """The text with every character escaped that could control a terminal, hide, or end a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count(n: int, one: str, many: str = "") -> str:
    """`1 row`, `2,000 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def moment(instant: str) -> str:
    """An instant of the timeline, readable: `2025-03-01 12:00:00.123`; others as they are."""
    if len(instant) < 14 or not instant.isdigit():
        return instant or "none"
    day = f"{instant[:4]}-{instant[4:6]}-{instant[6:8]}"
    clock = f"{instant[8:10]}:{instant[10:12]}:{instant[12:14]}"
    return f"{day} {clock}" + (f".{instant[14:]}" if instant[14:] else "")


def duration(seconds: float) -> str:
    """`320 ms`, `4.2 s`, `3 min`, `2.5 h`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def in_bytes(size: int) -> str:
    """Bytes: `0 bytes`, `420 KB`, `1.2 MB`, `3.1 GB`."""
    for unit, bytes in (("GB", 1e9), ("MB", 1e6)):
        if size >= bytes:
            return f"{size / bytes:,.1f} {unit}"
    return f"{size / 1e3:.0f} KB" if size >= 1000 else count(size, "byte")
