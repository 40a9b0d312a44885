"""A filter as JSON: what it reads, and what it refuses."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakewake.errors import FilterError
from lakewake.model.where import And, Compare, In, IsNull, Like, Not, Or, Where
from lakewake.search.where import check_columns, parse_where
from lakewake.search.where_json import SHAPE, parse_where_json, read_where

ONE = Compare("a", "=", 1)

READ: list[tuple[str, Where]] = [
    ('{"a": 1}', ONE),
    ('{"a": {"=": 1}}', ONE),
    ('{"a": {"<>": 1}}', Compare("a", "!=", 1)),
    ('{"a": {"!=": -1.5}}', Compare("a", "!=", Decimal("-1.5"))),
    ('{"a": 0.1}', Compare("a", "=", Decimal("0.1"))),
    ('{"a": "it\'s"}', Compare("a", "=", "it's")),
    ('{"a": ""}', Compare("a", "=", "")),
    ('{"a": true}', Compare("a", "=", True)),
    ('{"a": 1, "b": "x"}', And((ONE, Compare("b", "=", "x")))),
    ('{"a": {"<": 40, ">=": 10}}', And((Compare("a", "<", 40), Compare("a", ">=", 10)))),
    ('{"a": {"in": [1, 2]}}', In("a", (1, 2))),
    ('{"a": {"IN": ["x"]}}', In("a", ("x",))),
    ('{"a": {"between": [1, 2]}}', And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
    ('{"a": {"like": "x%"}}', Like("a", "x%")),
    ('{"a": {"is_null": true}}', IsNull("a")),
    ('{"a": {"is_null": false}}', Not(IsNull("a"))),
    ('{"not": {"a": 1}}', Not(ONE)),
    ('{"NOT": {"a": {"in": [1]}}}', Not(In("a", (1,)))),
    ('{"and": [{"a": 1}, {"a": 1}]}', And((ONE, ONE))),
    ('{"or": [{"a": 1}, {"a": 1}]}', Or((ONE, ONE))),
    ('{"and": [{"a": 1}]}', ONE),
    ('{"or": [{"a": 1}]}', ONE),
    ('{"a": 1, "or": [{"a": 1}, {"not": {"a": 1}}]}', And((ONE, Or((ONE, Not(ONE)))))),
    ('{"a": {"date": "2024-01-31"}}', Compare("a", "=", datetime.date(2024, 1, 31))),
    ('{"a": {"<": {"date": "2024-01-31"}}}', Compare("a", "<", datetime.date(2024, 1, 31))),
    (
        '{"a": {">": {"timestamp": "2024-01-31T12:00:00Z"}}}',
        Compare("a", ">", datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)),
    ),
    ('{"date": {"=": 1}}', Compare("date", "=", 1)),
    ('{"a b": 1}', Compare("a b", "=", 1)),
]


@pytest.mark.parametrize(("text", "where"), READ, ids=[text for text, _ in READ])
def test_a_filter_is_read_as_the_value_it_means(text: str, where: Where) -> None:
    assert parse_where_json(json.loads(text)) == where


@pytest.mark.parametrize(
    ("value", "kind"), [(1, int), (1.0, Decimal), (True, bool), ("1", str), (10**300, int)]
)
def test_a_literal_has_the_type_it_is_written_in(value: Any, kind: type) -> None:
    where = parse_where_json({"a": value})
    assert isinstance(where, Compare)
    assert type(where.value) is kind


def test_python_dates_and_decimals_are_taken_unchanged() -> None:
    day, cost = datetime.date(2024, 1, 31), Decimal("9.99")
    assert parse_where_json({"day": {"<": day}, "cost": cost}) == And(
        (Compare("day", "<", day), Compare("cost", "=", cost))
    )


REFUSED: list[tuple[Any, str]] = [
    ({}, "empty"),
    ([], "a filter is an object"),
    ([{"a": 1}], "a filter is an object with a column, not a list"),
    ("a = 1", "a filter is an object"),
    (None, "a filter is an object with a column, not None"),
    ({"a": None}, "is_null"),
    ({"a": {"=": None}}, "is_null"),
    ({"a": [1, 2]}, 'did you mean {"in"'),
    ({"a": {}}, "column 'a' has no condition"),
    ({"a": {"lt": 1}}, "did you mean '<'?"),
    ({"a": {"$gte": 1}}, "did you mean '>='?"),
    ({"a": {"==": 1}}, "did you mean '='?"),
    ({"a": {"regex": "x"}}, "no operation 'regex'"),
    ({"a": {"; DROP TABLE": 1}}, "no operation"),
    ({"a": {"b": {"c": 1}}}, "no operation 'b'"),
    ({"a": {"in": []}}, "empty list"),
    ({"a": {"in": "xyz"}}, "in takes a list, not 'xyz'"),
    ({"a": {"in": [1, None]}}, "is_null"),
    ({"a": {"in": [[1]]}}, "expected a literal, not a list"),
    ({"a": {"in": [{"x": 1}]}}, "expected a literal, not an object"),
    ({"a": {"between": [1]}}, "not 1 values"),
    ({"a": {"between": [1, 2, 3]}}, "not 3 values"),
    ({"a": {"between": 1}}, "between takes a list"),
    ({"a": {"like": 1}}, "like takes a text"),
    ({"a": {"is_null": "true"}}, "is_null takes true or false"),
    ({"a": {"is_null": 1}}, "is_null takes true or false"),
    ({"and": {"a": 1}}, "and takes a list"),
    ({"or": []}, "or has an empty list"),
    ({"or": [1]}, "a filter is an object"),
    ({"not": [{"a": 1}]}, "a filter is an object with a column, not a list"),
    ({"not": {}}, "empty"),
    ({"a": {"date": "31.1.2024"}}, "'31.1.2024' is not a valid date"),
    ({"a": {"<": {"timestamp": "now()"}}}, "'now()' is not a valid timestamp"),
    ({"a": {"<": {"date": 1}}}, "expected a literal, not an object"),
    ({"a": float("nan")}, "out of range"),
    ({"a": float("-inf")}, "out of range"),
    ({"a": Decimal("sNaN")}, "out of range"),
    ({"a": 10**5000}, "out of range"),
    ({"a": b"x"}, "expected a literal, not bytes"),
    ({1: 1}, "expected a column"),
    ({"a": {1: 1}}, "expected a column or an operation"),
    ({"a": "x\udcff"}, "bytes that are not text"),
    ({"x\udcff": 1}, "bytes that are not text"),
]


@pytest.mark.parametrize(("given", "fact"), REFUSED, ids=[fact for _, fact in REFUSED])
def test_an_invalid_filter_is_refused_with_what_is_wrong(given: Any, fact: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_where_json(given)
    assert fact in refused.value.fact
    assert refused.value.hint == SHAPE


def nested(levels: int) -> dict[str, Any]:
    where: dict[str, Any] = {"a": 1}
    for _ in range(levels):
        where = {"not": where}
    return where


HOSTILE: dict[str, Any] = {
    "length": {"a": "x" * 10_001},
    "name": {"x" * 10_001: 1},
    "columns": {f"c{n}": 1 for n in range(9000)},
    "values": {"a": {"in": [1] * 10_001}},
    "conditions": {"or": [{"a": 1}] * 9000},
    "NOT": nested(900),
    "shared": {"and": [nested(19)] * 900},
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_refused_at_once(kind: str) -> None:
    with pytest.raises(FilterError):
        parse_where_json(HOSTILE[kind])


def test_twenty_levels_are_read_and_one_more_is_refused() -> None:
    parse_where_json(nested(20))
    with pytest.raises(FilterError, match="more than 20 deep"):
        parse_where_json(nested(21))


def test_an_error_shows_a_short_part_of_a_long_filter() -> None:
    for given in ({"a": {"x" * 5000: 1}}, {"a": {"in": "x" * 5000}}, {"a": {"date": "x" * 5000}}):
        with pytest.raises(FilterError) as refused:
            parse_where_json(given)
        assert len(refused.value.fact) < 200


def test_columns_are_checked_as_in_a_text_filter() -> None:
    schema = pa.schema({"country": pa.string(), "_text": pa.string()})
    for where in ({"contry": "x"}, {"_text": "x"}, {"country": 4}):
        with pytest.raises(FilterError) as by_json:
            check_columns(parse_where_json(where), schema)
        ((column, value),) = where.items()
        with pytest.raises(FilterError) as by_text:
            check_columns(parse_where(f"{column} = {value!r}"), schema)
        assert str(by_json.value) == str(by_text.value)


def test_text_and_json_are_distinguished_by_type() -> None:
    assert read_where("a = 1") == read_where({"a": 1}) == ONE
