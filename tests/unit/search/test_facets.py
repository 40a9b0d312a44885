"""Facets: the values of an index's payload columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewake.api import Index
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import IndexMissing
from lakewake.model.facets import Facet
from lakewake.model.recipe import Chunking, Recipe, TextField
from lakewake.search.facets import LISTED, MAX_DISTINCT
from lakewake.source.memory import MemoryTable
from support.following import follow, table_of
from support.sampling import HASHING, rid

LIST = pa.list_(pa.string())
NOON = datetime.datetime(2025, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(params=["memory", "lance"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path}/index"


def indexed(
    store: str,
    rows: list[dict[str, Any]],
    fields: tuple[TextField, ...] = (TextField("text", "{txt}"),),
    chunking: Chunking | None = None,
    **payload: pa.DataType,
) -> Index:
    """An index of these rows, with these payload columns."""
    recipe = Recipe(
        HashingEmbedder(HASHING).identity,
        fields,
        payload=tuple(payload),
        chunking=chunking or Chunking(),
    )
    columns = {"txt": pa.string(), "more": pa.string(), **payload}
    index = follow(store, MemoryTable(recipe, pa.schema(columns)), recipe=recipe)
    table_of(index).upsert({rid(str(n)): {"txt": f"t{n}", **row} for n, row in enumerate(rows)})
    index.sync()
    return index


def test_elements_of_lists_and_fields_of_structs_are_counted_once_for_a_row(store: str) -> None:
    customer = pa.struct({"country": pa.string(), "age": pa.int32(), "groups": LIST})
    rows = [
        {"tags": ["dry", "dry", None], "customer": {"country": "DE", "age": 30, "groups": ["a"]}},
        {"tags": ["dry", "oak"], "customer": {"country": "FR", "age": 40, "groups": []}},
        {"tags": [], "customer": {"country": "DE", "age": None, "groups": ["a", "b"]}},
        {"tags": None, "customer": None, "sizes": [1]},
    ]
    sizes = pa.list_(pa.int32())
    index = indexed(store, rows, tags=LIST, customer=customer, sizes=sizes)
    assert index.facets() == (
        Facet("tags", "text", {"dry": 2, "oak": 1}, of_list=True),
        Facet("customer.country", "text", {"DE": 2, "FR": 1}),
        Facet("customer.age", "number", None, 30, 40),
        Facet("customer.groups", "text", {"a": 2, "b": 1}, of_list=True),
    )
    assert [facet.as_dict()["of_list"] for facet in index.facets()] == [True, False, False, True]
    for facet in index.facets():
        for value, count in (facet.values or {}).items():
            word = "CONTAINS" if facet.of_list else "="
            assert (
                len(index.search("t", k=9, where=f"{facet.column} {word} '{value}'").hits) == count
            )


def test_texts_and_booleans_are_counted_most_frequent_first(store: str) -> None:
    rows = [
        {"country": country, "sold": country == "Italy"}
        for country in ["Italy", "France", "Italy", None, "Chile", "Italy", "France"]
    ]
    index = indexed(store, rows, country=pa.string(), sold=pa.bool_())
    country, sold = index.facets()
    assert country == Facet("country", "text", {"Italy": 3, "France": 2, "Chile": 1})
    assert list(country.values or ()) == ["Italy", "France", "Chile"]
    assert sold.as_dict() == {
        "column": "sold",
        "type": "boolean",
        "values": [{"value": False, "count": 4}, {"value": True, "count": 3}],
        "min": None,
        "max": None,
        "more": 0,
        "of_list": False,
    }


def test_numbers_and_times_have_a_range(store: str) -> None:
    rows = [
        {"price": 12.5, "points": 90, "tax": Decimal("1.50"), "at": NOON, "day": NOON.date()},
        {"price": None, "points": 85, "tax": Decimal("3.00"), "at": None, "day": None},
        {"price": float("nan"), "points": 99, "tax": None, "at": NOON.replace(hour=9), "day": None},
        {"price": float("inf"), "points": None, "tax": None, "at": None, "day": None},
        {"price": 3.25, "points": 91, "tax": None, "at": NOON.replace(second=1), "day": None},
    ]
    index = indexed(
        store,
        rows,
        price=pa.float64(),
        points=pa.int64(),
        tax=pa.decimal128(10, 2),
        at=pa.timestamp("us", "UTC"),
        day=pa.date32(),
    )
    assert index.facets() == (
        Facet("price", "number", None, 3.25, 12.5),
        Facet("points", "number", None, 85, 99),
        Facet("tax", "number", None, 1.5, 3),
        Facet("at", "time", None, "2025-03-01T09:00:00+00:00", "2025-03-01T12:00:01+00:00"),
        Facet("day", "time", None, "2025-03-01", "2025-03-01"),
    )


def test_a_column_of_nulls_has_no_range_and_no_values(store: str) -> None:
    index = indexed(store, [{}], price=pa.float64(), country=pa.string())
    assert index.facets() == (Facet("price", "number"), Facet("country", "text", {}))


def test_a_row_counts_once_however_many_chunks_it_has(store: str) -> None:
    long = " ".join(f"word{n}" for n in range(60))
    rows = [{"txt": long, "country": "Italy"}, {"country": "Italy"}]
    index = indexed(store, rows, chunking=Chunking(10, 2), country=pa.string())
    assert index.status().chunks > 3
    assert index.facets() == (Facet("country", "text", {"Italy": 2}),)


def test_a_row_counts_once_whichever_of_its_texts_exist(store: str) -> None:
    fields = (TextField("text", "{txt}"), TextField("more", "{more}"))
    rows = [
        {"more": "both", "country": "Italy"},
        {"txt": None, "more": "second only", "country": "Italy"},
        {"country": "Chile"},
    ]
    index = indexed(store, rows, fields, country=pa.string())
    assert (index.status().rows, index.status().chunks) == (3, 4)
    assert index.facets() == (Facet("country", "text", {"Italy": 2, "Chile": 1}),)


def test_columns_that_cannot_be_filtered_are_left_out(store: str) -> None:
    raw = pa.binary()
    index = indexed(
        store, [{"raw": b"a", "n": 1, "raws": [b"a"]}], raw=raw, n=pa.int64(), raws=pa.list_(raw)
    )
    assert [f.column for f in index.facets()] == ["n"]


def test_without_a_filterable_column_there_are_no_facets(tmp_path: Path) -> None:
    index = indexed(f"memory://{tmp_path}", [{"raw": b"a"}], raw=pa.binary())
    assert index.facets() == ()


@pytest.mark.parametrize("distinct", [MAX_DISTINCT, MAX_DISTINCT + 1])
def test_too_many_different_values_are_not_listed(tmp_path: Path, distinct: int) -> None:
    rows = [{"country": f"c{n:05}"} for n in (*range(distinct), 0)]
    (facet,) = indexed(f"memory://{tmp_path}", rows, country=pa.string()).facets()
    if distinct > MAX_DISTINCT:
        assert facet.values is None
        assert facet.as_dict()["values"] is None
    else:
        assert list(facet.values or ()) == [f"c{n:05}" for n in range(LISTED)]
        assert facet.more == distinct - LISTED
        assert facet.as_dict()["more"] == distinct - LISTED


def test_values_that_are_all_unique_are_not_listed(tmp_path: Path) -> None:
    rows = [{"title": f"t{n:05}"} for n in range(LISTED + 1)]
    (facet,) = indexed(f"memory://{tmp_path}", rows, title=pa.string()).facets()
    assert facet.values is None


def test_too_many_different_values_are_noticed_over_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.memory.SCAN_ROWS", 100)
    rows = [{"country": f"c{n}", "n": n} for n in range(MAX_DISTINCT + 1)]
    index = indexed(f"memory://{tmp_path}", rows, country=pa.string(), n=pa.int64())
    assert index.facets() == (Facet("country", "text"), Facet("n", "number", None, 0, MAX_DISTINCT))


def test_a_time_beyond_pythons_calendar_is_not_an_end_of_a_range(tmp_path: Path) -> None:
    index = indexed(f"memory://{tmp_path}", [{"at": NOON}], at=pa.timestamp("us", "UTC"))
    reader: Any = index.parts.store.open()
    far = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    at = reader.schema().get_field_index("at")
    object.__setattr__(reader, "held", reader.held.set_column(at, "at", far))
    assert index.facets() == (Facet("at", "time"),)


def test_facets_are_computed_once_for_each_version(store: str) -> None:
    index = indexed(store, [{"n": 1}], n=pa.int64())
    first = index.facets()
    assert index.facets() is first
    table_of(index).upsert({rid("new"): {"txt": "new", "n": 7}})
    assert index.facets() is first
    index.sync()
    assert index.facets() == (Facet("n", "number", None, 1, 7),)
    index.sync(rebuild=True)
    assert index.facets() == (Facet("n", "number", None, 1, 7),)


def test_facets_of_a_missing_index_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing):
        follow(f"memory://{tmp_path}").facets()
