"""3 · A row → its chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakewake.model.chunks import Chunk, text_hash
from lakewake.model.rows import RowId


def chunk_row(
    row: RowId, texts: Mapping[str, str | None], split: Callable[[str], tuple[str, ...]]
) -> tuple[Chunk, ...]:
    """The chunks of a row, counted from 0 in each field; a blank text has none."""
    return tuple(
        Chunk(row, field, n, part, text_hash(part))
        for field, text in texts.items()
        if text is not None and text.strip()
        for n, part in enumerate(split(text))
    )
