"""The grammar of `--where`: what it reads, and what it refuses."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from lakewake.errors import FilterError
from lakewake.model.where import And, Compare, In, IsNull, Like, Not, Or, Where, leaves
from lakewake.search.where import GRAMMAR, check_columns, parse_where
from lakewake.store.filters import fitted, matches

SCHEMA = pa.schema(
    {
        "_key": pa.string(),
        "_partition": pa.string(),
        "_text": pa.string(),
        "country": pa.string(),
        "Price": pa.float64(),
        "points": pa.int32(),
        "tags": pa.list_(pa.string()),
        "day": pa.date32(),
        "seen": pa.timestamp("us", "UTC"),
    }
)
ONE = Compare("a", "=", 1)

READ: dict[str, Where] = {
    "a = 1": ONE,
    "(((a = 1)))": ONE,
    "a <> 1": Compare("a", "!=", 1),
    "a != 1": Compare("a", "!=", 1),
    "a <= -1.5": Compare("a", "<=", Decimal("-1.5")),
    "a >= 1e3": Compare("a", ">=", Decimal("1e3")),
    "a < 'it''s'": Compare("a", "<", "it's"),
    r"a = 'back\slash'": Compare("a", "=", r"back\slash"),
    "a > TRUE": Compare("a", ">", True),
    "`a b` = 1": Compare("a b", "=", 1),
    '"a ""b" = 1': Compare('a "b', "=", 1),
    "date = DATE '2024-01-31'": Compare("date", "=", datetime.date(2024, 1, 31)),
    "a = TIMESTAMP '2024-01-31 12:00:00'": Compare("a", "=", datetime.datetime(2024, 1, 31, 12)),
    "a = TIMESTAMP '2024-01-31T12:00:00Z'": Compare(
        "a", "=", datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)
    ),
    "a IN (1, -2)": In("a", (1, -2)),
    "a NOT IN ('x')": Not(In("a", ("x",))),
    "a BETWEEN 1 AND 2": And((Compare("a", ">=", 1), Compare("a", "<=", 2))),
    "a LIKE 'x%'": Like("a", "x%"),
    "a NOT LIKE 'x%'": Not(Like("a", "x%")),
    "a IS NULL": IsNull("a"),
    "a IS NOT NULL": Not(IsNull("a")),
    "NOT a = 1": Not(ONE),
    "a = 1 AND a = 1 AND a = 1": And((ONE, ONE, ONE)),
    "a = 1 AND a = 1 OR a = 1": Or((And((ONE, ONE)), ONE)),
    "a = 1 AND (a = 1 OR a = 1)": And((ONE, Or((ONE, ONE)))),
    "text = 'x' AND key = 1": And((Compare("text", "=", "x"), Compare("key", "=", 1))),
    "a NOT BETWEEN 1 AND 2": Not(And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
    "a BETWEEN 1 AND 2 AND a = 1": And((And((Compare("a", ">=", 1), Compare("a", "<=", 2))), ONE)),
    "(a = 1 AND a = 1) AND a = 1": And((And((ONE, ONE)), ONE)),
    "NOT a = 1 OR a = 1": Or((Not(ONE), ONE)),
    "NOT NOT(a=1)": Not(Not(ONE)),
    "\ta=1\nand(a=1)or\u00a0a=1 ": Or((And((ONE, ONE)), ONE)),
    "A nOt iN (tRuE, fAlSe)": Not(In("A", (True, False))),
    "a Is nOt NuLl or a lIkE 'X'": Or((Not(IsNull("a")), Like("a", "X"))),
    "a beTween date '2024-01-31' and Date\n'2024-02-01'": And(
        (
            Compare("a", ">=", datetime.date(2024, 1, 31)),
            Compare("a", "<=", datetime.date(2024, 2, 1)),
        )
    ),
    "if = 1 OR select = 1 OR case = 1": Or(
        (Compare("if", "=", 1), Compare("select", "=", 1), Compare("case", "=", 1))
    ),
    "timestamp > timestamp '2024-01-31'": Compare("timestamp", ">", datetime.datetime(2024, 1, 31)),
    '"and" = 1 AND `NULL` IS NULL': And((Compare("and", "=", 1), IsNull("NULL"))),
    "`a``b` = 1": Compare("a`b", "=", 1),
    "größe = 1": Compare("größe", "=", 1),
    "नाम = 1": Compare("नाम", "=", 1),
    "ıs IS NULL": IsNull("ıs"),
    "_key = ''": Compare("_key", "=", ""),
    "a = '-- no /* comment; \" ` (🍷\n\0'": Compare("a", "=", '-- no /* comment; " ` (🍷\n\0'),
    "a = .5": Compare("a", "=", Decimal("0.5")),
    "a = 5.": Compare("a", "=", 5),
    "a = +5": Compare("a", "=", 5),
    "a = -.5E-3": Compare("a", "=", Decimal("-0.0005")),
    "a<-1": Compare("a", "<", -1),
    f"a = -1.{'123456789' * 5}": Compare("a", "=", Decimal(f"-1.{'123456789' * 5}")),
}


@pytest.mark.parametrize("text", READ)
def test_a_filter_is_read_as_the_value_it_means(text: str) -> None:
    assert parse_where(text) == READ[text]


@pytest.mark.parametrize(
    ("text", "kind"), [("1", int), ("-1", int), ("1.0", Decimal), ("1e0", Decimal), ("true", bool)]
)
def test_a_literal_has_the_type_it_is_written_in(text: str, kind: type) -> None:
    where = parse_where(f"a = {text}")
    assert isinstance(where, Compare)
    assert type(where.value) is kind


REFUSED = {
    "lower(a) = 'x'": "lower(a)",
    "a = now()": "function call",
    "a IN (SELECT 1)": "not allowed",
    "a = (SELECT 1)": "subquery",
    "EXISTS (SELECT 1)": "not allowed",
    "SELECT 1": "does not parse at character 1, near 'SELECT'",
    "a = 1; b = 2": "several statements",
    "a = b": "a column, not a literal",
    "a": "a column, not a comparison",
    "a + 1 = 2": "begins with a column",
    "a = 1 + 1": "an operation",
    "a || 'x' = 'y'": "begins with a column",
    "1 = 1": "begins with a column",
    "a = 1 OR 1 = 1": "begins with a column",
    "a = 1 -- AND b = 2": "comments",
    "a = /* hidden */ 1": "comments",
    "-- only a comment": "empty",
    "": "empty",
    "  ": "empty",
    "CAST(a AS int) = 1": "begins with a column",
    "a = CAST('1' AS int)": "a cast",
    "a = TRY_CAST('2024-01-31' AS DATE)": "not allowed",
    "a = CAST('2024-01-31' AS DATE)": "a cast",
    "a = NULL": "IS NULL",
    "a IN (NULL)": "IS NULL",
    "a IN ()": "empty list",
    "a IN (1, b)": "a column",
    "a IS TRUE": "not allowed",
    "a ILIKE 1": "LIKE takes a text",
    "a LIKE 'x' ESCAPE '!'": "not allowed",
    "a LIKE 1": "LIKE takes a text",
    "a BETWEEN SYMMETRIC 1 AND 2": "not allowed",
    "t. = 1": "names with dots between them",
    "t.a": "names with dots between them",
    ".a = 1": "an operation",
    "a[1] = 1": "begins with a column",
    "a = ?": "not allowed",
    "a = @x": "not allowed",
    "a = 'x' COLLATE nocase": "not allowed",
    "a = DATE '2024-02-31'": "is not a valid DATE",
    "a = TIMESTAMP 'noon'": "is not a valid TIMESTAMP",
    "a = 1e": "is not a number",
    "a = 'open": "does not parse",
    "a = 1 AND": "does not parse",
    "(a = 1": "does not parse",
    "a = 1)": "does not parse",
    "a == 1": "near '==': write =",
    "a =< 1": "near '=<': write <=",
    "a ≥ 1": "near '≥': write >=",
    "a = 1 && b = 2": "near '&&': write AND",
    "a = 1 || b = 2": "|| (an operation; expected AND or OR), at character 7",
    "!a = 1": "near '!': write NOT",
    "WHERE a = 1": "near 'WHERE': a filter is only what comes after WHERE",
    "a = 1;": "character 6, near ';': a filter is one condition",
    'a = "Italy"': "\"Italy\" (a column, not a literal; did you mean 'Italy'?)",
    "a = Italy AND b = 1": "did you mean 'Italy'?",
    'a IN ("it\'s", 1)': "did you mean 'it''s'?), at character 7",
    "a = ‘Italy’": "straight single quotes",
    "a = 'it's'": 'character 10, near "\'": the quote is not closed',
    'a = 1 AND "b': "character 11, near '\"': the quote is not closed",
    "`a = 1": "the quote is not closed",
    "10 < a": "near '10': a comparison begins with a column: put the column first",
    "'x' = a": "put the column first",
    "DATE '2024-01-31' < a": "put the column first",
    "a = 1 AND true": "put the column first",
    "NOT a": "a column, not a comparison",
    "a =": "does not parse at its end: expected a literal",
    "a = AND b = 1": "near 'AND': expected a literal",
    "a = 1 AND OR a = 1": "near 'OR': expected a comparison",
    "(a = 1 a = 2)": "expected AND, OR or )",
    "a = 1 b = 2": "b (expected AND or OR), at character 7",
    "a = 1 'x'": "near \"'x'\": expected AND or OR",
    "()": "near ')': expected a comparison",
    "in = 1": "near 'in': expected a comparison",
    "a IN 1": "near '1': expected (",
    "a IN (1,)": "near ')': expected a literal",
    "a IN (1 2)": "near '2': expected a comma or )",
    "a BETWEEN 1 2": "near '2': expected AND",
    "a NOT = 1": "near '=': expected IN, LIKE, ILIKE, CONTAINS or BETWEEN",
    "a NOT NULL": "IS NULL",
    "a = - 1": "- (an operation",
    "a = 1_000": "near '1_000': this is not a number",
    "2024_price = 1": "put a column of that name in double quotes",
    "a = 1e9999999": "is not a number",
    "a = 0x10": "is not a number",
    "a\0 = 1": "begins with a column alone",
    "a = 'x\udcff'": "bytes that are not text",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_invalid_filter_is_refused_with_what_is_wrong(text: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_where(text)
    assert REFUSED[text] in refused.value.fact
    assert refused.value.hint == GRAMMAR


HOSTILE = {
    "length": "a = '" + "x" * 10_000 + "'",
    "parentheses": "(" * 3000 + "a = 1" + ")" * 3000,
    "open parentheses": "(" * 9000,
    "NOT": "NOT " * 2400 + "a = 1",
    "NOT in parentheses": "NOT(" * 45 + "a = 1" + ")" * 45,
    "minus": "a = " + "- " * 4900 + "1",
    "brackets": "[" * 9000,
    "CASE": "CASE " * 1900,
    "IN": "a IN (" * 1600,
    "functions": "x(" * 4900,
    "equals": "a=" * 4900,
    "exponent": "a = 1e99999999999999999999",
    "digits": "a = " + "1" * 9900,
    "digits and a letter": "a = " + "1" * 9900 + "x",
    "quotes": "'" * 9999,
    "quotes of all kinds": "'\"`" * 3333,
    "comments": "a = 1 " + "/*" * 4900,
    "blanks": "DATE" + " " * 9900,
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_refused_at_once(kind: str) -> None:
    with pytest.raises(FilterError):
        check_columns(parse_where(HOSTILE[kind]), pa.schema({"a": pa.int32()}))


def test_a_long_flat_filter_is_read() -> None:
    where = parse_where(" AND ".join(["a = 1"] * 1000))
    assert where == And((ONE,) * 1000)


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("NOT ", "")])
def test_twenty_levels_are_read_and_one_more_is_refused(opening: str, closing: str) -> None:
    assert list(leaves(parse_where(opening * 20 + "a = 1" + closing * 20))) == [ONE]
    with pytest.raises(FilterError, match="more than 20 deep"):
        parse_where(opening * 21 + "a = 1" + closing * 21)


def test_closed_parentheses_do_not_count_as_depth() -> None:
    side_by_side = " AND ".join(["(NOT (a = 1))"] * 50)
    assert parse_where(side_by_side) == And((Not(ONE),) * 50)


def test_ten_thousand_characters_are_read_and_one_more_is_refused() -> None:
    text = "a = 1".ljust(10_000)
    assert parse_where(text) == ONE
    with pytest.raises(FilterError, match="10001 characters"):
        parse_where(text + " ")


def test_an_error_shows_a_short_part_of_a_long_filter() -> None:
    for text in ("f(" + "x" * 5000 + ")", "a = " + "x" * 5000, "'" + "x" * 5000 + "' = a"):
        with pytest.raises(FilterError) as refused:
            parse_where(text)
        assert "…" in refused.value.fact
        assert len(refused.value.fact) < 300


def test_an_unknown_column_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(FilterError, match="no payload column 'contry'") as refused:
        check_columns(parse_where("contry = 'Italy'"), SCHEMA)
    assert "did you mean 'country'? payload columns: country, Price" in refused.value.hint
    assert "_text" not in refused.value.hint


def test_a_column_in_another_case_is_suggested() -> None:
    with pytest.raises(FilterError) as refused:
        check_columns(parse_where("PRICE > 1"), SCHEMA)
    assert "did you mean 'Price'?" in refused.value.hint


def test_only_documented_columns_of_ours_can_be_filtered() -> None:
    check_columns(parse_where("_key = 'x' AND _partition = 'y'"), SCHEMA)
    with pytest.raises(FilterError, match="_text"):
        check_columns(parse_where("_text = 'x'"), SCHEMA)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Price = '4'", "Price = 40"),
        ("country = 4", "country = 'Italy'"),
        ("points = true", "points = 40"),
        ("country IN ('Italy', 4)", "country = 'Italy'"),
        ("day = 'yesterday'", "day = '2024-01-31'"),
        ("day = '2024-01-31 12:00'", "day = '2024-01-31'"),
        ("day < TIMESTAMP '2024-01-31 00:00:00'", "day = DATE '2024-01-31'"),
        ("points LIKE 'x'", "points = 40"),
    ],
)
def test_a_literal_of_the_wrong_type_is_refused_with_the_right_form(text: str, hint: str) -> None:
    with pytest.raises(FilterError, match="holds") as refused:
        check_columns(parse_where(text), SCHEMA)
    assert hint in refused.value.hint


def test_a_date_compares_with_a_timestamp_column_as_its_midnight() -> None:
    where = parse_where("seen >= DATE '2024-01-31'")
    check_columns(where, SCHEMA)
    midnight = datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC)
    moments = [midnight - datetime.timedelta(microseconds=1), midnight]
    fit = fitted(where, SCHEMA)
    assert [matches(fit, {"seen": moment}) for moment in moments] == [False, True]


@pytest.mark.parametrize("text", ["tags = 'x'", "tags IN ('x')", "tags ILIKE 'x'"])
def test_a_list_is_compared_by_contains_alone(text: str) -> None:
    check_columns(parse_where("NOT tags CONTAINS 'x' AND tags IS NOT NULL"), SCHEMA)
    with pytest.raises(FilterError, match="only CONTAINS compares a list") as refused:
        check_columns(parse_where(text), SCHEMA)
    assert "tags CONTAINS 'Italy'" in refused.value.hint


def test_a_stray_backslash_in_a_pattern_is_refused() -> None:
    with pytest.raises(FilterError, match="backslash"):
        check_columns(parse_where(r"country LIKE 'a\b'"), SCHEMA)


def test_search_imports_no_store_and_no_embedder_until_they_are_needed() -> None:
    heavy = "{'lance', 'onnxruntime', 'lakewake.store', 'lakewake.embed'}"
    code = f"import lakewake.search, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_parsing_a_filter_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lakewake.search.where import parse_where; before = set(sys.modules);"
        "parse_where(\"a = 1.5 AND b = DATE '2024-01-31'\"); print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
