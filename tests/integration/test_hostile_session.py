"""Reads return the table's rows, whatever the settings of the caller's session, Spark and Hudi."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakewake.errors import TableError
from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.source import files
from lakewake.source.hudi import HudiTable
from lakewake.source.session import reading_session
from lakewake.spark.own import active
from lakewake.sync import SyncOptions, sync
from lakewake.verify import repair, verify
from support import environment
from support.hudi.hostile import (
    HOSTILE_TO_HADOOP,
    HOSTILE_TO_HUDI,
    HOSTILE_TO_SPARK,
    state_of,
)
from support.hudi.tables import HudiTables, row
from support.oracle import HudiParts, built_from_nothing, following, indexed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
#: No read option overrides this if hudi-defaults.conf sets it.
ELSEWHEN = {"as.of.instant": "20200101000000000"}
#: Spark's defaults, unlike in other tests. The driver then compiles a read with the settings of a
#: session; interpreted, a streamed read sees the settings of none.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@pytest.fixture
def hostile(spark) -> Iterator[SparkSession]:
    """A caller's session with hostile settings, and hostile defaults of Hudi."""
    session = spark.newSession()
    for key, value in {**HOSTILE_TO_SPARK, **HOSTILE_TO_HUDI, **ELSEWHEN, **COMPILED}.items():
        session.conf.set(key, value)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in HOSTILE_TO_HADOOP.items():
        hadoop.set(key, value)
    defaults = spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    for key, value in HOSTILE_TO_HUDI.items():
        defaults.addToGlobalProps(key, value)
    yield session
    defaults.clearGlobalProps()
    for key in HOSTILE_TO_HADOOP:
        hadoop.unset(key)


def read_by(parts: HudiParts, session: SparkSession) -> HudiParts:
    """The same index, with its table read in another session."""
    return replace(parts, table=HudiTable(parts.table.path, parts.recipe, lambda: session))


def built_in_a_clean_session(parts: HudiParts, spark: SparkSession) -> dict:
    defaults = spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    kept = defaults.getGlobalProps()
    defaults.clearGlobalProps()
    try:
        return built_from_nothing(read_by(parts, spark))
    finally:
        for key in kept.keySet().toArray():
            defaults.addToGlobalProps(key, kept.getProperty(key))


def _change(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2), row("k2", ts=2, num=5), row("n1", "new")])
    table.delete("k4")


def _cluster_and_change(table: HudiTables) -> None:
    table.cluster()
    table.write([row("k0", "changed again", ts=3)])
    table.write([row("k1", "stored twice", part="b", ts=3)], "bulk_insert")


def _overwrite(table: HudiTables) -> None:
    table.write([row("k3", "over", part="b", ts=4)], "insert_overwrite")
    table.delete_partition("a") if table.type == COW else table.compact()


@pytest.mark.parametrize("type_", [COW, MOR])
def test_an_index_is_followed_in_a_session_with_hostile_settings(
    type_, spark, hostile, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])
    table.write([row("k0", "in a log", ts=2)])
    fields = (TextField("text", "{txt}"), TextField("other", "{num} of {part}"))
    clean = following(spark, table.path, tmp_path / "index", fields=fields, payload=("id", "ts"))
    parts = read_by(clean, hostile)
    sync(parts)
    assert indexed(parts) == built_in_a_clean_session(parts, spark)
    for happens in (_change, _cluster_and_change, _overwrite):
        happens(table)
        sync(parts)
        assert indexed(parts) == built_in_a_clean_session(parts, spark)
    assert verify(parts).agrees
    table.write([row("k5", "seen by a reconcile", part="b", ts=9)])
    sync(parts, SyncOptions(reconcile=True))
    assert indexed(parts) == built_in_a_clean_session(parts, spark)
    assert repair(parts).repaired == 0


