"""How an index is laid out in a Hudi table. Pure.

Every chunk is a row, in the partition of its cell. The rows of cell -1 are notes: they carry what
the index records about itself, and have no vector, so no vector search finds them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakewake.model.chunks import CHECKPOINT_ID, PAGE_ID
from lakewake.model.recipe import Recipe

FORMAT = 1
#: The partition column: the number of the cell that a chunk's vector is in.
CELL = "lakewake_cell"
#: Hudi deletes the rows in which this column is true.
DELETED = "_hoodie_is_deleted"
#: The key of a commit's metadata that holds the frontier.
FRONTIER_KEY = "lakewake.frontier"
#: The cell of the notes. Cells of chunks are numbered from 0.
NOTES = -1
#: `_id`s of notes, besides the checkpoint and its pages.
ABOUT_ID, CELLS_ID = "__about__", "__cells__"


@dataclass(frozen=True)
class About:
    """What an index says about itself: enough to open it by its address alone."""

    name: str
    recipe: Recipe
    schema: pa.Schema

    def to_json(self) -> str:
        """The text of its note."""
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        value = {
            "format": FORMAT,
            "name": self.name,
            "recipe": self.recipe.as_dict(),
            "schema": schema,
        }
        return json.dumps(value, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> About:
        """The inverse of `to_json`.

        Raises:
            ValueError: not the note of an index in a format that this version reads.
        """
        value: dict[str, Any] = json.loads(text)
        if value.get("format") != FORMAT:
            raise ValueError(
                f"it has the format {value.get('format')!r}, this version reads {FORMAT}"
            )
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        return cls(value["name"], Recipe.from_dict(value["recipe"]), schema)


def staged_schema(index: pa.Schema) -> pa.Schema:
    """The columns of a staged part: those of the index, the cell, and whether Hudi deletes it."""
    fields = [_staged(field) for field in index.remove_metadata()]
    return pa.schema([*fields, pa.field(CELL, pa.int32()), pa.field(DELETED, pa.bool_())])


def _staged(field: pa.Field) -> pa.Field:
    vector = pa.list_(pa.field("element", pa.float32(), False))
    return pa.field(field.name, vector if field.name == "_vector" else field.type)


def staged(chunks: pa.RecordBatch, cells: pa.Array) -> pa.RecordBatch:
    """Chunks to write, with the cell of each."""
    schema = staged_schema(chunks.schema)
    columns = [c.cast(f.type) for c, f in zip(chunks.columns, schema, strict=False)]
    kept = pa.array([False] * chunks.num_rows, pa.bool_())
    return pa.RecordBatch.from_arrays([*columns, cells, kept], schema=schema)


def removals(index: pa.Schema, ids: list[str], cells: list[int]) -> pa.RecordBatch:
    """Rows that make Hudi delete these chunks from these cells."""
    return _rows(index, ids, {CELL: cells, DELETED: [True] * len(ids)})


def notes(index: pa.Schema, texts: Mapping[str, str | None]) -> pa.RecordBatch:
    """Rows that carry notes: `_id` → text; None deletes the note."""
    held = list(texts.values())
    gone = [text is None for text in held]
    return _rows(
        index, list(texts), {"_checkpoint": held, CELL: [NOTES] * len(held), DELETED: gone}
    )


def _rows(index: pa.Schema, ids: list[str], values: Mapping[str, list[Any]]) -> pa.RecordBatch:
    """Rows to write with only these values; all other columns are null."""
    schema, known = staged_schema(index), {"_id": ids, **values}
    nothing = [None] * len(ids)
    columns = [pa.array(known.get(f.name, nothing), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def frontier_notes(text: str, pages: dict[str, str], former: set[str]) -> dict[str, str | None]:
    """The notes of a frontier: its text, its new pages, and the former pages to delete."""
    gone: dict[str, str | None] = {f"{PAGE_ID}{name}": None for name in former}
    return {CHECKPOINT_ID: text, **gone, **{f"{PAGE_ID}{n}": t for n, t in pages.items()}}
