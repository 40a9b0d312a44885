"""Random histories of real tables: after each sync the index equals a build from nothing."""

from __future__ import annotations

import pytest

from support.hudi.real_history import COW, MOR, SMALL_MEMORY, real_history

pytestmark = pytest.mark.spark

#: `make soak` plays hundreds of longer histories, different ones in every run.
SEEDS = range(1, 29)


def _seeds(quick: int) -> list[object]:
    """All seeds; `make test` plays the first ones, `make matrix` the others."""
    matrix = (pytest.param(seed, marks=pytest.mark.matrix) for seed in SEEDS[quick:])
    return [*SEEDS[:quick], *matrix]


#: Rows of `num` 0, 1 and 2 enter one day after the other, and leave three days later.
SELECTED = (
    "date_add(DATE'2026-01-02', num) BETWEEN date_sub(current_date(), 2) AND current_date()"
    " AND (part <> '50 off' OR id <> 'k3')"
)


@pytest.mark.parametrize("seed", _seeds(quick=4))
def test_an_index_of_selected_rows_equals_its_table_after_any_history(
    seed, spark, small_tables, tmp_path, monkeypatch
):
    for (module, name), size in SMALL_MEMORY.items() if seed % 4 in (1, 2) else ():
        monkeypatch.setattr(module, name, size)
    type_ = (COW, MOR)[seed % 2]
    history = real_history(spark, tmp_path, type_, seed, small_tables, where=SELECTED)
    history.play(steps=8)
    assert history.syncs > 0, "no sync was compared with a build"


@pytest.mark.parametrize("seed", _seeds(quick=14))
def test_an_index_equals_its_table_after_any_history(
    seed, spark, small_tables, tmp_path, monkeypatch
):
    # In half of the histories, of both types: streaming takes more jobs.
    for (module, name), size in SMALL_MEMORY.items() if seed % 4 in (1, 2) else ():
        monkeypatch.setattr(module, name, size)
    history = real_history(spark, tmp_path, (COW, MOR)[seed % 2], seed, small_tables)
    history.play(steps=6)
    assert history.syncs > 0, "no sync was compared with a build"
