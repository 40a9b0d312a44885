"""For any filter: its text parses to itself, and both stores find the same rows with it."""

from __future__ import annotations

import contextlib
import datetime
import json
from decimal import Decimal
from typing import Any

import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakewake.errors import FilterError
from lakewake.model.where import (
    And,
    Compare,
    Contains,
    In,
    IsNull,
    Leaf,
    Like,
    Literal,
    Not,
    Or,
    Where,
    leaves,
    literal_kind,
    literals,
)
from lakewake.search.where import parse_where
from lakewake.search.where_json import parse_where_json
from lakewake.store.filters import fitted, matches, to_sql
from lakewake.store.passing import passing
from support.filtering import SCHEMA, TABLE, VALUES, filters


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return lance.write_dataset(TABLE, str(tmp_path_factory.mktemp("where") / "rows.lance"))


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=filters)
def test_lance_and_the_plain_function_find_the_same_rows(dataset: Any, where: Where) -> None:
    fit = fitted(where, SCHEMA)
    by_hand = [row["n"] for row in VALUES if matches(fit, row)]
    by_lance = dataset.to_table(columns=["n"], filter=to_sql(where, SCHEMA))["n"].to_pylist()
    assert by_lance == by_hand


@settings(max_examples=400, deadline=None)
@given(where=filters)
def test_whole_columns_and_the_plain_function_find_the_same_rows(where: Where) -> None:
    fit = fitted(where, SCHEMA)
    columns = dict(zip(SCHEMA.names, TABLE.combine_chunks().to_batches()[0].columns, strict=True))
    found = passing(fit, columns, TABLE.num_rows).to_pylist()
    assert found == [matches(fit, row) for row in VALUES]


@settings(max_examples=200, deadline=None)
@given(where=filters)
def test_fitting_a_filter_to_exact_types_does_not_change_what_it_finds(where: Where) -> None:
    if any(condition.column not in UNFITTED or spelled(condition) for condition in leaves(where)):
        return
    fit = fitted(where, SCHEMA)
    assert [matches(where, row) for row in VALUES] == [matches(fit, row) for row in VALUES]


#: Columns that can be compared before a filter is fitted to them.
UNFITTED = {*SCHEMA.names} - {"ratio"}


def spelled(condition: Leaf) -> bool:
    """Whether a date or time is given as a text."""
    times = condition.column in ("day", "seen", "millis", "days")
    return times and any(isinstance(value, str) for value in literals(condition))


#: Names that need no quotes, however much they look like something else.
PLAIN = [
    "price",
    "größe",
    "नाम",
    "_key",
    "a1",
    "date",
    "timestamp",
    "contains",
    "any",
    "if",
    "select",
    "Nulls",
    "ıs",
]
names = st.text(max_size=8) | st.sampled_from(["", "and", "NULL", "true", "1", "a.b", *PLAIN])
minutes = st.integers(-23 * 60, 23 * 60).map(lambda n: datetime.timedelta(minutes=n))
zones = st.none() | minutes.map(datetime.timezone)
any_literal = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.dates(),
    st.datetimes(timezones=zones),
)
any_leaf = st.one_of(
    st.builds(Compare, names, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), any_literal),
    st.builds(In, names, st.lists(any_literal, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, names, st.text(max_size=8), any_case=st.booleans()),
    st.builds(IsNull, names),
    st.builds(Contains, names, st.lists(any_literal, min_size=1, max_size=3).map(tuple)),
)


def joined_by_two(inner: st.SearchStrategy[Where]) -> st.SearchStrategy[Where]:
    parts = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, parts), st.builds(Or, parts))


any_filter = st.recursive(any_leaf, joined_by_two, max_leaves=8)


