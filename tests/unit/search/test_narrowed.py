"""Facets of the rows that a question and its filters leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewake.api import Index
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, FilterError
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.where import And, Compare, Not, Or
from lakewake.search.narrowed import COUNTED, without_column
from lakewake.source.memory import MemoryTable
from support.following import follow, table_of
from support.sampling import HASHING, rid

ROWS = [
    {"txt": "smoky red", "country": "Italy", "kind": "red", "price": 10},
    {"txt": "smoky rose", "country": "Italy", "kind": "rose", "price": 20},
    {"txt": "fresh white", "country": "France", "kind": "white", "price": 30},
    {"txt": "smoky white", "country": "France", "kind": "white", "price": 40},
    {"txt": "sweet red", "country": None, "kind": "red", "price": 50},
]
COLUMNS = {"country": pa.string(), "kind": pa.string(), "price": pa.int64()}


def index_of(store: str, rows: list[dict[str, Any]]) -> Index:
    recipe = Recipe(
        HashingEmbedder(HASHING).identity, (TextField("text", "{txt}"),), payload=tuple(COLUMNS)
    )
    schema = pa.schema({"txt": pa.string(), **COLUMNS})
    index = follow(store, MemoryTable(recipe, schema), recipe=recipe)
    table_of(index).upsert({rid(str(n)): row for n, row in enumerate(rows)})
    index.sync()
    return index


@pytest.fixture(params=["memory", "lance"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    return index_of(f"{request.param}://{tmp_path}/index", ROWS)


def shown(index: Index, *asked: Any, **narrowed: Any) -> dict[str, Any]:
    return {
        facet.column: dict(facet.values) if facet.values is not None else (facet.min, facet.max)
        for facet in index.facets(*asked, **narrowed)
    }


def test_a_filter_narrows_the_other_columns_and_not_its_own(index: Index) -> None:
    assert shown(index, where="country = 'Italy'") == {
        "country": {"France": 2, "Italy": 2},
        "kind": {"red": 1, "rose": 1},
        "price": (10, 20),
    }


def test_each_column_follows_the_filters_of_all_others(index: Index) -> None:
    where = {"and": [{"country": {"in": ["Italy", "France"]}}, {"price": {">=": 20}}]}
    assert shown(index, where=where) == {
        "country": {"France": 2, "Italy": 1},
        "kind": {"white": 2, "rose": 1},
        "price": (10, 40),
    }


def test_a_condition_on_two_columns_narrows_both(index: Index) -> None:
    found = shown(index, where="country = 'Italy' OR kind = 'white'")
    assert found["country"] == {"France": 2, "Italy": 2}
    assert found["kind"] == {"white": 2, "red": 1, "rose": 1}


def test_a_text_counts_the_rows_that_have_its_words(index: Index) -> None:
    found = shown(index, "smoky", mode="keyword")
    assert found == {
        "country": {"Italy": 2, "France": 1},
        "kind": {"red": 1, "rose": 1, "white": 1},
        "price": (10, 40),
    }
    assert shown(index, "smoky", mode="keyword", where="kind = 'white'")["country"] == {"France": 1}
    assert shown(index, "nothing", mode="keyword")["price"] == (None, None)


def test_a_text_counts_the_best_rows_only(tmp_path: Path) -> None:
    rows = [{"txt": "smoky", "country": "Italy", "kind": "red", "price": n} for n in range(COUNTED)]
    others = [{"txt": "zzz", "country": "Chile", "kind": "x", "price": -n} for n in range(1, 30)]
    index = index_of(f"memory://{tmp_path}", [*rows, *others])
    for mode in ("vector", "hybrid", "keyword"):
        assert shown(index, "smoky", mode=mode)["country"] == {"Italy": COUNTED}, mode


def test_a_text_is_embedded_once_however_many_columns_are_narrowed(index: Index) -> None:
    embedder: Any = index.parts.embedder
    received = embedder.received
    received.clear()
    index.facets("smoky", where="country = 'Italy' AND kind = 'red' AND price > 1")
    assert received == ["smoky"]


def test_the_same_question_is_counted_once_until_the_next_commit(index: Index) -> None:
    first = index.facets("smoky", mode="keyword")
    assert index.facets("smoky", mode="keyword") is first
    table_of(index).upsert({rid("9"): {**ROWS[0], "country": "Chile"}})
    index.sync()
    assert shown(index, "smoky", mode="keyword")["country"] == {"Italy": 2, "Chile": 1, "France": 1}


def test_one_and_true_are_different_filters(index: Index) -> None:
    assert shown(index, where={"price": 10})["kind"] == {"red": 1}
    with pytest.raises(FilterError):
        index.facets(where={"price": True})


@pytest.mark.parametrize(
    "wrong", [{"where": "nowhere = 1"}, {"where": "country = 1"}, {"where": "("}, {"text": " "}]
)
def test_a_wrong_question_is_refused(index: Index, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        index.facets(**wrong)


def test_a_limited_view_counts_its_rows_only(index: Index) -> None:
    few = index.limited("country = 'Italy'")
    everything = {"country": {"Italy": 2}, "kind": {"red": 1, "rose": 1}, "price": (10, 20)}
    assert shown(few, "smoky", mode="keyword") == everything
    assert shown(few, where="country = 'France'")["kind"] == {}
    assert shown(few, where="country = 'France'")["country"] == {"Italy": 2}


ITALY, CHEAP = Compare("country", "=", "Italy"), Compare("price", "<", 9)


def test_only_what_is_about_one_column_alone_is_left_out() -> None:
    assert without_column(ITALY, "country") is None
    assert without_column(ITALY, "price") == ITALY
    assert without_column(And((ITALY, CHEAP)), "price") == ITALY
    assert without_column(Or((ITALY, CHEAP)), "price") == Or((ITALY, CHEAP))
    assert without_column(Not(Or((CHEAP, CHEAP))), "price") is None
    assert without_column(None, "price") is None


values = st.sampled_from(["Italy", "France", None])
rows = st.lists(
    st.fixed_dictionaries(
        {"txt": st.just("t"), "country": values, "kind": values, "price": st.integers(0, 4)}
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(["Italy", "France"]), st.integers(0, 4))
def test_counts_are_those_of_python(rows: list[dict[str, Any]], country: str, price: int) -> None:
    index = index_of(f"memory://{uuid4()}", rows)
    found = shown(index, where={"country": country, "price": {">=": price}})

    def counted(column: str, passing: Any) -> dict[str, int]:
        kept = [row[column] for row in rows if passing(row) and row[column] is not None]
        return {value: kept.count(value) for value in kept}

    assert found["country"] == counted("country", lambda r: r["price"] >= price)
    both = [r for r in rows if r["country"] == country and r["price"] >= price]
    assert found["kind"] == counted("kind", lambda r: r in both)
    prices = [row["price"] for row in rows if row["country"] == country]
    assert found["price"] == ((min(prices), max(prices)) if prices else (None, None))
