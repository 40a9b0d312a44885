"""Hundreds of random histories of real tables.

The seed is printed; LAKEWAKE_SEED repeats a run, LAKEWAKE_HISTORIES sets their number.
"""

from __future__ import annotations

import os
import random

import pytest

from support.hudi.real_history import COW, MOR, real_history

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(6 * 3600)]

HISTORIES = int(os.environ.get("LAKEWAKE_HISTORIES") or 200)


def test_an_index_equals_its_table_after_any_history(spark, small_tables, tmp_path, capsys):
    seed = int(os.environ.get("LAKEWAKE_SEED") or random.randrange(10**6))
    syncs = 0
    for n in range(HISTORIES):
        type_ = (COW, MOR)[n % 2]
        with capsys.disabled():
            print(f"history {n + 1} of {HISTORIES}: {type_}, seed {seed + n}, {syncs} syncs so far")
        folder = tmp_path / f"{n}"
        history = real_history(spark, folder, type_, seed + n, small_tables)
        history.play(steps=15)
        syncs += history.syncs
    assert syncs >= HISTORIES
