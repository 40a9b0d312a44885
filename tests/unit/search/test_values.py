"""Dates and times beyond Python's calendar: Postgres' infinity arrives as the year 294276."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.query import Mode, Question
from lakewake.model.timeline import TableIdentity
from lakewake.search import search
from lakewake.search.values import python_rows
from lakewake.store import StoreReader
from lakewake.store.lance.store import LanceStore
from support.sampling import HASHING, rid, sample_recipe

UTC = pa.timestamp("us", tz="UTC")
INFINITY = int(np.datetime64("294247-01-10T04:00:54.775807", "us").astype(np.int64))


def _index_of_one(folder: Path, values: pa.Array) -> StoreReader:
    """An index of one row with this payload, in Lance."""
    embedder = HashingEmbedder(HASHING)
    recipe, text = sample_recipe(), "until the end of time"
    schema = index_schema(recipe, pa.schema([("num", values.type)]))
    chunk = {
        "_id": chunk_id(rid("far"), "text", 0),
        "_key": rid("far").key,
        "_partition": rid("far").partition,
        "_field": "text",
        "_chunk": 0,
        "_hash": text_hash(text),
        "_text": text,
        "_vector": embedder.embed([text])[0].tolist(),
    }
    table = pa.Table.from_pylist([chunk], schema)
    table = table.set_column(schema.get_field_index("num"), schema.field("num"), values)
    store = LanceStore(str(folder), "sample")
    identity = TableIdentity("t", "id", "", "COPY_ON_WRITE")
    store.create(recipe, Batch(schema, table.to_reader), Frontier(identity, {"1": "2"}), after=0)
    index = store.open()
    assert index is not None
    return index


@pytest.mark.parametrize("mode", list(Mode))
def test_a_row_with_a_time_beyond_pythons_calendar_is_found(tmp_path, mode):
    index = _index_of_one(tmp_path, pa.array([INFINITY], pa.int64()).cast(UTC))
    question = Question("sample", "end of time", k=1, mode=mode)
    found = search(index, HashingEmbedder(HASHING), question)
    assert found.hits[0].payload == {"num": "+294247-01-10T04:00:54.775807+00:00"}


@pytest.mark.parametrize("text", ["-0001-12-30", "0000-02-29", "+10000-01-01", "+32768-06-15"])
def test_dates_beyond_pythons_calendar_are_iso_8601_texts(text):
    day = np.datetime64(text.lstrip("+"), "D").astype(np.int32)
    column = pa.array([day, None, 0], pa.int32()).cast(pa.date32())
    rows = python_rows(pa.table({"day": column}))
    assert [row["day"] for row in rows] == [text, None, datetime.date(1970, 1, 1)]


def test_times_beyond_pythons_calendar_are_texts_inside_arrays_structs_and_maps():
    times = pa.array([INFINITY, 0], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table(
        {
            "list": pa.ListArray.from_arrays([0, 2], times),
            "struct": pa.StructArray.from_arrays([times.slice(0, 1)], ["at"]),
            "map": pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), times),
        }
    )
    far, first = "+294247-01-10T04:00:54.775807", datetime.datetime(1970, 1, 1)
    assert python_rows(table) == [
        {"list": [far, first], "struct": {"at": far}, "map": [("a", far), ("b", first)]}
    ]
