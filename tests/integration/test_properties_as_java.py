"""Properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import IllegalArgumentException

from lakewake.source.properties import parse_properties

pytestmark = pytest.mark.spark

TEXTS = st.text(st.sampled_from("\\\\\\==::#! \t\f\n\ru0e9abé"), max_size=40)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _read_by_java(spark, content: bytes) -> dict[str, str] | None:
    jvm = spark._jvm
    properties = jvm.java.util.Properties()
    try:
        properties.load(jvm.java.io.ByteArrayInputStream(bytearray(content)))
    except IllegalArgumentException:
        return None
    return dict(properties)


def _read(content: bytes) -> dict[str, str] | None:
    try:
        return parse_properties(content)
    except ValueError:
        return None


def _pairs(read: dict[str, str] | None) -> dict[str, str] | None:
    # Java reads a lone backslash as an empty pair, but only at the end of a file.
    return read and {k: v for k, v in read.items() if k or v}


def test_any_properties_text_is_read_as_java_reads_it(spark):
    @settings(max_examples=300, deadline=None)
    @given(TEXTS)
    def same(text: str) -> None:
        content = text.encode("latin-1")
        assert _pairs(_read(content)) == _pairs(_read_by_java(spark, content))

    same()


def test_any_properties_that_java_stores_are_read_back(spark):
    @settings(max_examples=100, deadline=None)
    @given(st.dictionaries(VALUES, VALUES, max_size=4))
    def same(values: dict[str, str]) -> None:
        jvm = spark._jvm
        properties, out = jvm.java.util.Properties(), jvm.java.io.ByteArrayOutputStream()
        for key, value in values.items():
            properties.setProperty(key, value)
        properties.store(out, "a comment, é 🍷")
        assert parse_properties(bytes(out.toByteArray())) == values

    same()
