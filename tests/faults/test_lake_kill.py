"""Writers of an index in the lake, killed while Spark writes, and two of them at once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakewake
from support import environment
from support.hudi import SAMPLE_CONFIG, SMALL_SPARK
from support.hudi.tables import HudiTables, row
from support.killing import DYING
from support.oracle import built_from_nothing, indexed

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]
IN_THE_LAKE = SAMPLE_CONFIG.replace("lance://index", "hudi://index")
SEED = 20_261_116
#: A dead writer holds nobody up: its lock ends with it.
MOST_SECONDS = 60


@pytest.fixture
def table(spark: SparkSession, small_tables: dict[str, str], tmp_path: Path) -> HudiTables:
    made = HudiTables(spark, tmp_path / "table", options=small_tables)
    made.write([row(f"k{n}", part="ab"[n % 2]) for n in range(40)])
    (tmp_path / "lakewake.toml").write_text(IN_THE_LAKE + SMALL_SPARK)
    return made


def syncing(config: Path) -> subprocess.Popen[str]:
    """A process that syncs, and prints where it is."""
    return subprocess.Popen(
        [sys.executable, *DYING, "hudi", str(config)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_while_it_writes(config: Path, seconds: float) -> None:
    """Kill a sync this long after it began to write."""
    with syncing(config) as process:
        assert process.stdout is not None
        assert "write begin\n" in process.stdout
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()


def test_writers_killed_while_spark_writes_are_finished_by_the_next(
    table: HudiTables, spark: SparkSession, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    dice, config = random.Random(SEED), tmp_path / "lakewake.toml"
    for change in range(5):
        kill_while_it_writes(config, dice.uniform(0, 3.0))
        began = time.monotonic()
        with lakewake.open(config, spark=spark) as lake:
            index = lake["sample"]
            index.sync()
            assert time.monotonic() - began < MOST_SECONDS
            assert index.verify(vectors="all").agrees
            assert indexed(index.parts) == built_from_nothing(index.parts)
        table.write([row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in range(9)])
        table.delete(f"k{10 + change}")


def test_two_processes_that_sync_at_once_leave_one_exact_index(
    table: HudiTables, spark: SparkSession, tmp_path: Path
) -> None:
    config = tmp_path / "lakewake.toml"
    for change in range(3):
        both = [syncing(config) for _ in range(2)]
        for process in both:
            process.communicate(timeout=600)
        # Both end well: the one that came second finds the work done, or goes on from there.
        assert [process.returncode for process in both] == [0, 0]
        with lakewake.open(config, spark=spark) as lake:
            index = lake["sample"]
            assert index.sync().as_dict()["action"] == "nothing"
            assert indexed(index.parts) == built_from_nothing(index.parts)
        table.write([row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in range(7)])