def test_how_the_caller_casts_values_does_not_change_a_text(spark, hostile, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", COW, options=small_tables)
    box = "named_struct('name', 'n', 'size', cast(NULL AS int)) AS box"
    frame = spark.sql(f"SELECT 'a' AS id, 'p' AS part, 1L AS ts, 'red' AS txt, {box}")
    table.write_frame(frame, "upsert")
    fields = (TextField("text", "{txt} {box}"),)
    clean = following(spark, table.path, tmp_path / "index", fields=fields, payload=("id",))
    parts = read_by(clean, hostile)
    # As in a notebook: the session that a caller passes is also the active one of the thread.
    with active(hostile):
        sync(parts)
        # A build streams its rows; a follow collects them.
        table.write_frame(
            frame.selectExpr("'b' AS id", "part", "ts", "'blue' AS txt", "box"), "upsert"
        )
        sync(parts)
    assert parts.embedder.received == ["red {n, null}", "blue {n, null}"]
    assert indexed(parts) == built_in_a_clean_session(parts, spark)


def test_a_missing_file_is_noticed_if_the_caller_ignores_missing_files(
    spark, hostile, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])
    parts = read_by(following(spark, table.path, tmp_path / "index"), hostile)
    taken = parts.table.snapshot

    def snapshot_then_clean(look):
        parts.table.snapshot = taken
        changes = taken(look)
        table.write([row("k0", "newer", ts=2)])
        table.clean(policy="KEEP_LATEST_FILE_VERSIONS", fileversions__retained="1")
        return changes

    parts.table.snapshot = snapshot_then_clean
    sync(parts)
    assert indexed(parts) == built_in_a_clean_session(parts, spark)


def test_a_file_that_spark_does_not_list_is_noticed(spark, small_tables, tmp_path, monkeypatch):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.delete("b")
    newest = parts.table.look(None).newest
    hiding = {"pathGlobFilter": f"*_{newest}.parquet"}
    monkeypatch.setattr(files, "plain_reader", lambda spark: spark.read.options(**hiding))
    report = sync(parts)
    assert (report.action, report.rows_deleted) == (Action.RECONCILE, 1), report.why
    assert "Spark lists 0 of 1" in report.why
    assert indexed(parts) == built_from_nothing(parts)


def test_a_table_that_the_caller_keeps_in_sparks_cache_is_read_as_it_is_now(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    kept = spark.read.format("hudi").load(str(table.path)).cache()
    try:
        assert kept.count() == 2
        table.write([row("c")])
        parts = following(spark, table.path, tmp_path / "index")
        sync(parts)
        assert {c["_key"] for c, _ in indexed(parts).values()} == {"a", "b", "c"}
    finally:
        kept.unpersist()


def test_a_sync_leaves_the_callers_session_as_it_was(spark, hostile, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    parts = read_by(following(spark, table.path, tmp_path / "index"), hostile)
    before = state_of(hostile)
    sync(parts)
    table.write([row("a", "changed", ts=2)])
    sync(parts, SyncOptions(reconcile=True))
    assert verify(parts).agrees
    assert state_of(hostile) == before


def test_defaults_that_no_option_overrides_are_refused(spark):
    defaults = spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    [(key, value)] = ELSEWHEN.items()
    defaults.addToGlobalProps(key, value)
    try:
        with pytest.raises(TableError, match=r"hudi-defaults.conf sets as.of.instant"):
            reading_session(spark.newSession())
    finally:
        defaults.clearGlobalProps()


#: A process whose Spark and Hudi have hostile settings from the start.
PROGRAM = """
import json, sys
from pathlib import Path
from lakewake.spark.session import start_session
spark = start_session(json.loads(sys.argv[3]))
assert spark.conf.get("spark.sql.files.ignoreMissingFiles") == "true"
from support.oracle import built_from_nothing, following
parts = following(spark, Path(sys.argv[1]), Path(sys.argv[2]))
print(json.dumps(built_from_nothing(parts), sort_keys=True))
"""


def test_global_spark_settings_and_hudi_defaults_do_not_affect_a_read(
    spark, small_tables, tmp_path
):
    import json

    table = HudiTables(spark, tmp_path / "table", MOR, options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])
    table.write([row("k0", "in a log", ts=2)])
    defaults = "".join(f"{key}={value}\n" for key, value in HOSTILE_TO_HUDI.items())
    (tmp_path / "hudi-defaults.conf").write_text(defaults)
    settings = {**HOSTILE_TO_SPARK, "spark.sql.shuffle.partitions": "1"}
    arguments = [str(table.path), str(tmp_path / "index"), json.dumps(settings)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment(HUDI_CONF_DIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    clean = built_from_nothing(following(spark, table.path, tmp_path / "index"))
    assert json.loads(done.stdout) == json.loads(json.dumps(clean))


def test_a_commit_that_touches_many_files_is_followed(hostile, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}", part=f"p{n}") for n in range(40)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row(f"k{n}", f"changed {n}", part=f"p{n}", ts=2) for n in range(40)])
    report = sync(read_by(parts, hostile))
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 40)
    assert indexed(parts) == built_from_nothing(parts)