class Hand:
    """Writes a filter as a user might: in any case, with any spaces, with or without quotes."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._gap = draw(st.sampled_from([" ", "\n", " \t\u00a0 "]))
        self._cased = draw(st.sampled_from([str.upper, str.lower, str.title]))
        self._quote = draw(st.sampled_from('"`'))

    def write(self, where: Where) -> str:
        if isinstance(where, Not):
            return self._words("not", f"({self.write(where.inner)})")
        if isinstance(where, And | Or):
            word = self._words("", "and" if isinstance(where, And) else "or", "")
            return word.join(f"({self.write(part)})" for part in where.parts)
        return self._leaf(where)

    def _words(self, *words: str) -> str:
        cased = (self._cased(word) if word.isalpha() and word.isascii() else word for word in words)
        return self._gap.join(cased)

    def _leaf(self, leaf: Leaf) -> str:
        name = self._name(leaf.column)
        values = [self._literal(value) for value in literals(leaf)]
        if isinstance(leaf, IsNull):
            return f"{name}{self._words('', 'is', 'null')}"
        if isinstance(leaf, Like):
            word = "ilike" if leaf.any_case else "like"
            return f"{name}{self._words('', word, '')}{values[0]}"
        if isinstance(leaf, In):
            return f"{name}{self._words('', 'in', '')}({f',{self._gap}'.join(values)})"
        if isinstance(leaf, Contains):
            listed = f"{self._words('', 'any', '')}({f',{self._gap}'.join(values)})"
            tail = listed if len(values) > 1 else f"{self._gap}{values[0]}"
            return f"{name}{self._words('', 'contains')}{tail}"
        return f"{name}{leaf.op}{values[0]}"

    def _name(self, name: str) -> str:
        if name in PLAIN or name == "a.b":
            return name
        return f"{self._quote}{name.replace(self._quote, self._quote * 2)}{self._quote}"

    def _literal(self, value: Literal) -> str:
        kind = literal_kind(value)
        if kind in ("number", "boolean"):
            return self._cased(str(value)) if kind == "boolean" else str(value)
        text = "'" + str(value).replace("'", "''") + "'"
        return text if kind == "text" else f"{self._words(kind, '')}{text}"


@st.composite
def written(draw: st.DrawFn) -> tuple[Where, str]:
    where = draw(any_filter)
    return where, Hand(draw).write(where)


def kinds(where: Where) -> list[list[str]]:
    return [[literal_kind(value) for value in literals(leaf)] for leaf in leaves(where)]


@settings(max_examples=400, deadline=None)
@given(both=written())
def test_a_filter_written_as_text_parses_to_itself(both: tuple[Where, str]) -> None:
    where, text = both
    read = parse_where(text)
    assert read == where
    # True equals 1, so equal values are not enough.
    assert kinds(read) == kinds(where)


@settings(max_examples=300, deadline=None)
@given(both=written(), data=st.data())
def test_a_filter_with_one_typo_parses_or_raises_a_filter_error(
    both: tuple[Where, str], data: st.DataObject
) -> None:
    text = both[1]
    at = data.draw(st.integers(0, len(text)))
    slip = data.draw(st.sampled_from(["", *"'\"`()=<>!&|;,.-+*/ 1a\0", "--", "/*", "NOT", "🍷"]))
    with contextlib.suppress(FilterError):
        assert list(leaves(parse_where(text[:at] + slip + text[at + 1 :])))


SOUP = (
    "a b `x y` = != <> < <= ( ) , . ; AND OR NOT IN LIKE BETWEEN IS NULL TRUE 1 -2.5 1e 't' \"q\""
)
soups = st.lists(
    st.sampled_from([*SOUP.split(), "DATE '2024-01-31'", "TIMESTAMP 'x'"]), max_size=12
)


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=60) | soups.map(" ".join) | soups.map("".join))
def test_any_text_parses_or_raises_a_filter_error(text: str) -> None:
    with contextlib.suppress(FilterError):
        assert list(leaves(parse_where(text)))


def as_json(where: Where) -> dict[str, Any]:
    """The filter as JSON, each part an object."""
    if isinstance(where, Not):
        return {"not": as_json(where.inner)}
    if isinstance(where, And | Or):
        word = "and" if isinstance(where, And) else "or"
        return {word: [as_json(part) for part in where.parts]}
    if isinstance(where, IsNull):
        return {where.column: {"is_null": True}}
    if isinstance(where, Like):
        return {where.column: {"ilike" if where.any_case else "like": where.pattern}}
    if isinstance(where, In):
        return {where.column: {"in": [json_literal(value) for value in where.values]}}
    if isinstance(where, Contains):
        listed = [json_literal(value) for value in where.values]
        one = {"contains": listed[0]} if len(listed) == 1 else {"contains_any": listed}
        return {where.column: one}
    return {where.column: {where.op: json_literal(where.value)}}


def json_literal(value: Literal) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime.date):
        return {literal_kind(value): value.isoformat()}
    return value


#: JSON numbers with a fraction are floats: those that the shortest form of a float denotes.
json_numbers = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Decimal(repr(x)))
json_literals = st.one_of(
    st.text(max_size=8),
    st.integers(-(10**30), 10**30),
    json_numbers,
    st.booleans(),
    st.dates(),
    st.datetimes(timezones=zones),
)
#: These three words join filters in JSON; a column with such a name needs the text form.
json_names = names.filter(lambda name: name.lower() not in ("and", "or", "not"))
json_leaf = st.one_of(
    st.builds(
        Compare, json_names, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), json_literals
    ),
    st.builds(In, json_names, st.lists(json_literals, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, json_names, st.text(max_size=8), any_case=st.booleans()),
    st.builds(IsNull, json_names),
    st.builds(Contains, json_names, st.lists(json_literals, min_size=1, max_size=3).map(tuple)),
)
json_filters = st.recursive(json_leaf, joined_by_two, max_leaves=8)


@st.composite
def written_twice(draw: st.DrawFn) -> tuple[str, str]:
    where = draw(json_filters)
    return Hand(draw).write(where), json.dumps(as_json(where))


@settings(max_examples=400, deadline=None)
@given(both=written_twice())
def test_a_filter_as_text_and_as_json_is_the_same_filter(both: tuple[str, str]) -> None:
    text, as_object = both
    by_text, by_json = parse_where(text), parse_where_json(json.loads(as_object))
    assert by_json == by_text
    assert kinds(by_json) == kinds(by_text)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["a", "and", "or", "not", "=", "<", "in", "between", "date", "is_null"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=400, deadline=None)
@given(given_json=any_json)
def test_any_json_parses_or_raises_a_filter_error(given_json: Any) -> None:
    with contextlib.suppress(FilterError):
        assert list(leaves(parse_where_json(given_json)))
