"""Random histories of real tables: after each sync the index equals a build from nothing."""

from __future__ import annotations

import pytest
from real_history import COW, MOR, real_history

pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.mark.parametrize(("type_", "seed"), [(COW, 1), (MOR, 2), (COW, 3), (MOR, 4)])
def test_an_index_equals_its_table_after_any_history(type_, seed, spark, small_tables, tmp_path):
    history = real_history(spark, tmp_path, type_, seed, small_tables)
    history.play(steps=10)
    assert history.syncs >= 5
