"""Small reads are interpreted, not compiled; what they return is the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.source import arrow, columns, view
from lakewake.source.reader import TableReader
from lakewake.source.session import INTERPRETED, interpreted, reading_session
from lakewake.source.versions import BY_VERSION, changed
from lakewake.spark.own import active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Spark's defaults, except that a query which cannot be compiled is an error.
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
}
VALUES = {
    "d": "cast(-1.50 AS decimal(38, 4))",
    "f": "float('-0.0')",
    "g": "double('NaN')",
    "day": "date'1582-10-04'",
    "at": "timestamp'2024-03-10 02:30:00.123456 UTC'",
    "plain": "timestamp_ntz'1900-01-01 00:00:00'",
    "raw": "unhex('61FF62')",
    "yes": "true",
    "tags": "array('a', cast(NULL AS string))",
    "attrs": "map('l', 2, 'k', 1)",
    "box": "named_struct('a', 1, 'b', array(named_struct('c', cast(unhex('61FF') AS string))))",
    "none": "cast(NULL AS bigint)",
}
ROWS = (
    "SELECT 'p' AS _hoodie_partition_path, 'k' || id AS _hoodie_record_key, '1' || "
    "{version} AS _hoodie_commit_time, '0' AS _hoodie_commit_seqno, "
    + ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    + " FROM range({rows})"
)
RECIPE = Recipe(
    ModelIdentity("hashing", "hashing", 8),
    (TextField("text", "{d} {f} {g} {day} {at} {plain} {yes} {none}"),),
    payload=tuple(VALUES),
)


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """A reading session that compiles its queries."""
    ours = reading_session(spark)
    before = {key: ours.conf.get(key) for key in COMPILED}
    for key, value in COMPILED.items():
        ours.conf.set(key, value)
    yield ours
    for key, value in before.items():
        ours.conf.set(key, value)


def test_queries_are_interpreted_within_a_small_read_only(compiling: SparkSession) -> None:
    table = TableReader("/table", RECIPE, lambda: compiling)
    with table.reading(small=True):
        assert {key: table.session().conf.get(key) for key in INTERPRETED} == INTERPRETED
    with table.reading():
        assert {key: table.session().conf.get(key) for key in COMPILED} == COMPILED


def test_rows_and_hashes_are_the_same_interpreted_and_compiled(compiling: SparkSession) -> None:
    def read() -> pa.Table:
        old = view.row_view(compiling.sql(ROWS.format(version="'a'", rows=4)), RECIPE)
        new = view.row_view(compiling.sql(ROWS.format(version="(id % 2)", rows=6)), RECIPE)
        rows = changed(old, new, BY_VERSION).orderBy(*columns.ID)
        return pa.Table.from_batches(arrow.collect(rows))

    with active(compiling):
        compiled = read()
        with interpreted(compiling):
            found = read()
    assert compiled.num_rows == 6
    assert found.schema == compiled.schema
    # As text: NaN does not equal itself.
    assert str(found.to_pylist()) == str(compiled.to_pylist())
