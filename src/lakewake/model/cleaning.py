"""What a clean of a Hudi table keeps. Pure."""

from __future__ import annotations

import io
from typing import Any

from lakewake.extras import not_installed


def parse_clean_plan(content: bytes) -> str:
    """The instant from which on a clean keeps all visible files; '' if the plan names none.

    Raises:
        ValueError: the plan cannot be read.
    """
    kept = read_avro(content).get("earliestInstantToRetain") or {}
    return str(kept.get("timestamp") or "")


def read_avro(content: bytes) -> dict[str, Any]:
    """The first record of an Avro file."""
    try:
        import fastavro
    except ImportError as error:
        raise not_installed(error) or error from error
    return next(iter(fastavro.reader(io.BytesIO(content))))
