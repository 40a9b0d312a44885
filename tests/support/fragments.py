"""An index in Lance of several fragments, made of vectors around a hundred middles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from lakewake.model.chunks import Batch, index_schema
from lakewake.model.query import Query
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.store.lance.store import LanceStore
from lakewake.testing.samples import chunk, frontier
from support.executing import LocalExecutors

ROWS, DIMENSION, FRAGMENT = 6_000, 16, 1_500
WORDS = ("red", "white", "plum", "smoke", "oak", "cherry")


def vectors() -> np.ndarray:
    """Vectors around a hundred middles."""
    rng = np.random.default_rng(5)
    middles = rng.normal(size=(100, DIMENSION))
    near = middles[rng.integers(0, 100, ROWS)] + 0.3 * rng.normal(size=(ROWS, DIMENSION))
    return near.astype(np.float32)


def recipe(metric: str = "cosine") -> Recipe:
    model = ModelIdentity("hashing", "test", DIMENSION)
    return Recipe(model, (TextField("text", "{text}"),), metric=metric)


def rows() -> pa.Table:
    """The chunks of the index."""
    made = [
        chunk(str(n), f"{WORDS[n % 6]} {WORDS[n // 6 % 6]} {n}", _vector=vector)
        for n, vector in enumerate(vectors().tolist())
    ]
    return pa.Table.from_pylist(made, schema=index_schema(recipe(), pa.schema([])))


def parts_of(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, FRAGMENT):
        yield table.slice(start, FRAGMENT)


def build(store: LanceStore, table: pa.Table, metric: str = "cosine") -> None:
    """Build the index as executors do, in several fragments."""
    with store.staging(0) as staging:
        written = [staging.write(table.schema, iter(p.to_batches())) for p in parts_of(table)]
        empty: Batch = Batch(table.schema, table.schema.empty_table().to_reader, (), tuple(written))
        store.create(recipe(metric), empty, frontier(1), after=0)


def opened(folder: Path, executors: LocalExecutors | None, kind: str = "auto") -> LanceStore:
    return LanceStore(
        str(folder),
        "wines",
        ann_min_chunks=2_000,
        lookup_min_chunks=2_000,
        words_min_chunks=1_000,
        kind=kind,
        executors=executors or (lambda: None),
        distributed_min_chunks=2_000,
    )


def dataset_of(store: LanceStore) -> lance.LanceDataset:
    return store._versions.dataset(1)


def recall_of(store: LanceStore) -> float:
    reader = store.open()
    shares = []
    for question in vectors()[::211] + np.float32(0.01):
        near, exact = (reader.search(Query(question, 10, exact=e)) for e in (False, True))
        shares.append(len({*near["_id"].to_pylist()} & {*exact["_id"].to_pylist()}) / 10)
    return float(np.mean(shares))
