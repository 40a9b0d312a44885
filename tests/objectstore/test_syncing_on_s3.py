"""Table and index in a bucket: build, follow, race, kill, reconcile, verify."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lakewake
from lakewake.model.plan import Action
from lakewake.store.registry import open_store
from lakewake.sync import sync
from lakewake.verify import verify
from support.hudi.tables import HudiTables, row
from support.killing import die
from support.on_s3 import LAKEWAKE, make_table, run, write_config
from support.oracle import HudiParts, built_from_nothing, following, indexed

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def type_(request) -> str:
    return request.param


@pytest.fixture
def config(bucket, tmp_path) -> Path:
    """A configuration whose table and index are in the bucket."""
    return write_config(tmp_path, bucket, f"lance+s3://{bucket}/index")


@pytest.fixture
def table(spark, bucket, small_tables) -> HudiTables:
    return make_table(spark, bucket, small_tables)


def parts_of(spark, table, bucket) -> HudiParts:
    store = open_store(f"lance+s3://{bucket}/index", "sample")
    return following(spark, table.path, Path(), store=store)


def test_an_index_in_s3_is_built_and_follows_inserts_updates_and_deletes(
    type_, spark, bucket, small_tables
):
    table = make_table(spark, bucket, small_tables, type_)
    parts = parts_of(spark, table, bucket)
    assert (sync(parts).action, len(parts.embedder.received)) == (Action.BUILD, 40)
    assert indexed(parts) == built_from_nothing(parts)
    parts.embedder.received.clear()
    table.write([row("k0", "changed", ts=2), row("n1", "new", part="c")])
    table.delete("k2")
    table.write([row("k1", part="b %20 ü", num=7, ts=2)])
    report = sync(parts)
    assert report.action is Action.FOLLOW
    assert (report.rows_changed, report.rows_deleted) == (3, 1)
    assert sorted(parts.embedder.received) == ["changed", "new"]
    assert indexed(parts) == built_from_nothing(parts)
    assert sync(parts).action is Action.NOTHING
    assert verify(parts).agrees


def test_an_archived_timeline_is_reconciled(type_, spark, bucket, small_tables):
    table = make_table(spark, bucket, small_tables, type_)
    parts = parts_of(spark, table, bucket)
    sync(parts)
    parts.embedder.received.clear()
    for n in range(4):
        table.write([row("k0", f"change {n}", ts=n + 2)])
    table.delete("k2")
    table.archive(keep=2)
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert parts.embedder.received == ["change 3"]
    assert indexed(parts) == built_from_nothing(parts)


def test_two_syncs_at_once_leave_every_row_once(table, spark, bucket):
    both = [parts_of(spark, table, bucket) for _ in range(2)]
    for change in range(3):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(sync, both))
        assert indexed(both[0]) == built_from_nothing(both[0])
        assert [sync(s).action for s in both] == [Action.NOTHING, Action.NOTHING]
        table.write([row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in (0, 2)])
        table.delete(f"k{2 * change + 10}")


@pytest.mark.parametrize(
    ("stage", "point"), [("read", "begin"), ("embed", "end"), ("write", "begin"), ("write", "end")]
)
def test_a_sync_killed_around_its_commit_is_finished_by_the_next(
    stage, point, table, spark, config
):
    with lakewake.open(config, spark=spark) as lake:
        lake["sample"].sync()
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")
    die("hudi", str(config), stage, point, timeout=300)
    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        landed = (stage, point) == ("write", "end")
        report = index.sync()
        assert report.action is (Action.NOTHING if landed else Action.FOLLOW)
        assert report.embedded == (1 if stage == "read" else 0)
        assert indexed(index.parts) == built_from_nothing(index.parts)
        assert index.search("changed", k=1).hits[0].key == "k0"


@pytest.mark.usefixtures("table")
def test_a_build_killed_before_its_commit_embeds_nothing_twice(spark, config):
    die("hudi", str(config), "write", "begin", timeout=300)
    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        assert index.status().built is False
        report = index.sync()
        assert (report.action, report.embedded) == (Action.BUILD, 0)
        assert indexed(index.parts) == built_from_nothing(index.parts)
    assert (config.parent / "index" / "embeddings.sqlite").is_file()


def test_damage_in_the_bucket_is_found_and_repaired(table, spark, config, bucket):
    import lance

    from lakewake.net.s3 import find_s3, lance_options

    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        index.sync()
        lance.dataset(
            f"s3://{bucket}/index/sample.g1.lance", storage_options=lance_options(find_s3())
        ).delete("_key = 'k4'")
        assert [r.key for r in index.verify().missing] == ["k4"]
        assert index.verify(repair=True).agrees
        assert indexed(index.parts) == built_from_nothing(index.parts)


def test_a_rebuild_switches_and_removes_the_older_generation(table, spark, config, files, bucket):
    from pyarrow.fs import FileSelector

    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        index.sync()
        assert index.sync(rebuild=True).embedded == 0
        assert index.status().generation == 2
        assert indexed(index.parts) == built_from_nothing(index.parts)
    left = files.get_file_info(FileSelector(f"{bucket}/index"))
    assert sorted(f.base_name for f in left) == [
        "sample.g2.lance",
        "sample.history",
        "sample.json",
    ]


def test_commands_that_read_no_rows_start_no_jvm(table, config, tmp_path):
    built = run(config, "sync")["indexes"][0]
    assert (built["action"], built["embedded"]) == ("build", 40)
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    assert run(config, "sync", **without_java)["indexes"][0]["action"] == "nothing"
    assert run(config, "plan", **without_java)["indexes"][0]["action"] == "nothing"
    table.write([row("k0", "changed", ts=2)])
    status = run(config, "status", ends=3, **without_java)["indexes"][0]
    assert (status["lag_commits"], status["rows"], status["would"]) == (1, 40, "follow")
    hit = run(config, "search", "sample", "text of k3", "-k", "1", **without_java)["hits"][0]
    assert hit["key"] == "k3"
    followed = run(config, "sync")["indexes"][0]
    assert (followed["action"], followed["embedded"]) == ("follow", 1)
    assert run(config, "verify")["indexes"][0]["agrees"] is True


@pytest.mark.usefixtures("table")
def test_keys_and_endpoint_in_the_aws_files_are_enough(config, gateway, tmp_path):
    files = {**dict.fromkeys(gateway.environment()), **gateway.profile(tmp_path)}
    assert run(config, "sync", **files)["indexes"][0]["embedded"] == 40
    assert run(config, "status", **files)["indexes"][0]["rows"] == 40


def test_two_processes_build_one_index(table, spark, config):
    command = [LAKEWAKE, "sync", "--json", "--config", config]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    reports = [json.loads(process.communicate(timeout=600)[0])["indexes"][0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "build" in [report["action"] for report in reports]
    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        assert index.sync().action is Action.NOTHING
        assert index.status().generation == 1
        assert indexed(index.parts) == built_from_nothing(index.parts)


def test_rows_are_ingested_into_a_table_in_s3(spark, bucket, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id,txt,num\n1,red,5\n2,white,6\n")
    path = f"s3a://{bucket}/ingested"
    done = subprocess.run(
        [LAKEWAKE, "ingest", rows, path, "--key", "id", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["inserted"] == 2
    assert spark.read.format("hudi").load(path).count() == 2
