"""Values in JSON's own types."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """The value in JSON's own types: payloads hold dates, decimals, bytes and NaN too."""
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
