"""Statements about indexes are understood; all others go to Spark as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewake.errors import SqlError
from lakewake.sql.calls import bind, replaced
from lakewake.sql.parse import parse
from lakewake.sql.statements import (
    Call,
    CreateIndex,
    DescribeIndex,
    DropIndex,
    Other,
    RefreshIndex,
    ShowIndexes,
)

CREATE = """create vector index if not exists `wines-2` on lake.wine_reviews (title, `long text`)
using hudi -- in the lake
options ('vector.metric' = 'cosine', recall = 0.9, chunk.tokens = 200, exact = true);"""


def calls(text: str) -> tuple[Call, ...]:
    found = parse(text)
    assert isinstance(found, Other)
    return found.calls


def test_create_is_understood_with_all_its_parts() -> None:
    found = parse(CREATE)
    assert isinstance(found, CreateIndex)
    assert str(found.name) == "wines-2"
    assert found.table.names == ("lake", "wine_reviews")
    assert [str(c) for c in found.columns] == ["title", "long text"]
    assert str(found.store) == "hudi"
    assert {o.key: o.value for o in found.options} == {
        "vector.metric": "cosine",
        "recall": 0.9,
        "chunk.tokens": 200,
        "exact": True,
    }
    assert found.if_not_exists


def test_create_needs_no_store_and_no_options() -> None:
    found = parse("CREATE VECTOR INDEX wines ON 'lake/it\\'s' (description)")
    assert isinstance(found, CreateIndex)
    assert (found.table.names, found.table.literal) == (("lake/it's",), True)
    assert (found.store, found.options, found.if_not_exists) == (None, (), False)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("REFRESH VECTOR INDEX wines", RefreshIndex, "wines"),
        ("refresh /* all */ vector index 'lance://lake/index/wines' ;", RefreshIndex, None),
        ("DROP VECTOR INDEX IF EXISTS `my wines`", DropIndex, "my wines"),
        ("DESCRIBE VECTOR INDEX wines", DescribeIndex, "wines"),
        ("desc vector index wines", DescribeIndex, "wines"),
    ],
)
def test_each_statement_names_its_index(text: str, kind: type, name: str | None) -> None:
    found = parse(text)
    assert isinstance(found, kind)
    assert not isinstance(found, Other | ShowIndexes)
    assert str(found.name) == (name or "lance://lake/index/wines")


def test_show_may_name_a_folder() -> None:
    assert parse("SHOW VECTOR INDEXES") == ShowIndexes()
    found = parse("SHOW VECTOR INDEXES IN '/lake'")
    assert isinstance(found, ShowIndexes)
    assert str(found.folder) == "/lake"


@pytest.mark.parametrize(
    ("text", "line", "column", "fact"),
    [
        ("CREATE VECTOR INDEX wines FROM t (a)", 1, 27, "expected ON, found 'FROM'"),
        ("CREATE VECTOR INDEX wines ON t", 1, 31, "expected (, found the end of the statement"),
        ("CREATE VECTOR INDEX wines\nON t (a) USING", 2, 15, "expected lance, hudi or qdrant"),
        ("CREATE VECTOR INDEX w ON t (a) OPTIONS (a b)", 1, 43, "expected =, found 'b'"),
        ("CREATE VECTOR INDEX w ON t (a) OPTIONS ('a' = b)", 1, 47, "expected a text in quotes"),
        ("CREATE VECTOR INDEX w ON t (a) OPTIONS ('a' = 'b)", 1, 47, "a quote that is not closed"),
        ("CREATE VECTOR INDEX IF w ON t (a)", 1, 24, "expected NOT, found 'w'"),
        ("REFRESH VECTOR INDEX", 1, 21, "expected the name of an index"),
        ("DROP VECTOR INDEX wines CASCADE", 1, 25, "expected the end of the statement"),
        ("SHOW VECTOR INDEXES IN lake", 1, 24, "expected a folder in quotes"),
    ],
)
def test_an_error_names_what_was_expected_and_points_to_it(
    text: str, line: int, column: int, fact: str
) -> None:
    with pytest.raises(SqlError) as raised:
        parse(text)
    error = raised.value
    assert error.fact.startswith(fact) or fact in error.fact
    assert (error.line, error.column) == (line, column)
    shown = str(error).splitlines()
    assert shown[1] == "  " + text.splitlines()[line - 1]
    assert shown[2] == " " * (column + 1) + "^"
    assert shown[4].startswith("  hint: write it as ")


def test_an_error_does_not_repeat_a_key() -> None:
    with pytest.raises(SqlError) as raised:
        parse("CREATE VECTOR INDEX w ON t (a) OPTIONS ('model.api_key' = 'abc123xyz' 7)")
    assert "abc123xyz" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE vector index",
        "DESCRIBE TABLE vector",
        "CREATE INDEX i ON t USING VECTOR (embedding)",
        "REFRESH INDEX i ON t",
        "SHOW INDEXES FROM t",
        "SELECT 'CREATE VECTOR INDEX wines'",
        "SELECT vector_search FROM t",
        "SELECT a, vector_search('x', 'y', 1) FROM t",
        "SELECT * FROM db.vector_search('x', 'y', 1)",
        "SELECT * FROM t -- FROM vector_search('x', 'y')",
        "SELECT * FROM t /* /* nested */ FROM vector_search('x', 'y') */",
        "SELECT \"FROM vector_search('x')\"",
        "SELECT * FROM vector_search",
        "SELECT * FROM vector_search('never closed'",
        "",
        ";",
    ],
)
def test_a_statement_that_is_not_ours_is_left_alone(text: str) -> None:
    assert parse(text) == Other(text)


WORDS = st.sampled_from(
    [
        *("SELECT", "FROM", "vector", "VECTOR", "INDEX", "INDEXES", "DESCRIBE", "EXPLAIN", "x"),
        *("'", '"', "`", "'a'", "(", ")", ",", ".", "--", "/*", "*/", "\n", " ", "\\", "1e5", ";"),
        *("vector_search", "r'", "'it''s'", "=>", "é", "\x00", "LATERAL", "JOIN", "ON", "TABLE"),
    ]
)
ANYTHING = st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join))


@given(ANYTHING)
def test_any_other_statement_goes_to_spark_unchanged(text: str) -> None:
    try:
        found = parse(text)
    except SqlError:
        found = None
    if found is None:
        # It can only be one that begins like ours.
        assert "VECTOR" in text.upper()
    if isinstance(found, Other):
        assert found.text is text
        assert replaced(text, [(call, text[call.at : call.end]) for call in found.calls]) == text
        assert replaced(text, []) == text


@given(ANYTHING, ANYTHING)
def test_a_call_is_found_whatever_surrounds_it(before: str, after: str) -> None:
    call = "vector_search('wines', 'smoky, (red', 3)"
    text = f"SELECT '{_inside(before)}' FROM {call} WHERE '{_inside(after)}' = ''"
    (found,) = calls(text)
    assert text[found.at : found.end] == call
    assert [a.value for a in found.given] == [("wines",), ("smoky, (red",), (3,)]


def _inside(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def test_arguments_are_bound_by_place_and_by_name() -> None:
    (call,) = calls(
        "SELECT * FROM Vector_Search('wines', ARRAY(0.5, -1, 2e1), where => \"a = 'b'\", k => 7)"
    )
    found = bind(call).arguments
    assert {name: a.value for name, a in found.items()} == {
        "index": ("wines",),
        "question": ((0.5, -1, 20.0),),
        "where": ("a = 'b'",),
        "k": (7,),
    }


def test_an_argument_that_is_computed_keeps_its_words() -> None:
    (call,) = calls("SELECT * FROM q, LATERAL vector_search('w', concat(q.a, ','), 2 + 1) v")
    assert call.lateral
    assert [(a.words, a.value) for a in call.given] == [
        ("'w'", ("w",)),
        ("concat(q.a, ',')", ()),
        ("2 + 1", ()),
    ]


@pytest.mark.parametrize(
    ("argument", "table"),
    [
        ("TABLE(questions)", "SELECT * FROM questions"),
        ("TABLE (SELECT a, b FROM (VALUES (1, 2)) t(a, b))",) * 2,
        ("TABLE(WITH x AS (SELECT 1) SELECT * FROM x)",) * 2,
    ],
)
def test_a_table_of_questions_is_found(argument: str, table: str) -> None:
    (call,) = calls(f"SELECT * FROM vector_search('wines', {argument}, 2)")
    inner = table.partition("(")[2][:-1] if table.startswith("TABLE") else table
    assert call.given[1].table == inner


def test_calls_inside_the_table_of_another_are_part_of_it() -> None:
    inner = "SELECT * FROM vector_search('a', 'x')"
    (call,) = calls(f"SELECT * FROM vector_search('b', TABLE({inner}), 2)")
    assert call.given[1].table == inner


def test_all_calls_of_a_statement_are_found_in_order() -> None:
    text = (
        "SELECT * FROM vector_search('a', 'x') a JOIN vector_range('b', 'y', 0.1) b ON true, "
        "`vector_search`('c', 'z') WHERE EXISTS (SELECT 1 FROM t, vector_search('d', 'w'))"
    )
    assert [c.given[0].value[0] for c in calls(text)] == ["a", "b", "c", "d"]
    renamed = replaced(text, [(c, c.function) for c in calls(text)])
    assert renamed == (
        "SELECT * FROM vector_search a JOIN vector_range b ON true, "
        "vector_search WHERE EXISTS (SELECT 1 FROM t, vector_search)"
    )


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ("'wines'", "vector_search needs `question`"),
        ("'wines', , 3", "an argument is missing"),
        ("'wines', 'x', wher => 'a = 1'", "vector_search has no argument `wher`"),
        ("'wines', 'x', k => 1, 'a = 1'", "an argument without a name follows one with a name"),
        ("'wines', 'x', 1, k => 2", "`k` is given twice"),
        ("'wines', 'x', 1, NULL, 'vector', false, 'c', 1", "vector_search takes 7 arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: str, fact: str) -> None:
    (call,) = calls(f"SELECT * FROM vector_search({arguments})")
    with pytest.raises(SqlError, match=fact):
        bind(call)


def test_explain_is_noticed() -> None:
    found = parse("EXPLAIN FORMATTED SELECT * FROM vector_search('a', 'x')")
    assert isinstance(found, Other)
    assert found.explain


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'it\'s'", "it's"),
        (r"'a\nb\\'", "a\nb\\"),
        (r"r'a\nb'", r"a\nb"),
        (r"'a\%'", r"a\%"),
        (r"'é'", "é"),
        (r"'\101'", "A"),
        ("'a' \"b\"", "ab"),
        ("'it''s'", "its"),
        ("NULL", None),
        ("-1.5", -1.5),
        ("ARRAY()", ()),
    ],
)
def test_literals_mean_what_they_mean_to_spark(literal: str, value: object) -> None:
    (call,) = calls(f"SELECT * FROM vector_search({literal})")
    assert call.given[0].value == (value,)
