"""Filters as Lance's SQL, run on a real dataset, and as a plain function; both agree."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lakewake.errors import FilterError
from lakewake.model.where import And, Compare, Contains, In, IsNull, Like, Literal, Not, Or, Where
from lakewake.store.filters import MAX_NESTING, fitted, matches, to_sql

UTC = datetime.UTC
NOON = datetime.datetime(2024, 1, 31, 12, 0, 0, 4000, tzinfo=UTC)
OLD = datetime.datetime(1900, 1, 1, tzinfo=UTC)
BIG = 2**63

TABLE = pa.table(
    {
        "n": pa.array([0, 1, 2], pa.int32()),
        "tiny": pa.array([100, -128, None], pa.int8()),
        "big": pa.array([BIG - 1, -BIG, None], pa.int64()),
        "unsigned": pa.array([2 * BIG - 1, 0, None], pa.uint64()),
        "price": pa.array([0.1, float("nan"), None], pa.float64()),
        "ratio": pa.array([0.1, -0.0, None], pa.float32()),
        "cost": pa.array([Decimal("1.10"), Decimal("-9999999.99"), None], pa.decimal128(9, 2)),
        "name": pa.array(["it's", "50%_\\\n🍷", None]),
        "long": pa.array(["a", "b", None], pa.large_string()),
        "red": pa.array([True, False, None]),
        "day": pa.array([NOON.date(), OLD.date(), None]),
        "local": pa.array([NOON, OLD, None], pa.timestamp("us")),
        "seen": pa.array([NOON, OLD, None], pa.timestamp("us", "UTC")),
        "paris": pa.array([NOON, OLD, None], pa.timestamp("us", "Europe/Paris")),
        "millis": pa.array([NOON, OLD, None], pa.timestamp("ms")),
        "seconds": pa.array([NOON.replace(microsecond=0), OLD, None], pa.timestamp("s", "UTC")),
        "Odd name": pa.array([1, 2, None]),
        "select": pa.array([1, 2, None]),
        "tags": pa.array([["x"], [], None]),
    }
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("filters")
    return lance.write_dataset(TABLE, str(folder / "rows.lance"))


def found(dataset: Any, where: Where) -> list[int]:
    """The rows that Lance finds; `matches` must agree."""
    by_lance = dataset.to_table(columns=["n"], filter=to_sql(where, TABLE.schema))["n"].to_pylist()
    fit = fitted(where, TABLE.schema)
    assert [row["n"] for row in TABLE.to_pylist() if matches(fit, row)] == by_lance
    return sorted(by_lance)


def paris(hour: int) -> datetime.datetime:
    return NOON.replace(hour=hour, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


COMPARED: list[tuple[str, str, Literal, list[int]]] = [
    ("tiny", "=", 100, [0]),
    ("tiny", "<", 1000, [0, 1]),
    ("tiny", ">", 1000, []),
    ("tiny", "!=", 1000, [0, 1]),
    ("tiny", ">=", -1000, [0, 1]),
    ("tiny", "<", Decimal("99.5"), [1]),
    ("tiny", "<=", Decimal("100.5"), [0, 1]),
    ("tiny", ">", Decimal("99.5"), [0]),
    ("tiny", ">=", Decimal("100.5"), []),
    ("tiny", "=", Decimal("99.5"), []),
    ("tiny", "!=", Decimal("99.5"), [0, 1]),
    ("tiny", "=", Decimal("100.0"), [0]),
    ("tiny", "=", 100.0, [0]),
    ("big", "=", -BIG, [1]),
    ("big", ">", -BIG, [0]),
    ("big", "=", BIG - 1, [0]),
    ("big", "<", BIG, [0, 1]),
    ("big", "<", -BIG - 1, []),
    ("unsigned", "=", 2 * BIG - 1, [0]),
    ("unsigned", ">", -1, [0, 1]),
    ("price", "=", Decimal("0.1"), [0]),
    ("price", "<", 5, [0]),
    ("price", ">", Decimal("1e300"), [1]),
    ("ratio", "=", Decimal("0.1"), [0]),
    ("ratio", "<=", Decimal("0.1"), [0, 1]),
    ("ratio", "=", 0, [1]),
    ("ratio", "<", 0, []),
    ("cost", "=", Decimal("1.1"), [0]),
    ("cost", ">", Decimal("1.095"), [0]),
    ("cost", "<", Decimal("1.105"), [0, 1]),
    ("cost", "=", Decimal("1.105"), []),
    ("cost", "<", 5, [0, 1]),
    ("cost", "<", 10**30, [0, 1]),
    ("cost", "=", Decimal("-9999999.99"), [1]),
    ("name", "=", "it's", [0]),
    ("name", "=", "50%_\\\n🍷", [1]),
    ("name", "<", "a", [1]),
    ("name", "=", "x' OR 'a' = 'a", []),
    ("long", "=", "a", [0]),
    ("red", "=", True, [0]),
    ("red", "!=", True, [1]),
    ("day", "=", NOON.date(), [0]),
    ("day", "<", NOON.date(), [1]),
    ("local", "=", NOON, [0]),
    ("local", "=", NOON.replace(tzinfo=None), [0]),
    ("seen", "=", NOON, [0]),
    ("seen", "=", NOON.replace(tzinfo=None), [0]),
    ("seen", "=", paris(13), [0]),
    ("seen", "=", paris(12), []),
    ("seen", ">=", NOON.date(), [0]),
    ("seen", "<", datetime.datetime(9999, 12, 31), [0, 1]),
    ("paris", "=", NOON, [0]),
    ("paris", "=", paris(13), [0]),
    ("millis", "=", NOON, [0]),
    ("millis", "<", NOON + datetime.timedelta(microseconds=1), [0, 1]),
    ("millis", "=", NOON + datetime.timedelta(microseconds=1), []),
    ("seconds", "<", NOON, [0, 1]),
    ("seconds", "<", OLD + datetime.timedelta(microseconds=-1), []),
    ("Odd name", "=", 1, [0]),
    ("select", "=", 2, [1]),
]


@pytest.mark.parametrize(("column", "op", "value", "rows"), COMPARED)
def test_a_comparison_finds_its_rows_whatever_the_type(
    dataset: Any, column: str, op: str, value: Literal, rows: list[int]
) -> None:
    assert found(dataset, Compare(column, op, value)) == rows


@pytest.mark.parametrize(("column", "op", "value", "rows"), COMPARED)
def test_not_finds_the_other_rows_but_no_nulls(
    dataset: Any, column: str, op: str, value: Literal, rows: list[int]
) -> None:
    assert found(dataset, Not(Compare(column, op, value))) == sorted({0, 1} - set(rows))


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("it%", [0]),
        ("IT%", []),
        ("%'s", [0]),
        ("50_%", [1]),
        (r"50\%%", [1]),
        (r"50\_%", []),
        (r"%\_\\%", [1]),
        ("%🍷", [1]),
        ("50%_🍷", [1]),
        ("50%__🍷_", []),
        ("%", [0, 1]),
        ("", []),
        ("it's", [0]),
    ],
)
def test_like_has_the_wildcards_of_sql(dataset: Any, pattern: str, rows: list[int]) -> None:
    assert found(dataset, Like("name", pattern)) == rows
    assert found(dataset, Not(Like("name", pattern))) == sorted({0, 1} - set(rows))


def test_a_pattern_of_many_wildcards_is_fast() -> None:
    assert not matches(Like("name", "%a" * 30 + "b"), {"name": "a" * 3000})


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (IsNull("tiny"), [2]),
        (Not(IsNull("tiny")), [0, 1]),
        (In("tiny", (100, 1000)), [0]),
        (Not(In("tiny", (100, 1000))), [1]),
        (In("tiny", (1000, Decimal("1.5"))), []),
        (Not(In("tiny", (1000,))), [0, 1]),
        (Or((Not(In("tiny", (100,))), Not(In("tiny", (-128,))))), [0, 1]),
        (Not(And((In("tiny", (100,)), In("tiny", (-128,))))), [0, 1]),
        (In("cost", (Decimal("1.1"), 2)), [0]),
        (In("seen", (NOON,)), [0]),
        (In("ratio", (Decimal("0.1"), 0)), [0, 1]),
        (In("name", ("it's", "x")), [0]),
        (Or((IsNull("tiny"), Compare("tiny", ">", 0))), [0, 2]),
        (Not(And((Compare("tiny", ">", 0), Compare("price", "<", 5)))), [1]),
        (Not(Or((Compare("tiny", ">", 0), IsNull("red")))), [1]),
        (Not(Not(Compare("tiny", ">", 0))), [0]),
        (And((Or((Compare("n", "=", 0), Compare("n", "=", 1))), Compare("red", "=", True))), [0]),
    ],
)
def test_and_or_and_not_follow_sql_with_nulls(dataset: Any, where: Where, rows: list[int]) -> None:
    assert found(dataset, where) == rows


def alternating(depth: int) -> Where:
    where: Where = Compare("n", ">=", 0)
    for level in range(depth):
        beside = Compare("n", ">=", 0)
        where = And((beside, where)) if level % 2 else Or((beside, where))
    return where


@pytest.mark.timeout(20)
def test_lance_accepts_the_deepest_allowed_filter(dataset: Any) -> None:
    assert found(dataset, alternating(MAX_NESTING)) == [0, 1, 2]
    with pytest.raises(FilterError, match="deep"):
        to_sql(alternating(MAX_NESTING + 1), TABLE.schema)


@pytest.mark.timeout(20)
def test_a_long_chain_of_nots_does_not_reach_lance(dataset: Any) -> None:
    where: Where = Compare("n", "=", 0)
    for _ in range(51):
        where = Not(And((where,)))
    assert "NOT" not in to_sql(where, TABLE.schema)
    assert found(dataset, where) == [1, 2]


def test_a_thousand_conditions_are_accepted(dataset: Any) -> None:
    assert found(dataset, Or((Compare("n", "=", 0),) * 1000)) == [0]


@pytest.mark.parametrize(
    ("where", "fact"),
    [
        (Compare("nowhere", "=", 1), "no column 'nowhere'"),
        (Compare("tags", "=", "x"), "only CONTAINS compares a list"),
        (In("tags", ("x",)), "only CONTAINS compares a list"),
        (Compare("seen", "=", "noon"), "not a valid one"),
        (Compare("tags.x", "=", 1), "no column 'tags.x'"),
        (Contains("tags", (1,)), "is a number"),
        (Contains("name", ("x",)), "not a list"),
        (Compare("name", "=", 1), "is a number"),
        (Compare("tiny", "=", "1"), "is a text"),
        (Compare("red", "=", 1), "is a number"),
        (Compare("tiny", "=", True), "is a boolean"),
        (Compare("price", "<", Decimal("1e309")), "out of the range"),
        (Compare("ratio", "<", Decimal("1e39")), "out of the range"),
        (Compare("price", "<", Decimal("1e999999999")), "out of every range"),
        (Compare("price", "<", float("nan")), "out of every range"),
        (Like("name", "trailing\\"), "backslash"),
        (Compare("seen", "<", paris(0).replace(year=1, month=1, day=1)), "timestamps"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(where: Where, fact: str) -> None:
    with pytest.raises(FilterError, match=fact):
        to_sql(where, TABLE.schema)


def test_a_name_that_lance_cannot_quote_is_refused() -> None:
    with pytest.raises(FilterError, match="backtick"):
        to_sql(Compare("a`b", "=", 1), pa.schema({"a`b": pa.int32()}))
