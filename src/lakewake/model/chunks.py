"""Chunks, and how an index holds them. The Arrow columns are a documented, stable format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId

#: `_id` of the one row that carries the frontier. No chunk id can equal it: those are JSON arrays.
CHECKPOINT_ID = "__checkpoint__"
#: Prefix of the `_id` of a row that carries a page of the frontier; the page's name follows.
PAGE_ID = "__page__"
#: The field of chunks whose vector comes from the table itself.
VECTOR_FIELD = "vector"
#: Characters that JSON escapes.
_ESCAPED = r'["\\\x00-\x1f]'
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def text_hash(text: str) -> str:
    """sha256 of a text, in hex: what `_hash` holds."""
    return hashlib.sha256(text.encode()).hexdigest()


def chunk_id(row: RowId, field: str, n: int) -> str:
    """The primary key of a chunk: equal exactly for equal (row id, field, number)."""
    return _ENCODE([row.partition, row.key, field, n])


def chunk_ids(chunks: pa.RecordBatch) -> pa.Array:
    """`chunk_id` of each chunk of an index; null if a part of it is null."""
    parts = [chunks[c] for c in ("_partition", "_key", "_field")]
    if any(pc.any(pc.match_substring_regex(p, _ESCAPED)).as_py() for p in parts):
        values = zip(*(p.to_pylist() for p in parts), chunks["_chunk"].to_pylist(), strict=True)
        made = [None if None in v else chunk_id(RowId(v[0], v[1]), v[2], v[3]) for v in values]
        return pa.array(made, pa.string())
    partition, key, field = parts
    number = pc.cast(chunks["_chunk"], pa.string())
    return pc.binary_join_element_wise(
        '["', partition, '","', key, '","', field, '",', number, "]", ""
    )


@dataclass(frozen=True)
class Chunk:
    """One part of a row's text: the unit that an index stores."""

    row: RowId
    field: str
    n: int
    text: str
    hash: str

    @property
    def id(self) -> str:
        """Its primary key in an index."""
        return chunk_id(self.row, self.field, self.n)


@dataclass(frozen=True)
class StoredChunk:
    """What an index holds about a chunk, without its text and vector.

    Attributes:
        source_hash: what the row's chunks were made from; valid in the first chunk of each field.
            Other chunks are not rewritten while their own text stays, so they may have an earlier
            hash, or none.
    """

    id: str
    hash: str
    source_hash: str
    payload_hash: str
    instant: str = ""
    n: int = 0


def index_schema(recipe: Recipe, payload: pa.Schema) -> pa.Schema:
    """The Arrow schema of an index of this recipe over payload columns of these types."""
    text = [
        pa.field("_id", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"}),
        *(pa.field(n, pa.string()) for n in ("_key", "_partition", "_field")),
        pa.field("_chunk", pa.int32()),
        *(pa.field(n, pa.string()) for n in ("_hash", "_source_hash", "_payload_hash")),
        pa.field("_instant", pa.string()),
        pa.field("_text", pa.string()),
        pa.field("_vector", pa.list_(pa.float32(), recipe.model.dimension)),
        pa.field("_checkpoint", pa.string()),
    ]
    # Nullable throughout: the checkpoint row has none of these.
    return pa.schema([*text, *(pa.field(f.name, f.type) for f in payload)])


@dataclass(frozen=True)
class Batch:
    """All that one commit changes in an index, besides its frontier.

    Attributes:
        rows: opens the chunks to insert or replace, as record batches of the index's schema
            (without the checkpoint row); can be called again, and each `_id` comes once.
        deletes: `_id`s to remove, each once; none of them is among `rows`. There may be more than
            fit into memory; they can be iterated again.
        staged: further chunks, which staged writes have written already.
        replaced: their `_id`s, if an index may hold earlier versions of them.
    """

    schema: pa.Schema
    rows: Callable[[], pa.RecordBatchReader]
    deletes: Collection[str] = ()
    staged: tuple[bytes, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScanParts:
    """Some columns of all chunks of an index, in parts that can be pickled and read elsewhere.

    A part can be read again, and then has the same chunks in the same order.

    Attributes:
        chunks: about how many chunks all parts have; 0 if that is not known.
    """

    schema: pa.Schema
    parts: tuple[Iterable[pa.RecordBatch], ...]
    chunks: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(self.parts)
