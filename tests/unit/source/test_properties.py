"""Java's properties format."""

from __future__ import annotations

import pytest

from lakewake.errors import TableError
from lakewake.source.properties import parse_properties, table_properties


def test_comments_and_blank_lines_are_left_out():
    assert parse_properties("#a=1\n  !b=2\n\n \t\nc=3\n") == {"c": "3"}


def test_a_key_ends_at_an_equals_sign_a_colon_or_a_space():
    assert parse_properties("a = 1\nb:2\nc 3\nd\ne=\n=f") == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "",
        "e": "",
        "": "f",
    }


def test_every_escape_has_the_meaning_it_has_in_java():
    text = r"a\ b\:\=\#=\#\!\:\=\\\"\t\u00e9\ud83c\udf77\z"
    assert parse_properties(text) == {"a b:=#": '#!:=\\"\té🍷z'}


def test_a_line_that_ends_in_a_backslash_continues():
    assert parse_properties("a=1,\\\n   2\\\\\nb=3\\") == {"a": "1,2\\", "b": "3"}


def test_bytes_are_latin_1():
    assert parse_properties("a=é".encode("latin-1")) == {"a": "é"}


def test_a_damaged_escape_is_an_error_that_names_the_file():
    with pytest.raises(TableError, match=r"lake/t/\.hoodie/hoodie\.properties cannot be read"):
        table_properties("lake/t", rb"a=\u12")
