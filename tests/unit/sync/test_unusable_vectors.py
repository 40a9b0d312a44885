"""Rows of a vector column whose vectors cannot be compared with others."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.column import ColumnEmbedder
from lakewake.errors import TableError
from lakewake.model.chunks import VECTOR_FIELD, chunk_id
from lakewake.model.plan import Action
from lakewake.model.recipe import Recipe
from lakewake.source.memory import MemoryTable
from lakewake.sync import SyncOptions, sync
from lakewake.sync.scan import scanned
from lakewake.verify import verify
from support.oracle import built_from_nothing, indexed
from support.sampling import SampleParts, rid, sample_parts

EMBEDDER = ColumnEmbedder(ModelSettings(provider="column", dimension=2), "vec")
RECIPE = Recipe(EMBEDDER.identity, vector="vec", payload=("num",))
TABLE = pa.schema([("vec", pa.list_(pa.float64())), ("num", pa.int64())])
UNUSABLE = {
    "short": [1.0],
    "long": [1.0, 2.0, 3.0],
    "empty": [],
    "NaN": [1.0, float("nan")],
    "infinite": [1.0, float("-inf")],
    "null inside": [None, 1.0],
    "beyond float32": [1e300, 1.0],
}


def row(vector: list, num: int = 0) -> dict[str, object]:
    return {"vec": vector, "num": num}


def chunk(key: str) -> str:
    return chunk_id(rid(key), VECTOR_FIELD, 0)


@pytest.fixture
def parts() -> SampleParts:
    """An index of twenty vectors."""
    made = replace(sample_parts(MemoryTable(RECIPE, TABLE), recipe=RECIPE), embedder=EMBEDDER)
    made.table.upsert({rid(f"k{n}"): row([1.0, float(n)]) for n in range(20)})
    sync(made)
    return made


@pytest.mark.parametrize("vector", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_row_with_an_unusable_vector_is_quarantined_and_the_others_are_followed(parts, vector):
    parts.table.upsert({rid("k0"): row(vector), rid("new"): row([3.0, 4.0])})
    report = sync(parts)
    assert (report.action, report.quarantined) == (Action.FOLLOW, 1)
    assert chunk("k0") not in indexed(parts)
    assert chunk("new") in indexed(parts)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    assert sync(parts).action is Action.NOTHING


def test_the_quarantine_says_what_is_wrong_with_each_vector(parts):
    parts.table.upsert({rid("k0"): row([1.0]), rid("k1"): row([1.0, float("nan")])})
    sync(parts)
    reasons = {k.key: r.reason for k, r in parts.store.open().frontier().quarantine.items()}
    assert reasons == {
        "k0": "its vector has 1 numbers, not 2",
        "k1": "its vector has nulls, NaN or infinite numbers",
    }


def test_a_mended_vector_leaves_the_quarantine(parts):
    parts.table.upsert({rid("k0"): row([1.0])})
    sync(parts)
    parts.table.upsert({rid("k0"): row([5.0, 6.0])})
    assert sync(parts).quarantined == 0
    assert parts.store.open().frontier().quarantine == {}
    assert indexed(parts) == built_from_nothing(parts)


def test_a_reconcile_keeps_unusable_vectors_in_quarantine(parts):
    parts.table.upsert({rid("k0"): row([float("nan"), 0.0])})
    sync(parts)
    assert sync(parts, SyncOptions(reconcile=True)).quarantined == 1
    assert indexed(parts) == built_from_nothing(parts)


def test_a_scan_of_the_table_leaves_the_same_rows_out(parts):
    parts.table.upsert({rid("k0"): row([1.0]), rid("k1"): row([float("inf"), 1.0])})
    sync(parts)
    found = {id for b in scanned(parts, spark=False).scan(["_id"]) for id in b["_id"].to_pylist()}
    assert found == set(indexed(parts))


def test_vectors_of_another_length_fail_a_build_of_a_small_table():
    made = replace(sample_parts(MemoryTable(RECIPE, TABLE), recipe=RECIPE), embedder=EMBEDDER)
    made.table.upsert({rid("a"): row([1.0, 2.0, 3.0]), rid("b"): row([1.0, 2.0, 3.0])})
    with pytest.raises(TableError, match=r"2 of 2 rows.*has 3 numbers, not 2") as error:
        sync(made)
    assert "dimension" in error.value.hint
    assert made.store.open() is None


def test_many_unusable_vectors_fail_a_sync_and_nothing_lands(parts):
    before = indexed(parts), parts.store.open().frontier()
    parts.table.upsert({rid(f"k{n}"): row([1.0]) for n in range(11)})
    with pytest.raises(TableError, match="11 of 11 rows"):
        sync(parts)
    assert (indexed(parts), parts.store.open().frontier()) == before
