"""Slices of an index in the lake are kept in memory within a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakewake.store.hudi.slices import LEAST, Slice, SliceCache, memory_bound
from lakewake.store.hudi.writer import in_parts


def slice_of(cell: int) -> Slice:
    return Slice(cell, f"base-{cell}", ())


def test_the_slices_used_last_stay_in_memory() -> None:
    cache = SliceCache(memory=250)
    for cell in (1, 2):
        cache.put("table", slice_of(cell), {"column": np.zeros(100, np.int8)})
    assert cache.get("table", slice_of(1))
    cache.put("table", slice_of(3), {"column": np.zeros(100, np.int8)})
    held = [cell for cell in (1, 2, 3) if cache.get("table", slice_of(cell))]
    assert held == [1, 3]


def test_a_column_counts_once() -> None:
    cache = SliceCache(memory=250)
    for _ in range(5):
        cache.put("table", slice_of(1), {"column": np.zeros(100, np.int8)})
    cache.put("table", slice_of(2), {"column": np.zeros(100, np.int8)})
    assert cache.get("table", slice_of(1))


def test_the_bound_is_a_quarter_of_the_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 64 if "PHYS" in name else 2**30)
    limit = tmp_path / "memory.max"
    assert memory_bound(limit) == 16 * 2**30
    limit.write_text("max\n")
    assert memory_bound(limit) == 16 * 2**30
    limit.write_text(f"{8 * 2**30}\n")
    assert memory_bound(limit) == 2 * 2**30
    limit.write_text(f"{2**30}\n")
    assert memory_bound(limit) == LEAST


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([3], [3]),
        ([4, 4, 4], [8, 4]),
        ([10], [10]),
        ([5, 0, 0], [5, 0]),
        ([2, 3, 5], [5, 5]),
    ],
)
def test_chunks_are_staged_in_parts(sizes: list[int], parts: list[int]) -> None:
    batches = iter([pa.RecordBatch.from_pydict({"_id": ["c"] * size}) for size in sizes])
    assert [sum(map(len, part)) for part in in_parts(batches, 5)] == parts
