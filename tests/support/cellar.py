"""A few wines in an index on disk, beside a table that has commits but no rows.

It is enough for everything that reads an index, and needs no Spark.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakewake
from lakewake.api import Index
from lakewake.chunk import chunk_row
from lakewake.chunk.split import Splitter
from lakewake.model.chunks import Batch, index_schema
from lakewake.model.rows import RowId
from lakewake.plan import build_plan

FIRST, SECOND = "20250301120000000", "20250302120000000"
PAYLOAD = pa.schema(
    {"country": pa.string(), "price": pa.float64(), "day": pa.date32(), "score": pa.int64()}
)
WINES: dict[str, tuple[str, str, float | None]] = {
    "smoky": ("A smoky red with leather and old wood. It ends on tobacco.", "Italy", 30.0),
    "smokier": ("A smoky red with leather and old oak. It ends on tobacco.", "Italy", 35.0),
    "fresh": ("Fresh white with citrus, for a summer evening.", "France", 12.0),
    "sweet": ("Sweet wine with honey. It is smoky at the end.", "Italy", None),
    "<b>odd</b>": ("<script>alert('wine')</script> & \"quotes\" in the text.", "Spain", 8.0),
}
CONFIG = """\
[[index]]
name    = "wines"
table   = "lake/wines"
text    = "{description}"
payload = ["country", "price", "day", "score"]
store   = "lance://index"
chunk   = CHUNK
model   = {provider = "hashing", dimension = 64}
"""
COLUMNS = {
    "wine_id": "string",
    "description": "string",
    "country": "string",
    "price": "double",
    "day": {"type": "int", "logicalType": "date"},
    "score": "long",
}


def make_cellar(folder: Path, chunk: str = '"whole"') -> Path:
    """Write the timeline, the configuration and the index; return the configuration's path."""
    fields = [{"name": name, "type": ["null", type]} for name, type in COLUMNS.items()]
    schema = json.dumps({"type": "record", "name": "wine", "fields": fields})
    make_timeline(folder / "lake" / "wines", schema)
    config = folder / "lakewake.toml"
    config.write_text(CONFIG.replace("CHUNK", chunk))
    build(lakewake.open(config)["wines"])
    return config


def make_timeline(table: Path, schema: str) -> None:
    """Write the metadata of a table after one commit."""
    (table / ".hoodie" / "timeline").mkdir(parents=True)
    properties = {
        "hoodie.table.name": "wines",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.table.recordkey.fields": "wine_id",
        "hoodie.timeline.path": "timeline",
        "hoodie.table.create.schema": schema,
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    (table / ".hoodie" / "hoodie.properties").write_text(text)
    commit(table, FIRST)


def commit(table: Path, requested: str) -> None:
    """Add a commit to the timeline."""
    file = table / ".hoodie" / "timeline" / f"{requested}_{int(requested) + 5}.commit"
    file.write_text('{"operationType": "UPSERT"}')


def build(index: Index) -> None:
    """Build the index of the wines as a sync would, from the rows of this module."""
    parts = index.parts
    schema = index_schema(parts.recipe, PAYLOAD)
    plan = build_plan(parts.table.look(None), None, parts.recipe)
    table = pa.Table.from_pylist(rows_of(index), schema)
    after = parts.store.generation()
    parts.store.create(parts.recipe, Batch(schema, table.to_reader), plan.after, after)


def rows_of(index: Index) -> list[dict[str, Any]]:
    """The chunks of a wine, with their vectors and the wine's payload."""
    parts = index.parts
    splitter = Splitter(parts.recipe.chunking, 0, None)
    out = []
    for n, (key, (text, country, price)) in enumerate(WINES.items()):
        day = datetime.date(2024, 1, 1 + n)
        payload = {"country": country, "price": price, "day": day, "score": 90 + n}
        for chunk in chunk_row(RowId("red", key), {"text": text}, splitter.split):
            vector = parts.embedder.embed([chunk.text])[0].tolist()
            own = {"_id": chunk.id, "_key": key, "_partition": "red", "_field": chunk.field}
            kept = {"_chunk": chunk.n, "_hash": chunk.hash, "_text": chunk.text}
            out.append({**own, **kept, "_instant": FIRST, "_vector": vector, **payload})
    return out
