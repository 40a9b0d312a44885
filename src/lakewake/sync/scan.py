"""A search that reads the table itself, if there is no index or it is too old."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from lakewake.errors import TableError
from lakewake.model.chunks import VECTOR_FIELD, Chunk, index_schema
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch
from lakewake.plan import check_columns, frontier_after
from lakewake.plan.patch import Patch
from lakewake.source import TableMoved
from lakewake.store.scan import ScanReader
from lakewake.sync.index_rows import index_rows
from lakewake.sync.parts import IndexParts
from lakewake.sync.vectors import column_vectors, unusable_vectors

T = TypeVar("T")
#: How often a scan begins again because the table has a new commit.
ATTEMPTS = 3


def with_scan(parts: IndexParts, work: Callable[[ScanReader], T], *, spark: bool) -> T:
    """Call `work` with the table as one version of an index, and return its result.

    Args:
        spark: Spark may read the table. Otherwise it is read without a JVM, or not at all.

    Raises:
        TableError: the table cannot be read so, or commits come faster than it can be read.
    """
    for _ in range(ATTEMPTS):
        try:
            return work(scanned(parts, spark=spark))
        except TableMoved:
            continue
    raise TableError(
        f"the table of index '{parts.name}' keeps changing while it is scanned",
        hint=f"run `lakewake sync {parts.name}`, then search again",
    )


def scanned(parts: IndexParts, *, spark: bool) -> ScanReader:
    """The table as it is now. All reads are of this commit, or raise `TableMoved`."""
    look, recipe = parts.table.look(None), parts.recipe
    check_columns(look, recipe)
    begun = [parts.table.scan(look, spark=spark)]
    schema = index_schema(recipe, begun[0].payload or pa.schema([]))

    def read() -> Iterator[pa.RecordBatch]:
        changes = begun.pop() if begun else parts.table.scan(look, spark=spark)
        return _chunks(changes, recipe, schema)

    return ScanReader(recipe, frontier_after(look, None, recipe), schema, read)


def _chunks(changes: Changes, recipe: Recipe, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for rows in changes.rows:
        patch = Patch(tuple(_with_vectors(rows)), (), 0, frozenset())
        aside = {n: rows.ids[n] for n in unusable_vectors(rows, patch, recipe).reasons}
        patch = patch.without(aside, {})
        vectors = column_vectors(rows, patch, recipe)
        yield from index_rows(rows, patch, vectors, schema, recipe.model.dimension)


def _with_vectors(rows: RowBatch) -> Iterator[tuple[int, Chunk]]:
    assert rows.vectors is not None
    for n, is_valid in enumerate(rows.vectors.is_valid().to_pylist()):
        if is_valid:
            yield n, Chunk(rows.ids[n], VECTOR_FIELD, 0, "", rows.source_hashes[n])
