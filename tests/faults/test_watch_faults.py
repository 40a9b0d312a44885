"""Two real watchers on one index, whose folder is deleted and damaged under them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakewake
from lakewake.errors import StoreError
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, indexed
from support.shell import run_here
from support.watching import CONFIG, counting_service, embedded_by, wait_until, watching

pytestmark = pytest.mark.spark


def rebuilt(config: Path) -> dict[str, object]:
    """The report of the command that the hint names."""
    ran = run_here(config.parent, "sync", "sample", "--rebuild", "--json")
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout)["indexes"][0])


def test_two_watchers_share_the_work_and_survive_damage_to_the_folder(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(30)])
    config, folder = tmp_path / "lakewake.toml", tmp_path / "index"
    with counting_service() as (port, received):
        config.write_text(CONFIG.format(port=port))
        with lakewake.open(config, spark=spark) as lake:
            index = lake["sample"]

            def in_step() -> bool:
                return index.status().in_step

            def healed() -> bool:
                try:
                    return index.status().in_step
                except StoreError:
                    return False

            with watching(config) as watchers:
                wait_until(in_step, watchers)
                for change in range(3):
                    table.write(
                        [row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in (0, 1)]
                    )
                    table.delete(f"k{change + 10}")
                wait_until(in_step, watchers)
                assert indexed(index.parts) == built_from_nothing(index.parts)
                assert index.status().chunks == index.status().rows == 27
                wait_until(lambda: embedded_by(watchers) == len(received), watchers)

                shutil.rmtree(folder)
                wait_until(lambda: folder.exists() and in_step(), watchers)
                assert index.search("change 2 of 0", k=1).hits[0].key == "k0"
                assert [watcher.stop() for watcher in watchers] == [0, 0]

            # New watchers: the slower of the first two may still have been building when stopped,
            # and would have created the removed files again.
            with watching(config) as watchers:
                received.clear()
                shutil.rmtree(next(folder.glob("sample.g*.lance")))
                wait_until(lambda: any("is gone" in w.said for w in watchers), watchers)
                wait_until(healed, watchers)
                assert index.search("change 2 of 0", k=1).hits[0].key == "k0"
                for file in folder.glob("sample.g*.lance/data/*.lance"):
                    file.write_bytes(b"")
                wait_until(lambda: any("is empty" in w.said for w in watchers), watchers)
                wait_until(healed, watchers)
                assert index.search("change 2 of 0", k=1).hits[0].key == "k0"
                # Not even the two queries: this process remembers the vector of the first one.
                assert received == []
                assert rebuilt(config)["embedded"] == len(received) == 0

                table.write([row("k0", "after all that", ts=9)])
                wait_until(in_step, watchers)
                assert indexed(index.parts) == built_from_nothing(index.parts)
                assert [watcher.stop() for watcher in watchers] == [0, 0]
                assert all("nothing was left half-written" in watcher.said for watcher in watchers)


def test_a_watcher_whose_jvm_is_killed_starts_another(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(5)])
    config = tmp_path / "lakewake.toml"
    with counting_service() as (port, received):
        config.write_text(CONFIG.format(port=port))
        with lakewake.open(config, spark=spark) as lake, watching(config, 1) as [watcher]:
            index = lake["sample"]
            wait_until(lambda: index.status().in_step, [watcher])
            watcher.kill_jvm()
            table.write([row("k0", "changed when it was gone", ts=2)])
            wait_until(lambda: index.status().in_step, [watcher])
            table.write([row("k1", "changed just before it went", ts=2)])
            watcher.kill_jvm()
            wait_until(lambda: index.status().in_step, [watcher])
            assert indexed(index.parts) == built_from_nothing(index.parts)
            assert watcher.stop() == 0
            assert len(received) == len(set(received)) == 7
            assert "Traceback" not in watcher.said


#: The job opens the connection through which Python workers report to the driver.
DYING = """
from lakewake.spark.session import start_session

spark = start_session({})
assert spark.sparkContext.parallelize([1], 1).map(abs).collect() == [1]
try:
    spark._jvm.java.lang.Runtime.getRuntime().halt(1)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_jvm_that_dies_within_a_command_is_an_error_and_prints_no_traceback():
    ran = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() in ("Py4JError", "Py4JNetworkError", "ConnectionRefusedError")
