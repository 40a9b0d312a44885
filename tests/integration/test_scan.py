"""A scan without a JVM shows what Spark shows, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakewake.store import StoreReader
from lakewake.sync.scan import scanned
from support.hudi.tables import HudiTables
from support.oracle import following_vectors

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

PAYLOAD = {
    "id": "k",
    "num": "n",
    "small": "CAST(n AS SMALLINT)",
    "big": "CAST(n AS BIGINT) * 10000000000",
    "real": "CAST(n AS FLOAT) / 3",
    "price": "CAST(n AS DOUBLE) / 7",
    "tax": "CAST(n AS DECIMAL(10, 2)) / 4",
    "organic": "n % 2 = 0",
    "day": "DATE '2024-01-01' + n",
    "seen": "TIMESTAMP '2024-01-01 12:00:00.123456' + MAKE_INTERVAL(0, 0, 0, n)",
    "tags": "ARRAY('red', k)",
    "spot": "NAMED_STRUCT('x', n, 'name', k)",
}


def write(table: HudiTables, numbers: range, operation: str = "upsert", **more: str) -> None:
    """One commit of a row for each number; every fifth row has nulls."""
    named = {"n": "CAST(id AS INT)", "k": "CONCAT('k', id % 20)"}
    frame = table.spark.range(numbers.start, numbers.stop).selectExpr(*_as(named))
    key = PAYLOAD["id"]
    values = {c: e if e == key else f"IF(n % 5 = 0, NULL, {e})" for c, e in PAYLOAD.items()}
    own = {
        "part": "IF(n % 2 = 0, 'a', 'b')",
        "ts": "CAST(n AS BIGINT)",
        "vec": "ARRAY(1.0F, 2.0F, CAST(n AS FLOAT))",
    }
    frame = frame.selectExpr(*_as({**own, **values, **more}))
    table.write_frame(frame.coalesce(1), operation)


def _as(columns: dict[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns.items()]


def held(index: StoreReader) -> dict[str, Any]:
    names = [c for c in index.schema().names if not c.endswith(("_hash", "_instant"))]
    return {row["_id"]: row for batch in index.scan(names) for row in batch.to_pylist()}


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("vec", ["VECTOR(3)", ""])
def test_values_of_every_type_are_those_that_spark_shows(
    type_: str, vec: str, spark: SparkSession, small_tables: dict[str, str], tmp_path: Path
) -> None:
    vectors = {"vec": vec} if vec else {}
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables, vectors=vectors)
    write(table, range(20))
    write(table, range(30, 37))
    write(table, range(43, 44), "delete")
    parts = following_vectors(
        spark, table.path, tmp_path / "index", "vec", 3, payload=tuple(PAYLOAD)
    )
    by_spark = scanned(parts, spark=True)
    without = scanned(parts, spark=False)
    assert len(held(without)) == 19
    assert held(without) == held(by_spark)
    assert without.schema() == by_spark.schema()
    # The files of the other partition do not have the column.
    write(table, range(44, 45), color="IF(n > 0, 'red', NULL)")
    parts = following_vectors(
        spark, table.path, tmp_path / "index", "vec", 3, payload=(*PAYLOAD, "color")
    )
    assert held(scanned(parts, spark=False)) == held(scanned(parts, spark=True))
