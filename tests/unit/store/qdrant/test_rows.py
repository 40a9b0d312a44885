"""Chunks → points → chunks, through JSON as a server has it."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewake.errors import StoreError
from lakewake.model.chunks import index_schema
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.store.qdrant.points import MOST_BYTES, WRITE_BYTES
from lakewake.store.qdrant.rows import FOREVER, Decoder, field_key, gone_points, indexes, to_points

UTC = datetime.UTC
NOON = datetime.datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
DEEP = pa.struct([("a", pa.list_(pa.struct([("b", pa.decimal128(30, 9))]))), ("c", pa.binary())])
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "nul\x00 🍷", "NaN", None]),
    (pa.large_string(), ["x", None]),
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.int64(), [2**63 - 1, -(2**63), 0, None]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float32(), [0.1, -0.0, math.inf, None]),
    (pa.float64(), [1e308, 5e-324, -math.inf, math.nan, None]),
    (pa.float16(), [np.float16(0.5), None]),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
    (pa.decimal256(70, 2), [Decimal("9" * 60 + ".01"), None]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (pa.timestamp("us", "UTC"), [NOON, None]),
    (pa.timestamp("ms"), [datetime.datetime(1969, 12, 31, 23, 59, 59, 1000), None]),
    (pa.timestamp("us", "Europe/Paris"), [NOON, None]),
    (pa.time64("us"), [datetime.time(23, 59, 59, 999999), None]),
    (pa.duration("us"), [datetime.timedelta(days=-3, microseconds=1), None]),
    (pa.binary(), [b"", bytes(range(256)), None]),
    (pa.list_(pa.string()), [[], ["a", None, "ü"], None]),
    (pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], [], None]),
    (DEEP, [{"a": [{"b": Decimal("0.000000001")}, None], "c": b"\xff"}, None]),
]


def recipe(dimension: int = 2) -> Recipe:
    return Recipe(ModelIdentity("hashing", "test", dimension), payload=("value", "other"))


def schema_of(type: pa.DataType) -> pa.Schema:
    return index_schema(recipe(), pa.schema([("value", type), ("other", pa.date32())]))


def sent(points: Any) -> list[Any]:
    """Points as they come back from a server."""
    payloads = [
        json.loads(json.dumps(p.model_dump(), allow_nan=False)) for some in points for p in some
    ]
    return [SimpleNamespace(**p) for p in payloads]


@pytest.mark.parametrize(("type", "values"), VALUES, ids=lambda v: str(v)[:30])
def test_a_value_of_any_type_is_read_back_exactly(type: pa.DataType, values: list[Any]) -> None:
    schema = schema_of(type)
    rows = [{"_id": str(n), "_vector": [0.6, 0.8], "value": v} for n, v in enumerate(values)]
    table = pa.Table.from_pylist(rows, schema=schema)
    points = sent(to_points(table.to_batches(), "part", 3))
    read = Decoder(schema, schema.names).batch(points)
    assert str(read.to_pylist()) == str(table.to_pylist())
    assert read.schema.equals(schema)


def test_a_time_beyond_pythons_calendar_is_read_back_exactly() -> None:
    schema = schema_of(pa.timestamp("us"))
    far = pa.array([2**62, None], pa.timestamp("us"))
    columns = [far if f.name == "value" else pa.nulls(2, f.type) for f in schema]
    columns[0] = pa.array(["a", "b"])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    points = sent(to_points([batch], "part", 0))
    assert points[0].payload["_odd"] == ["value"]
    assert Decoder(schema, ["value"]).batch(points)["value"].equals(far)


def test_times_and_decimals_are_readable_by_other_clients() -> None:
    schema = index_schema(
        recipe(), pa.schema([("value", pa.timestamp("us", "UTC")), ("other", pa.decimal128(9, 2))])
    )
    row = {"_id": "1", "_vector": [0.6, 0.8], "value": NOON, "other": Decimal("1.50")}
    (point,) = sent(to_points(pa.Table.from_pylist([row], schema=schema).to_batches(), "part", 3))
    assert point.payload["value"] == "2024-01-31T12:00:00.123456Z"
    assert point.payload["other"] == 1.5
    assert (point.payload["_part"], point.payload["_base"]) == ("part", 3)
    assert (point.payload["_from"], point.payload["_to"]) == (FOREVER, FOREVER)


def test_a_point_never_has_the_id_of_another_version_of_its_chunk() -> None:
    schema = schema_of(pa.int64())
    table = pa.Table.from_pylist([{"_id": "a", "_vector": [1, 0]}, {"_id": "b"}], schema=schema)
    ids = [
        [p.id for some in to_points(table.to_batches(), part, 1) for p in some]
        for part in ("one", "two", "one")
    ]
    assert ids[0] == ids[2]
    assert len({*ids[0], *ids[1]}) == 4


def test_points_are_sent_in_lists_that_a_server_accepts() -> None:
    schema = schema_of(pa.string())
    rows = [{"_id": str(n), "_text": "x" * 1_000_000} for n in range(10)]
    table = pa.Table.from_pylist(rows, schema=schema)
    sizes = [len(some) for some in to_points(table.to_batches(), "part", 1)]
    assert sum(sizes) == 10
    assert max(sizes) <= 5
    many = pa.Table.from_pylist([{"_id": str(n)} for n in range(600)], schema=schema)
    assert [len(s) for s in to_points(many.to_batches(), "part", 1)] == [256, 256, 88]


def test_deleted_ids_are_stored_in_points_of_a_few_hundred() -> None:
    ids = [str(n) for n in range(1_200)]
    points = [p for some in gone_points(ids, "part", 2, 3) for p in some]
    assert [i for p in points for i in p.payload["_gone"]] == ids
    assert len(points) == 3
    assert len({p.id for p in points}) == 3


def test_columns_that_can_be_filtered_are_indexed_by_their_types() -> None:
    payload = pa.schema(
        [
            ("name", pa.string()),
            ("points", pa.int32()),
            ("huge", pa.uint64()),
            ("price", pa.decimal128(9, 2)),
            ("red", pa.bool_()),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("two words", pa.string()),
        ]
    )
    found = indexes(index_schema(recipe(), payload))
    assert {k: found[k] for k in found if not k.startswith("_")} == {
        "name": "keyword",
        "points": "integer",
        "huge": "float",
        "price": "float",
        "red": "bool",
        "day": "datetime",
        "tags": "keyword",
    }
    assert found[field_key("two words")] == "keyword"
    assert {"_id", "_key", "_hash", "_part", "_from", "_to", "_base"} <= set(found)


def test_a_column_of_any_name_has_a_field_that_is_a_plain_path() -> None:
    names = ["price", "a-b", "two words", 'say "hi"', "größe", "a[0]"]
    keys = [field_key(n) for n in names]
    assert keys[:2] == names[:2]
    assert all(key.replace("-", "_").isidentifier() and key.isascii() for key in keys)
    assert len(set(keys)) == len(keys)


def test_a_chunk_too_large_for_a_request_is_named():
    schema = index_schema(
        Recipe(ModelIdentity("hashing", "test", 2)), pa.schema([("c", pa.string())])
    )
    chunk = {"_id": "i", "_key": "huge", "_partition": "p", "_vector": [1.0, 0.0]}
    rows = pa.RecordBatch.from_pylist([{**chunk, "c": "x" * MOST_BYTES}], schema=schema)
    with pytest.raises(StoreError, match="'huge'"):
        list(to_points([rows], "part", 0))


def test_no_request_exceeds_its_size_limit_whatever_the_payload():
    kind = pa.list_(pa.string())
    schema = index_schema(Recipe(ModelIdentity("hashing", "test", 2)), pa.schema([("c", kind)]))
    chunk = {"_key": "k", "_partition": "p", "_vector": [1.0, 0.0], "c": ["x" * 1000] * 1000}
    rows = [
        pa.RecordBatch.from_pylist([{**chunk, "_id": str(n)}], schema=schema) for n in range(12)
    ]
    requests = list(to_points(rows, "part", 0))
    sizes = [len(json.dumps([p.payload for p in points])) for points in requests]
    assert sum(map(len, requests)) == 12
    assert max(sizes) <= WRITE_BYTES
