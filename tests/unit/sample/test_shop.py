"""The sample products: the same ones every time, and sensible."""

from __future__ import annotations

from typing import Any

import pytest

from lakewake.sample.shop import SCHEMA, products
from lakewake.sample.shop_words import KINDS


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return products(400).to_pylist()


def test_the_same_seed_makes_the_same_products(rows: list[dict[str, Any]]) -> None:
    assert products(400).to_pylist() == rows
    assert products(400, seed=8).to_pylist() != rows


def test_a_shorter_sample_is_the_beginning_of_a_longer_one(rows: list[dict[str, Any]]) -> None:
    assert products(50).to_pylist() == rows[:50]


def test_no_name_and_no_description_comes_twice(rows: list[dict[str, Any]]) -> None:
    assert [r["id"] for r in rows] == [f"product_{n}" for n in range(400)]
    assert len({r["name"] for r in rows}) == len({r["description"] for r in rows}) == 400


def test_descriptions_are_four_sentences_without_a_gap(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        text = row["description"]
        assert text.count(". ") == 3
        assert text.endswith(".")
        assert text[0].isupper()
        assert "{" not in text
        assert "  " not in text


def test_every_kind_comes_up_at_a_price_of_its_kind(rows: list[dict[str, Any]]) -> None:
    for kind in KINDS.values():
        prices = [r["price"] for r in rows if r["name"].endswith(tuple(kind.nouns))]
        assert prices
        assert kind.prices[0] - 1 <= min(prices) <= max(prices) <= kind.prices[1]


def test_some_products_are_out_of_stock_and_most_are_not(rows: list[dict[str, Any]]) -> None:
    gone = sum(r["stock"] == 0 for r in rows)
    assert 20 < gone < 90
    assert min(r["stock"] for r in rows) == 0


def test_the_table_has_its_schema_even_when_empty() -> None:
    assert products(0).schema == SCHEMA
