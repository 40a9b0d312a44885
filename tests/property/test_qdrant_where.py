"""For any filter: Qdrant finds the rows that the plain function finds, on both engines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.model.where import Compare, Where
from lakewake.store import StoreReader
from lakewake.store.filters import fitted, matches
from lakewake.store.qdrant.filters import every, to_filter, valid_at
from lakewake.store.qdrant.location import CONNECTIONS
from lakewake.store.qdrant.reader import QdrantReader
from lakewake.store.qdrant.store import QdrantStore
from support.filtering import ROWS, SCHEMA, TABLE, VALUES, filters
from support.qdrant.edge_engine import EdgeLocation
from support.qdrant.locations import InMemory

RECIPE = Recipe(ModelIdentity("hashing", "test", 2), payload=tuple(SCHEMA.names))
INDEX = index_schema(RECIPE, SCHEMA)
AHEAD = np.array([1.0, 0.0], np.float32)


def rows() -> pa.Table:
    """The rows of the other test, each with its own vector."""
    row_ids = [RowId("", str(n)) for n in range(ROWS)]
    own = {
        "_id": [chunk_id(row, "text", 0) for row in row_ids],
        "_key": [row.key for row in row_ids],
        "_partition": [row.partition for row in row_ids],
        "_field": ["text"] * ROWS,
        "_chunk": [0] * ROWS,
        "_hash": [text_hash(row.key) for row in row_ids],
        "_vector": [[math.cos(n / ROWS), math.sin(n / ROWS)] for n in range(ROWS)],
    }
    columns = []
    for field in INDEX:
        if field.name in TABLE.column_names:
            columns.append(TABLE[field.name].combine_chunks())
        else:
            columns.append(pa.array(own.get(field.name, [None] * ROWS), field.type))
    return pa.Table.from_arrays(columns, schema=INDEX)


@pytest.fixture(scope="module", params=["memory", "edge"])
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreReader]:
    edge = EdgeLocation(str(tmp_path_factory.mktemp("edge")), indexed=True)
    place = edge if request.param == "edge" else InMemory()
    store = QdrantStore(place, "wines", "wines")
    frontier = Frontier(TableIdentity("wines", "n", "", "COPY_ON_WRITE"), {"1": "1"}, sync=1)
    store.create(RECIPE, Batch(INDEX, rows().to_reader), frontier, after=0)
    yield store.open()
    CONNECTIONS.close(place)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=filters)
def test_qdrant_and_the_plain_function_find_the_same_rows(reader: Any, where: Where) -> None:
    fit = fitted(where, SCHEMA)
    by_hand = [row["n"] for row in VALUES if matches(fit, row)]
    found = reader.search(Query(AHEAD, ROWS, where=where))
    assert found["n"].to_pylist() == by_hand


@pytest.mark.parametrize(
    "where",
    [
        Compare("name", "=", "a"),
        Compare("name", "!=", "a"),
        Compare("red", "=", True),
        Compare("red", "!=", True),
        Compare("big", "=", 2**63 - 1),
        Compare("big", "!=", -(2**63)),
        Compare("tiny", "<", 1),
    ],
)
def test_qdrant_itself_leaves_out_rows_that_do_not_match(
    reader: QdrantReader, where: Compare
) -> None:
    if where.column == "red" and reader.fence.points.location.has_indexes:
        pytest.skip("the engine's Python binding takes a boolean for a number")
    asked = every(valid_at(1), to_filter(fitted(where, INDEX), INDEX))
    found = reader.fence.points.count(reader.head.collection, asked)
    assert 0 < found == sum(matches(where, row) for row in VALUES) < ROWS


def test_every_value_is_read_back_unchanged(reader: StoreReader) -> None:
    held = pa.Table.from_batches(reader.scan(reader.schema().names)).sort_by("n")
    names = [n for n in INDEX.names if n != "_vector"]
    # Compared as text: NaN does not equal itself.
    assert str(held.select(names).to_pylist()) == str(rows().select(names).to_pylist())
