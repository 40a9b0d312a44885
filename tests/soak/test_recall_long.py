"""Recall at full size: 112,500 vectors, a third of them deleted or replaced."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakewake.model.chunks import Batch, index_schema
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query
from lakewake.model.recall import RECALL
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.timeline import TableIdentity
from lakewake.store.lance.store import LanceStore

DIMENSION, TOPICS, PER_TOPIC = 384, 300, 375
RECIPE = Recipe(ModelIdentity("column", "given", DIMENSION), vector="embedding")
SCHEMA = index_schema(RECIPE, pa.schema([]))
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
GONE, QUESTIONS = TOPICS // 3, 100


def frontier(sync: int) -> Frontier:
    return Frontier(TableIdentity("t", "id", "", "COPY_ON_WRITE"), {f"2025{sync}": "1"}, sync=sync)


def vectors(first: int, count: int, spread: float) -> np.ndarray:
    """`PER_TOPIC` vectors for each topic; the larger the spread, the more topics overlap."""
    rng = np.random.default_rng(first)
    centres = rng.normal(size=(count, 1, DIMENSION)).astype(np.float32)
    noise = rng.normal(size=(count, PER_TOPIC, DIMENSION)).astype(np.float32)
    made: np.ndarray = (centres + spread * noise).reshape(-1, DIMENSION)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def ids(first: int, count: int) -> list[str]:
    return [f"c{n}" for n in range(first * PER_TOPIC, (first + count) * PER_TOPIC)]


def batch(first: int, made: np.ndarray, deletes: tuple[str, ...] = ()) -> Batch:
    names = pa.array(ids(first, len(made) // PER_TOPIC), pa.string())
    column = pa.FixedSizeListArray.from_arrays(pa.array(made.ravel()), DIMENSION)
    given = {"_id": names, "_key": names, "_hash": names, "_vector": column}
    rows = len(made)
    fixed = {"_partition": "", "_field": "vector", "_chunk": 0}
    columns = [
        given[f.name] if f.name in given else pa.array([fixed.get(f.name)] * rows, f.type)
        for f in SCHEMA
    ]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    return Batch(SCHEMA, lambda: table.to_reader(max_chunksize=8192), deletes)


def asked(store: LanceStore, questions: np.ndarray, there: np.ndarray, kind: str) -> np.ndarray:
    """The share of the ten nearest chunks that each query finds, by distance."""
    reader = store.open()
    assert reader is not None
    shares, times = [], []
    for question in questions:
        tenth = float(np.partition(there @ question, -10)[-10]) - 1e-5
        began = time.perf_counter()
        found = reader.search(Query(question, 10))["_similarity"].to_numpy()
        times.append(time.perf_counter() - began)
        shares.append(min(1.0, (found >= tenth).sum() / 10))
    out = np.array(shares)
    worst = np.sort(out)[: len(out) // 10].mean()
    print(
        f"{kind}: {len(there):,} vectors, recall {out.mean():.4f}, worst tenth {worst:.3f}, "
        f"worst {out.min():.1f}, median {np.median(times) * 1000:.1f} ms"
    )
    return out


def some(made: np.ndarray) -> np.ndarray:
    picked: np.ndarray = made[np.random.default_rng(1).permutation(len(made))[:QUESTIONS]]
    return picked


def midpoints(made: np.ndarray) -> np.ndarray:
    both = some(made) + some(made[::-1])
    middle: np.ndarray = both / np.linalg.norm(both, axis=1, keepdims=True)
    return middle


@pytest.mark.parametrize("spread", [1.0, 2.0])
@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_third_deleted_or_replaced_costs_no_recall(
    tmp_path: Path, replaced: bool, spread: float
) -> None:
    former = vectors(0, TOPICS, spread)
    store = LanceStore(str(tmp_path), "wines")
    store.create(RECIPE, batch(0, former), frontier(1), after=0)
    print(store.maintain())
    new = vectors(TOPICS, GONE, spread) if replaced else former[:0]
    store.commit(batch(TOPICS, new, tuple(ids(0, GONE))), frontier(1), frontier(2))
    gone, kept = former[: GONE * PER_TOPIC], former[GONE * PER_TOPIC :]
    there = np.concatenate([kept, new])
    for upkeep in (False, True):
        if upkeep:
            began = time.perf_counter()
            print(store.maintain(), f"{time.perf_counter() - began:.1f} s")
        kinds = {"stored": some(there), "deleted": some(gone), "between": midpoints(there)}
        shares = {k: asked(store, q, there, k) for k, q in kinds.items()}
        for found in shares.values():
            assert found.mean() >= RECALL
            assert np.sort(found)[: len(found) // 10].mean() >= 0.9
    reader = store.open()
    assert reader is not None
    print(reader.searching())
    # A third less than 112,500 is below the bound for an approximate index.
    assert (reader.searching().mode == "approximate") is replaced
