"""Conditions on rows: what they name is found without Spark, and what is not exact is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.selection import FUNCTIONS, SelectionError, parse_selection

MODEL = ModelIdentity("hashing", "h", 8)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("day >= date_sub(current_date(), 90) AND tenant = 'acme'", ("day", "tenant")),
        ("`a b`.c[0] IN ('x', \"it's\") OR customer.country = 'DE'", ("a b", "customer")),
        ("CAST(a AS decimal(10,2)) > 1.5BD AND NOT flag", ("a", "flag")),
        ("date < DATE '2024-01-01' - INTERVAL '1-2' YEAR TO MONTH AND b", ("date", "b")),
        ("ts > current_date - INTERVAL 90 DAYS", ("ts",)),
        ("a IS NOT DISTINCT FROM b AND CASE WHEN c THEN d ELSE e END", tuple("abcde")),
        ("lower(a) RLIKE '^x' AND a NOT LIKE 'y\\'%' ESCAPE '/'", ("a",)),
        ("`select` = 1 AND `now` = 2", ("select", "now")),
        ("x = concat('n', 'ow')", ("x",)),
    ],
)
def test_the_columns_of_a_condition_are_those_of_the_row(text, columns):
    assert parse_selection(text).columns == columns


def test_the_current_date_becomes_a_day():
    found = parse_selection("day >= date_sub(current_date( ), 90) and\n  x <> 'current_date()'")
    assert found.dated
    assert found.columns == ("day", "x")
    assert (
        found.on("2026-11-19") == "day >= date_sub(DATE'2026-11-19', 90) AND x <> 'current_date()'"
    )
    assert not parse_selection("x = 'current_date()' AND `current_date` = 1").dated
    with pytest.raises(ValueError, match="needs one"):
        found.on("")


@pytest.mark.parametrize("text", ["a = 1   and  b", "a OR b AND current_date = c", "x = '  two  '"])
def test_reading_a_condition_again_gives_the_same(text):
    once = parse_selection(text)
    assert parse_selection(once.text) == once
    assert parse_selection("x = '  two  '").text == "x = '  two  '"


def test_only_conditions_on_the_date_decide_which_rows_move():
    moved = parse_selection("a BETWEEN 1 AND 2 AND day > current_date() AND (b AND c)").moved(
        "2026-01-01", "2026-01-02"
    )
    assert moved == (
        "(a BETWEEN 1 AND 2) AND ((b AND c)) AND ((day > DATE'2026-01-01') <=> TRUE)"
        " <> ((day > DATE'2026-01-02') <=> TRUE)"
    )
    mixed = parse_selection("a = 1 OR day > curdate() AND b")
    assert mixed.conditions == (("a = 1 OR day > ", " AND b"),)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (" ", "empty"),
        ("rand() < 0.5", "function rand"),
        ("uuid() = a", "function uuid"),
        ("current_user() = a", "function current_user"),
        ("monotonically_increasing_id() < 5", "function monotonically_increasing_id"),
        ("input_file_name() LIKE '%a'", "function input_file_name"),
        ("sum(a) > 1", "function sum"),
        ("my_udf(a)", "function my_udf"),
        ("db.lower(a) = 'a'", "function lower"),
        ("`lower`(a) = 'a'", "function `lower`"),
        ("unix_timestamp() > a", "the current time"),
        ("a > now()", "the current time"),
        ("a < current_timestamp", "the current time"),
        ("a IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1)", "a subquery"),
        ("row_number() OVER (ORDER BY a) = 1", "function row_number"),
        ("a = 'today'", "may mean the time"),
        ("a = DATE'Yesterday '", "may mean the time"),
        ("a = 'now UTC'", "may mean the time"),
        ("a) OR (b", "parentheses"),
        ("(a", "parentheses"),
        ("a = 'it''s'", "two texts"),
        ("a = r'x'", "not understood"),
        ("größe = 1", "not understood"),
        ("a = 'open", "not understood"),
        ("a; b", "not understood"),
        ("a = ?", "not understood"),
        ("a -- b", "a comment"),
        ("a /* b */", "a comment"),
        ("current_date(1) = a", "no argument"),
    ],
)
def test_what_is_not_decided_by_the_row_is_refused(text, fact):
    with pytest.raises(SelectionError, match=fact) as refused:
        parse_selection(text)
    assert refused.value.hint


def test_a_recipe_without_a_condition_is_what_it_always_was():
    recipe = Recipe(MODEL, payload=("a",))
    assert "where" not in recipe.as_dict()
    assert Recipe.from_dict(recipe.as_dict()) == recipe
    other = Recipe(MODEL, payload=("a",), where="b > current_date()")
    assert Recipe.from_dict(other.as_dict()) == other
    assert other.fingerprint != recipe.fingerprint
    assert recipe.differs_from(other) == {"where": ("", "b > current_date()")}
    assert other.columns == ("a", "b")
    assert other.on("2026-01-01").where == "b > DATE'2026-01-01'"
    assert recipe.on("2026-01-01") is recipe


def test_the_documentation_lists_every_function():
    text = (Path(__file__).parents[3] / "docs" / "config.md").read_text()
    listed = text.partition("### where\n")[2].partition("\n### ")[0].rpartition("\n\n`abs`")[2]
    assert set(re.findall(r"`(\w+)`", listed)) | {"abs"} == FUNCTIONS
