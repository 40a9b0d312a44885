"""What EXPLAIN shows of a search."""

from __future__ import annotations

import pytest

from lakewake.model.recall import CellSizes, Searching
from lakewake.sql.select import cells_read

LANCE = Searching("approximate", "", probes=3, partitions=40)
LAKE = Searching("approximate", "", probes=9, cells=CellSizes.of([500] * 274))
QDRANT = Searching("approximate", "", probes=128, kind="hnsw")
EXACT = Searching("exact", "it has one cell", cells=CellSizes.of([5]))


@pytest.mark.parametrize(
    ("found", "mode", "how", "shown"),
    [
        (LANCE, "vector", (False, False), "3 of 40"),
        (LAKE, "vector", (False, False), "9 of 274"),
        (LAKE, "hybrid", (False, True), "up to 274 because of the filter"),
        (LAKE, "vector", (True, True), "all 274"),
        (LAKE, "keyword", (False, False), "none, words only"),
        (EXACT, "vector", (False, False), "all 1"),
        (QDRANT, "vector", (False, False), "none, a graph is searched"),
        (QDRANT, "vector", (True, False), "none, every vector is compared"),
        (Searching("exact", ""), "vector", (False, False), "none, every vector is compared"),
    ],
)
def test_explain_shows_how_many_cells_a_search_reads(
    found: Searching, mode: str, how: tuple[bool, bool], shown: str
) -> None:
    exact, filtered = how
    assert cells_read(found, mode, exact=exact, filtered=filtered) == shown
