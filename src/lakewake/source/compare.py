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
    held = chunks.withColumn("_ph", payload).select(
        F.col("_partition").alias("p"),
        F.col("_key").alias("k"),
        "_field",
        "_chunk",
        "_id",
        "_source_hash",
        "_ph",
        _sound(recipe).alias("_sound"),
    )
    # Texts stay behind, and both groupings below go by this one shuffle.
    fields = held.repartition("p", "k").groupBy("p", "k", "_field").agg(*_of_a_field())
    return fields.groupBy("p", "k").agg(
        F.min("sh0").alias("ish"),
        F.min("ph0").alias("iph"),
        F.coalesce(
            F.min("whole") & (F.min("sh0") == F.max("sh1")) & (F.min("ph0") == F.max("ph1")),
            F.lit(False),
        ).alias("sound"),
    )


def _of_a_field() -> list[Column]:
    """Whether a text has each of its chunks once, and the hashes that all of them must share."""
    from pyspark.sql import functions as F  # noqa: N812

    count = F.count("*")
    once = F.size(F.collect_set("_chunk")) == count
    whole = once & (F.max("_chunk") + 1 == count) & (F.size(F.collect_set("_id")) == count)
    return [
        (F.min("_sound") & whole).alias("whole"),
        F.min("_source_hash").alias("sh0"),
        F.max("_source_hash").alias("sh1"),
        F.min("_ph").alias("ph0"),
        F.max("_ph").alias("ph1"),
    ]


def _sound(recipe: Recipe) -> Column:
    """A chunk's text, or its vector from the table, is the one of its hash; so is its payload."""
    from pyspark.sql import functions as F  # noqa: N812

    if recipe.vector:
        held = F.sha2(F.to_json(F.col("_vector").cast("array<float>")), 256)
    else:
        held = F.sha2(F.col("_text"), 256)
    same = (held == F.col("_hash")) & (F.col("_ph") == F.col("_payload_hash"))
    return F.coalesce(same, F.lit(False))


def faults(stored: DataFrame, rows: DataFrame, recipe: Recipe) -> DataFrame:
    """Ids of the rows that an index holds wrongly, with `fault`: missing, orphaned or stale.

    Rows that the table holds more than once are among them; `copies` tells how often.
    """
    from pyspark.sql import functions as F  # noqa: N812

    texts = [F.col(f"t{n}").isNotNull() for n in range(len(recipe.fields))]
    says = F.col("v").isNotNull() if recipe.vector else reduce(operator.or_, texts)
    # The newest version is the largest: structs are ordered by their first fields.
    version = F.struct("i", "s", "sh", "ph", says.alias("says"))
    table = (
        rows.select("p", "k", version.alias("now"))
        .groupBy("p", "k")
        .agg(F.max("now").alias("now"), F.count("*").alias("copies"))
    )
    fault = (
        F.when(F.col("ish").isNull() & F.col("now.says"), "missing")
        .when(F.col("now").isNull(), "orphaned")
        .when(F.col("ish").isNotNull() & ~_equal(), "stale")
    )
    both = table.join(stored, ["p", "k"], "full_outer")
    told = both.select(
        "p", "k", fault.alias("fault"), F.coalesce("copies", F.lit(0)).alias("copies")
    )
    return told.where("fault is not null or copies > 1")


def difference(faulty: DataFrame) -> Difference:
    """Which rows are missing from the index, orphaned in it, or stale; which are stored twice."""
    found: dict[str | None, list[RowId]] = {}
    twice: list[RowId] = []
    for batch in arrow.collect(faulty):
        kinds, copies = batch.column("fault").to_pylist(), batch.column("copies").to_pylist()
        for row, fault, n in zip(row_ids(batch), kinds, copies, strict=True):
            found.setdefault(fault, []).append(row)
            twice += [row] if n > 1 else []
    return Difference(
        missing=tuple(sorted(found.get("missing", ()))),
        orphaned=tuple(sorted(found.get("orphaned", ()))),
        stale=tuple(sorted(found.get("stale", ()))),
        duplicated=tuple(sorted(twice)),
    )


def _equal() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.col("now.says")
        & F.col("sound")
        & (F.col("now.sh") == F.col("ish"))
        & (F.col("now.ph") == F.col("iph"))
    )
