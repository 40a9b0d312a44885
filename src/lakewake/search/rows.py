"""Reads all that an index holds of given rows: their chunks, payload and whole text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakewake.model.query import IndexedRow, RowChunk
from lakewake.model.recipe import RESERVED
from lakewake.model.rows import RowId
from lakewake.search.run import check_sound
from lakewake.search.values import python_rows

if TYPE_CHECKING:
    from lakewake.store import StoreReader

#: The columns that a row is assembled from, besides its payload.
COLUMNS = ("_id", "_partition", "_key", "_field", "_chunk", "_hash", "_text")


def read_rows(reader: StoreReader, rows: Collection[RowId], index: str) -> dict[RowId, IndexedRow]:
    """The given rows that the index holds, in the given order.

    Raises:
        StoreError: the index is damaged.
    """
    payload = [name for name in reader.schema().names if not name.startswith(RESERVED)]
    batches = reader.chunks(rows, [*COLUMNS, *payload])
    found = [chunk for batch in batches for chunk in python_rows(batch)]
    check_sound(found, index)
    order = {field.name: n for n, field in enumerate(reader.recipe().fields)}
    found.sort(key=lambda chunk: (order.get(chunk["_field"], 0), chunk["_chunk"]))
    of_row: dict[RowId, list[dict[str, Any]]] = {row: [] for row in rows}
    for chunk in found:
        of_row[RowId(chunk["_partition"], chunk["_key"])].append(chunk)
    overlap = reader.recipe().chunking.overlap > 0
    return {row: _row(row, chunks, overlap) for row, chunks in of_row.items() if chunks}


def _row(row: RowId, found: Sequence[Mapping[str, Any]], overlap: bool) -> IndexedRow:
    chunks = tuple(RowChunk(c["_field"], c["_chunk"], c["_text"]) for c in found)
    payload = {name: v for name, v in found[0].items() if not name.startswith(RESERVED)}
    return IndexedRow(row.key, row.partition, whole_text(chunks, overlap=overlap), payload, chunks)


def whole_text(chunks: Iterable[RowChunk], *, overlap: bool) -> str:
    """The text of a row: one paragraph per field, joined from its chunks."""
    fields: dict[str, str] = {}
    for chunk in chunks:
        before, text = fields.get(chunk.field, ""), chunk.text or ""
        repeated = repeats(before, text) if overlap else 0
        gap = " " if before and not repeated else ""
        fields[chunk.field] = before + gap + text[repeated:]
    return "\n\n".join(text for text in fields.values() if text)


def repeats(before: str, text: str) -> int:
    """How many characters at the start of a chunk's text repeat the end of the text before it.

    Only whole words count.
    """
    for shared in range(min(len(before), len(text)), 0, -1):
        start = len(before) - shared
        whole_words = _is_border(before, start) and _is_border(text, shared)
        if whole_words and before.endswith(text[:shared]):
            return shared
    return 0


def _is_border(text: str, at: int) -> bool:
    """Whether this position is not inside a word."""
    return not (text[at - 1 : at].isalnum() and text[at : at + 1].isalnum())
