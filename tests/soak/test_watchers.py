"""Two watchers on one index for minutes, while a writer commits. The seed is printed.

LAKEWAKE_SEED repeats a run, LAKEWAKE_SOAK_MINUTES makes it longer.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from time import monotonic

import pytest

import lakewake
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, indexed
from support.watching import CONFIG, counting_service, embedded_by, wait_until, watching

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7200)]

MINUTES = float(os.environ.get("LAKEWAKE_SOAK_MINUTES") or 3)
KEYS = 200


def commit(table: HudiTables, dice: random.Random, number: int) -> None:
    """Make one commit: change or add some rows, or delete some."""
    keys = dice.sample(range(KEYS), dice.randint(1, 10))
    if dice.random() < 0.25:
        table.delete(*(f"k{key}" for key in keys))
    else:
        table.write([row(f"k{key}", f"text {dice.randrange(999)}", ts=number) for key in keys])


def test_two_watchers_running_for_minutes_lose_and_duplicate_nothing(
    spark, small_tables, tmp_path, capsys
):
    seed = int(os.environ.get("LAKEWAKE_SEED") or random.randrange(10**6))
    dice, until, commits = random.Random(seed), monotonic() + MINUTES * 60, 0
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(KEYS // 2)])
    config = tmp_path / "lakewake.toml"
    with counting_service() as (port, received):
        config.write_text(CONFIG.format(port=port))
        with lakewake.open(config, spark=spark) as lake, watching(config) as watchers:
            index = lake["sample"]
            while monotonic() < until:
                commits += 1
                # Deletes carry a ts of a million: later inserts of the same key must be newer.
                commit(table, dice, 10**6 + commits)
                assert all(watcher.lives() for watcher in watchers)
                if commits % 10 == 0:
                    wait_until(lambda: index.status().in_step, watchers)
                    assert indexed(index.parts) == built_from_nothing(index.parts)
            wait_until(lambda: index.status().in_step, watchers)
            wait_until(lambda: embedded_by(watchers) == len(received), watchers)
            with capsys.disabled():
                moved = [len(watcher.reports) for watcher in watchers]
                print(f"seed {seed}: {commits} commits, syncs by each watcher {moved}")
            assert indexed(index.parts) == built_from_nothing(index.parts)
            assert index.status().chunks == len(indexed(index.parts))
            # Both watchers may embed a text before either has cached it, but not more often.
            assert max(Counter(received).values()) <= 2
            assert index.verify(vectors="all").agrees
            assert [watcher.stop() for watcher in watchers] == [0, 0]
            assert not any("failed" in watcher.said for watcher in watchers)
