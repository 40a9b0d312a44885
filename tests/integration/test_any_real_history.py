"""Random histories of real tables: after each sync the index equals a build from nothing."""

from __future__ import annotations

import pytest

from support.hudi.real_history import COW, MOR, SMALL_MEMORY, real_history

pytestmark = pytest.mark.spark

#: `make soak` plays hundreds of longer histories, different ones in every run.
SEEDS = range(1, 29)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_equals_its_table_after_any_history(
    seed, spark, small_tables, tmp_path, monkeypatch
):
    # In half of the histories, of both types: streaming takes more jobs.
    for (module, name), size in SMALL_MEMORY.items() if seed % 4 in (1, 2) else ():
        monkeypatch.setattr(module, name, size)
    history = real_history(spark, tmp_path, (COW, MOR)[seed % 2], seed, small_tables)
    history.play(steps=6)
    assert history.syncs > 0, "no sync was compared with a build"
