"""Compares an index with a table inside Spark, by row id, source hash and payload hash."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakewake.model.recipe import Recipe
from lakewake.model.rows import Difference, RowId
from lakewake.source import arrow
from lakewake.source.view import payload_hash, quoted, row_ids

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def export(
    spark: SparkSession, index: Iterable[pa.RecordBatch], folder: Path, recipe: Recipe
) -> DataFrame:
    """`by_row` of an index that this process reads, for a Spark on this machine."""
    path = folder / "index.parquet"
    writer = None
    for batch in index:
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return spark.createDataFrame(
            [], "p string, k string, ish string, iph string, sound boolean"
        )
    writer.close()
    return by_row(spark.read.parquet(str(path)), recipe)


def by_row(chunks: DataFrame, recipe: Recipe) -> DataFrame:
    """One line per indexed row: its hashes, recomputed from what the index really holds."""
    from pyspark.sql import functions as F  # noqa: N812

    payload = payload_hash([F.col(quoted(c)) for c in recipe.payload])
    last = F.sum(F.when(F.col("_last"), F.col("_chunk") + 1).otherwise(0))
    return (
        chunks.withColumn("_ph", payload)
        .withColumn("_sound", _sound(recipe))
        .withColumn("_last", _is_last())
        .groupBy(F.col("_partition").alias("p"), F.col("_key").alias("k"))
        .agg(
            F.min("_source_hash").alias("ish"),
            F.min("_ph").alias("iph"),
            (
                F.min("_sound")
                & (F.count("*") == last)
                & (F.countDistinct("_id") == F.count("*"))
                & (F.countDistinct("_source_hash") == 1)
                & (F.countDistinct("_ph") == 1)
            ).alias("sound"),
        )
    )


def _sound(recipe: Recipe) -> Column:
    """A chunk's text, or its vector from the table, is the one of its hash; so is its payload."""
    from pyspark.sql import functions as F  # noqa: N812

    if recipe.vector:
        held = F.sha2(F.to_json(F.col("_vector").cast("array<float>")), 256)
    else:
        held = F.sha2(F.col("_text"), 256)
    same = (held == F.col("_hash")) & (F.col("_ph") == F.col("_payload_hash"))
    return F.coalesce(same, F.lit(False))


def _is_last() -> Column:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    text = Window.partitionBy("_partition", "_key", "_field")
    return F.col("_chunk") == F.max("_chunk").over(text)


def faults(stored: DataFrame, rows: DataFrame, recipe: Recipe) -> DataFrame:
    """`row_view` of the table and the index together, with `fault`: missing, orphaned or stale.

    Rows without a fault are left out; an orphan has only its id.
    """
    from pyspark.sql import functions as F  # noqa: N812

    texts = [F.col(f"t{n}").isNotNull() for n in range(len(recipe.fields))]
    says = F.col("v").isNotNull() if recipe.vector else reduce(operator.or_, texts)
    fault = (
        F.when(F.col("ish").isNull() & F.col("says"), "missing")
        .when(F.col("sh").isNull(), "orphaned")
        .when(F.col("ish").isNotNull() & ~_equal(), "stale")
    )
    both = rows.withColumn("says", says).join(stored, ["p", "k"], "full_outer")
    return both.withColumn("fault", fault).where("fault is not null")


def difference(faulty: DataFrame, duplicates: frozenset[RowId]) -> Difference:
    """Which rows are missing from the index, orphaned in it, or stale."""
    found: dict[str, list[RowId]] = {"missing": [], "orphaned": [], "stale": []}
    for batch in arrow.collect(faulty.select("p", "k", "fault")):
        for row, fault in zip(row_ids(batch), batch.column("fault").to_pylist(), strict=True):
            found[fault].append(row)
    return Difference(
        missing=tuple(sorted(found["missing"])),
        orphaned=tuple(sorted(found["orphaned"])),
        stale=tuple(sorted(found["stale"])),
        duplicated=tuple(sorted(duplicates)),
    )


def _equal() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.col("says")
        & F.col("sound")
        & (F.col("sh") == F.col("ish"))
        & (F.col("ph") == F.col("iph"))
    )
