"""A small run of what sessions do: the classes it uses go into the class-data archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakewake.config.settings import ModelSettings
from lakewake.embed.cache import MemoryVectorCache
from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.recipe import Recipe, TextField
from lakewake.source.hudi import HudiTable
from lakewake.spark.options import WITHOUT_SERVER
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts, SyncOptions, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITE = {
    "hoodie.table.name": "quick_start",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    **WITHOUT_SERVER,
}


def exercise(spark: SparkSession, table: str) -> None:
    """Write a small table at an unused path, and sync an index with it."""
    index = _small_index(spark, table)
    for rows, operation in ((3, "upsert"), (1, "upsert"), (1, "delete")):
        frame = spark.sql(
            f"SELECT cast(id AS string) id, 'p' part, 'x' text, 1L ts FROM range({rows})"
        )
        options = {**WRITE, "hoodie.datasource.write.operation": operation}
        frame.write.format("hudi").options(**options).mode("append").save(table)
        sync(index)
    sync(index, SyncOptions(reconcile=True))


def _small_index(spark: SparkSession, table: str) -> IndexParts:
    embedder = HashingEmbedder(ModelSettings(provider="hashing"))
    recipe = Recipe(embedder.identity, (TextField("text", "{text}"),), payload=("part", "ts"))
    return IndexParts(
        name="quick_start",
        table=HudiTable(table, recipe, lambda: spark),
        store=MemoryStore(),
        recipe=recipe,
        embedder=embedder,
        vector_cache=MemoryVectorCache(),
    )
