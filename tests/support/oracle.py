"""The oracle: build from nothing, and compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.cache import MemoryVectorCache, VectorCache
from lakewake.embed.column import ColumnEmbedder
from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.recipe import Chunking, Recipe, TextField
from lakewake.source.hudi import HudiTable
from lakewake.store import Store, StoreReader
from lakewake.store.lance.store import LanceStore
from lakewake.store.memory import MemoryStore
from lakewake.sync import NO_OPTIONS, IndexParts, SyncOptions, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HASHING = ModelSettings(provider="hashing", name="hashing", dimension=32)
TEXT = (TextField("text", "{txt}"),)


def contents(index: StoreReader) -> dict[str, Any]:
    """The content of an index: chunk id → text, hashes, payload and vector."""
    columns = [c for c in index.schema().names if c not in ("_checkpoint", "_instant")]
    out = {}
    for batch in index.scan(columns):
        for chunk in batch.to_pylist():
            if chunk["_chunk"]:
                # Never read; an index of an earlier version has its own value here.
                del chunk["_source_hash"]
            vector = np.round(np.array(chunk.pop("_vector")), 5)
            out[chunk["_id"]] = (chunk, vector.tolist())
    return out


class HudiParts(IndexParts):
    """An index of a Hudi table, with an embedder that counts."""

    table: HudiTable
    embedder: HashingEmbedder


def following(
    spark: SparkSession,
    table: Path,
    folder: Path,
    *,
    payload: tuple[str, ...] = ("id", "num"),
    fields: tuple[TextField, ...] = TEXT,
    store: Store | None = None,
    vector_cache: VectorCache | None = None,
    chunking: Chunking | None = None,
    rendering: int = 1,
) -> HudiParts:
    """An index of a sample table in Lance, with an embedder that counts."""
    embedder = HashingEmbedder(HASHING)
    recipe = Recipe(
        embedder.identity,
        fields,
        payload=payload,
        chunking=chunking or Chunking(),
        rendering=rendering,
    )
    return HudiParts(
        name="sample",
        table=HudiTable(str(table), recipe, lambda: spark),
        store=store or LanceStore(str(folder), "sample"),
        recipe=recipe,
        embedder=embedder,
        vector_cache=vector_cache or MemoryVectorCache(),
    )


class CountingColumn(ColumnEmbedder):
    """Represents a vector column, and keeps the texts that it was asked to embed: none."""

    def __init__(self, settings: ModelSettings, column: str) -> None:
        super().__init__(settings, column)
        self.received: list[str] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.received += texts
        return super().embed(texts)


def following_vectors(
    spark: SparkSession,
    table: Path,
    folder: Path,
    column: str,
    dimension: int,
    payload: tuple[str, ...] = ("id",),
    vector_cache: VectorCache | None = None,
) -> IndexParts:
    """An index in Lance of the vectors that a column of the table holds."""
    embedder = CountingColumn(ModelSettings("column", column, dimension=dimension), column)
    recipe = Recipe(embedder.identity, vector=column, payload=payload)
    return IndexParts(
        name="sample",
        table=HudiTable(str(table), recipe, lambda: spark),
        store=LanceStore(str(folder), "sample"),
        recipe=recipe,
        embedder=embedder,
        vector_cache=vector_cache or MemoryVectorCache(),
    )


def built_from_nothing(parts: IndexParts) -> dict[str, Any]:
    """The content of the index of these parts if it were built now."""
    return contents(build(parts))


def build(parts: IndexParts, options: SyncOptions = NO_OPTIONS) -> StoreReader:
    """Build the index of these parts from nothing."""
    fresh = IndexParts(
        name=parts.name,
        table=parts.table,
        store=MemoryStore(),
        recipe=parts.recipe,
        embedder=parts.embedder if parts.recipe.vector else HashingEmbedder(HASHING),
        vector_cache=MemoryVectorCache(),
    )
    sync(fresh, options)
    reader = fresh.store.open()
    assert reader is not None
    return reader


def indexed(parts: IndexParts) -> dict[str, Any]:
    """The content of the index of these parts."""
    reader = parts.store.open()
    assert reader is not None
    return contents(reader)
