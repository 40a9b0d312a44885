"""Small indexes over the memory table, for tests without Spark."""

from __future__ import annotations

import pyarrow as pa

from lakewake.config.settings import ModelSettings
from lakewake.embed.cache import MemoryVectorCache, VectorCache
from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.recipe import Chunking, Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.source.memory import MemoryTable
from lakewake.store import Store
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts

HASHING = ModelSettings(provider="hashing", name="hashing", dimension=32)
SCHEMA = pa.schema([("txt", pa.string()), ("num", pa.int64())])


def rid(key: str, partition: str = "p") -> RowId:
    """The identity of a row."""
    return RowId(partition, key)


def sample_recipe(chunking: Chunking | None = None) -> Recipe:
    """One text column, one payload column."""
    return Recipe(
        HashingEmbedder(HASHING).identity,
        (TextField("text", "{txt}"),),
        payload=("num",),
        chunking=chunking or Chunking(),
    )


class SampleParts(IndexParts):
    """An index of a memory table, with an embedder that counts."""

    table: MemoryTable
    embedder: HashingEmbedder

    @property
    def memory(self) -> MemoryStore:
        """The store, if it is a memory store."""
        assert isinstance(self.store, MemoryStore)
        return self.store


def sample_parts(
    table: MemoryTable | None = None,
    store: Store | None = None,
    *,
    recipe: Recipe | None = None,
    vector_cache: VectorCache | None = None,
    model: ModelSettings | None = None,
) -> SampleParts:
    """An index of a memory table, with an embedder that counts."""
    recipe = recipe or sample_recipe()
    return SampleParts(
        name="sample",
        table=table if table is not None else MemoryTable(recipe, SCHEMA),
        store=store or MemoryStore(),
        recipe=recipe,
        embedder=HashingEmbedder(HASHING),
        vector_cache=vector_cache or MemoryVectorCache(),
        model=model,
    )


def values(txt: str | None, num: int = 0) -> dict[str, object]:
    """The columns of a row."""
    return {"txt": txt, "num": num}
