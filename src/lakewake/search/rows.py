"""All that an index holds of given rows: their chunks, and the text these were cut from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.model.query import Query
from lakewake.model.rows import RowId
from lakewake.model.where import And, In
from lakewake.search.run import check_sound

if TYPE_CHECKING:
    from lakewake.store import StoreReader

Chunk = Mapping[str, Any]


def chunks_of(
    reader: StoreReader, rows: Collection[RowId], index: str
) -> dict[RowId, tuple[Chunk, ...]]:
    """The chunks of those rows that have any, each row's in the order of fields and numbers.

    Raises:
        StoreError: the index is damaged.
    """
    if not rows:
        return {}
    keys, partitions = ({r.key for r in rows}, {r.partition for r in rows})
    where = And((In("_key", tuple(sorted(keys))), In("_partition", tuple(sorted(partitions)))))
    # A store picks chunks by a filter in a search. One that asks for more rows than the filter can
    # leave brings all of them, whatever the vector.
    limit = len(keys) * len(partitions) + 1
    anything = np.ones(reader.recipe().model.dimension, np.float32)
    found = reader.search(Query(anything, limit, where, exact=True)).to_pylist()
    check_sound(found, index)
    order = {field.name: n for n, field in enumerate(reader.recipe().fields)}
    found.sort(key=lambda chunk: (order.get(chunk["_field"], 0), chunk["_chunk"]))
    wanted = {row: [c for c in found if RowId(c["_partition"], c["_key"]) == row] for row in rows}
    return {row: tuple(chunks) for row, chunks in wanted.items() if chunks}


def whole_text(chunks: Iterable[Chunk], *, overlap: bool) -> str:
    """The texts of a row, a paragraph for each field, its pieces put together again."""
    fields: dict[str, str] = {}
    for chunk in chunks:
        before, piece = fields.get(chunk["_field"], ""), chunk["_text"] or ""
        repeated = repeats(before, piece) if overlap else 0
        gap = " " if before and not repeated else ""
        fields[chunk["_field"]] = before + gap + piece[repeated:]
    return "\n\n".join(text for text in fields.values() if text)


def repeats(before: str, piece: str) -> int:
    """How many characters at its beginning a piece has from the one before it: whole words."""
    for shared in range(min(len(before), len(piece)), 0, -1):
        start = len(before) - shared
        whole_words = _is_border(before, start) and _is_border(piece, shared)
        if whole_words and before.endswith(piece[:shared]):
            return shared
    return 0


def _is_border(text: str, at: int) -> bool:
    """Whether no word goes on from before this place to behind it."""
    return not (text[at - 1 : at].isalnum() and text[at : at + 1].isalnum())
