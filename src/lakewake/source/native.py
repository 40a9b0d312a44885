"""Reads all rows of a table without a JVM, by hudi-rs, if that gives what Spark would give."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakewake.errors import TableError
from lakewake.model.chunks import VECTOR_FIELD, chunk_id
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch, RowId
from lakewake.model.timeline import Look
from lakewake.source import TableMoved
from lakewake.source.look import look_at
from lakewake.source.view import steady

if TYPE_CHECKING:
    from hudi import HudiTable

HINT = "sync the index; or scan with Spark: lakewake.open(CONFIG, spark=session)"
IDENTITY = ("_hoodie_partition_path", "_hoodie_record_key", "_hoodie_commit_time")
#: Bytes of a number in a VECTOR column → its type.
ELEMENTS = {1: "<i1", 4: "<f4", 8: "<f8"}
BATCH_ROWS = 8192


def why_not(path: str, look: Look, recipe: Recipe) -> str:
    """Why a table cannot be read without Spark; '' if it can."""
    partitioned = set(look.table.partition_fields.split(",")) & set(recipe.payload_columns)
    reasons = {
        "it is not on a local file system": "://" in path,
        "the payload names fields of structs": any(inside for _, inside in recipe.held),
        "it merges rows in its own way": look.merges_contents,
        "only Spark evaluates the `where` of the index": bool(recipe.where),
        "its rows do not hold their keys": look.properties.get("hoodie.populate.meta.fields")
        == "false",
        "Spark takes payload columns that partition the table from its paths": bool(partitioned),
        "the Hudi reader is not installed (pip install 'lakewake[lake]')": not find_spec("hudi"),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def snapshot(path: str, look: Look, recipe: Recipe) -> Changes:
    """Every row as of `look`. A row that the table holds twice comes twice.

    Raises:
        TableMoved: a commit completed since the look; look again.
        TableError: the table cannot be read so.
    """
    from hudi import HudiTableBuilder

    try:
        table = HudiTableBuilder.from_base_uri(path).build()
        shown = table.get_schema()
        types = [steady(pa.array([], shown.field(c).type)).type for c in recipe.payload]
    except Exception as error:
        raise _unreadable(path, error) from error
    payload = pa.schema(list(zip(recipe.payload, types, strict=True)))
    return Changes(_rows(table, path, look, recipe, payload), payload=payload)


def _rows(
    table: HudiTable, path: str, look: Look, recipe: Recipe, payload: pa.Schema
) -> Iterator[RowBatch]:
    from hudi import HudiReadOptions

    assert recipe.vector
    names = list(dict.fromkeys([*IDENTITY, recipe.vector, *recipe.payload]))
    options = HudiReadOptions(projection=names).with_batch_size(BATCH_ROWS)
    try:
        slices = table.get_file_slices(HudiReadOptions())
        reader = table.create_file_group_reader_with_options(HudiReadOptions())
        again = look_at(path, Frontier(look.table, look.completed))
        if (again.completed, again.table) != (look.completed, look.table):
            raise TableMoved
        for one in slices:
            for batch in reader.read_file_slice_stream(one, options):
                yield _row_batch(batch, recipe, payload)
    except (TableMoved, TableError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from error


def _row_batch(batch: pa.RecordBatch, recipe: Recipe, payload: pa.Schema) -> RowBatch:
    partitions, keys, instants = (batch.column(name).to_pylist() for name in IDENTITY)
    ids = tuple(RowId(p or "", k) for p, k in zip(partitions, keys, strict=True))
    columns = [batch.column(f.name).cast(f.type) for f in payload]
    nothing = ("",) * len(ids)
    return RowBatch(
        ids=ids,
        instants=tuple(instants),
        # Only has to tell rows apart.
        source_hashes=tuple(chunk_id(row, VECTOR_FIELD, 0) for row in ids),
        payload_hashes=nothing,
        texts={},
        payload=pa.RecordBatch.from_arrays(columns, schema=payload),
        vectors=as_lists(batch.column(recipe.vector), recipe.model.dimension),
    )


def as_lists(column: pa.Array, dimension: int) -> pa.Array:
    """A column of vectors as lists of single-precision numbers, as Spark casts them.

    Raises:
        ValueError: vectors of another length are stored.
    """
    if not pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.list_(pa.float32()))
    held = column.drop_null()
    width = column.type.byte_width
    element = ELEMENTS.get(width // dimension if width % dimension == 0 else 0)
    if element is None:
        raise ValueError(f"{width} bytes are not {dimension} numbers")
    content = b"".join(held.to_pylist())
    with np.errstate(over="ignore"):
        numbers = np.frombuffer(content, element).astype(np.float32)
    ends = np.cumsum(np.asarray(column.is_valid()).astype(np.int32) * dimension)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, pa.array(numbers), mask=mask)


def _unreadable(path: str, error: Exception) -> TableError:
    return TableError(f"table {path} cannot be scanned without Spark: {error}", hint=HINT)
