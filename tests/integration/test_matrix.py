"""Any history of a Hudi table: the index equals a build from nothing after every sync."""

from __future__ import annotations

import pytest
from histories import HISTORIES
from playing import play

pytestmark = pytest.mark.spark

CASES = [(name, type_) for name, history in HISTORIES.items() for type_ in history.types]


@pytest.mark.parametrize(("name", "type_"), CASES)
def test_the_index_equals_a_build_after_every_sync(name, type_, spark, small_tables, tmp_path):
    assert play(HISTORIES[name], type_, spark, tmp_path, **small_tables)
