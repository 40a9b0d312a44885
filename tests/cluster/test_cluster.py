"""The same command on a Spark cluster: a real master and two workers, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lakewake
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.lance.generations import Generations
from lakewake.store.location import location_at
from support.cluster.standalone import Cluster, running_cluster, running_driver, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(3600)]

ROWS, CHANGED, DELETED = 100_000, 12_000, 500
#: Some rows share a text.
TEXTS = 90_000
#: The most memory of a driver, as a multiple of one with a third of the rows. Both have enough that
#: chunks are looked up by indexes, and too few for the approximate one: Lance builds that in the
#: driver, whatever the size (docs/scale.md).
FLAT, FEW, MANY = 1.3, 33_000, 99_000
INDEX = """
[[index]]
name    = "sample"
table   = "{table}"
store   = "lance://{store}"
payload = ["num", "price"]
"""
HASHED = 'text = "{txt}"\nmodel = {provider = "hashing"}\n'


def config(folder: Path, name: str, index: str, spark: str = "") -> Path:
    """A configuration with a separate index of the folder's table."""
    file = folder / f"{name}.toml"
    file.write_text(INDEX.format(table=folder / "table", store=folder / name) + index + spark)
    return file


def write(spark: SparkSession, folder: Path, rows: str, operation: str, **more: str) -> None:
    """Commit rows that SQL makes."""
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.operation": operation,
        "hoodie.metadata.enable": "false",
        **more,
    }
    frame = spark.sql(rows).write.format("hudi").options(**options).mode("append")
    frame.save(str(folder / "table"))


def texts(low: int, high: int, said: str, ts: int) -> str:
    """Rows with one text each."""
    return f"""SELECT cast(id AS string) id, {ts}L ts, concat('p', id % 4) part,
        concat('{said} ', id % {TEXTS}) txt, cast(id AS int) num,
        cast(id / 7 AS decimal(20, 4)) price FROM range({low}, {high})"""


def vectors(rows: int, dimension: int) -> str:
    """Rows with one vector each."""
    return f"""SELECT cast(id AS string) id, 1L ts, 'p' part, cast(id AS int) num,
        cast(id AS decimal(20, 4)) price,
        transform(sequence(1, {dimension}), n -> cast(hash(id, n) AS float)) v
        FROM range({rows})"""


def contents(folder: Path, name: str) -> pa.Table:
    """The content of an index, in order."""
    places = Generations(location_at(str(folder / name)), "sample")
    found = lance.dataset(places.address(places.active()))
    chunks = found.to_table(filter="_checkpoint IS NULL")
    return chunks.sort_by("_id").replace_schema_metadata(None)


def matrix(chunks: pa.Table) -> np.ndarray:
    """The vectors of an index."""
    return np.array(chunks["_vector"].to_pylist(), np.float32)


def built_here(spark: SparkSession, folder: Path, name: str, index: str = HASHED) -> pa.Table:
    """The same index, built from nothing on one machine."""
    with lakewake.open(config(folder, name, index), spark=spark) as indexes:
        indexes["sample"].sync()
    return contents(folder, name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@dataclass
class Step:
    """What a cluster reported, and the content of the two indexes then."""

    report: dict[str, Any]
    there: pa.Table
    here: pa.Table


@dataclass
class Story:
    """A table that is built, followed and reconciled, step by step."""

    steps: dict[str, Step] = field(default_factory=dict)
    agreed: dict[str, Any] = field(default_factory=dict)
    damaged: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(cluster, spark, tmp_path_factory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    story = Story()
    write(spark, folder, texts(0, ROWS, "text", 1), "bulk_insert")
    with running_driver(config(folder, "there", HASHED, cluster.options())) as driver:

        def step(name: str, **how: Any) -> None:
            report = driver.ask("sync", **how)
            there = contents(folder, "there")
            story.steps[name] = Step(report, there, built_here(spark, folder, name))

        step("build")
        write(spark, folder, texts(0, CHANGED, "changed", 2), "upsert")
        write(spark, folder, texts(ROWS - DELETED, ROWS, "gone", 2), "delete")
        step("follow")
        write(spark, folder, texts(ROWS, ROWS + CHANGED, "new", 3), "upsert")
        step("reconcile", reconcile=True)
        story.agreed = driver.ask("verify")
        lance.dataset(str(folder / "there" / "sample.g1.lance")).delete("_key IN ('7', '70')")
        story.damaged = driver.ask("verify")
    return story


@pytest.mark.parametrize("step", ["build", "follow", "reconcile"])
def test_a_cluster_builds_the_same_index_as_one_machine(step, story):
    assert story.steps[step].report["action"] == step
    assert story.steps[step].there.equals(story.steps[step].here)


def test_a_build_embeds_each_text_once(story):
    report = story.steps["build"].report
    assert (report["rows_changed"], report["chunks_upserted"]) == (ROWS, ROWS)
    assert (report["embedded"], report["reused"]) == (TEXTS, ROWS - TEXTS)


def test_following_works_only_on_what_changed(story):
    report = story.steps["follow"].report
    assert (report["rows_changed"], report["rows_deleted"]) == (CHANGED, DELETED)
    assert (report["embedded"], report["chunks_deleted"]) == (CHANGED, DELETED)


def test_a_reconcile_writes_what_differs_and_no_more(story):
    report = story.steps["reconcile"].report
    assert (report["rows_changed"], report["embedded"]) == (CHANGED, CHANGED)


def test_verify_agrees_and_has_seen_every_row(story):
    assert story.agreed["agrees"]
    assert story.agreed["rows"] == ROWS + CHANGED - DELETED


def test_verify_finds_the_rows_that_an_index_lost(story):
    assert {row["key"] for row in story.damaged["missing"]} == {"7", "70"}


def test_an_executor_killed_during_a_build_costs_only_time(cluster, spark, tmp_path):
    write(spark, tmp_path, texts(0, ROWS, "text", 1), "bulk_insert")
    with running_driver(config(tmp_path, "there", HASHED, cluster.options())) as driver:
        driver.tell("sync")
        data = tmp_path / "there" / "sample.g1.lance" / "data"
        wait_until(lambda: any(data.glob("*")))
        killed = cluster.kill_an_executor()
        report = driver.answer()
        assert killed not in cluster.executors()
    assert (report["rows_changed"], report["embedded"]) == (ROWS, TEXTS)
    assert contents(tmp_path, "there").equals(built_here(spark, tmp_path, "here"))


def test_executors_are_sent_our_packages_and_the_model(cluster, spark, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    rows = texts(0, 10_000, "text", 1).replace(f"% {TEXTS}", "% 40")
    write(spark, tmp_path, rows, "bulk_insert")
    options = cluster.options(
        pyspark__python=f"{bare}/bin/python", executorEnv__XDG_CACHE_HOME=str(tmp_path / "nowhere")
    )
    modelled = 'text = "{txt}"\n'
    with running_driver(config(tmp_path, "there", modelled, options)) as driver:
        report = driver.ask("sync")
    assert report.get("embedded") == 40, report
    there, here = contents(tmp_path, "there"), built_here(spark, tmp_path, "here", modelled)
    assert there.drop_columns("_vector").equals(here.drop_columns("_vector"))
    # Another batch of texts may round differently.
    assert np.allclose(matrix(there), matrix(here), atol=1e-4)


def test_executors_build_and_follow_an_index_in_the_lake(cluster, spark, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    rows = 12_000
    write(spark, tmp_path, texts(0, rows, "text", 1), "bulk_insert")
    options = cluster.options(pyspark__python=f"{bare}/bin/python")
    there = config(tmp_path, "there", HASHED, options)
    there.write_text(there.read_text().replace('"lance://', '"hudi://'))
    with running_driver(there) as driver:
        built = driver.ask("sync")
        assert (built["rows_changed"], built["embedded"]) == (rows, rows)
        # Too few to be embedded by executors, but they write them.
        write(spark, tmp_path, texts(0, 50, "changed", 2), "upsert")
        followed = driver.ask("sync")
        assert (followed["action"], followed["embedded"]) == ("follow", 50)
        agreed = driver.ask("verify")
        assert agreed["agrees"], agreed
        assert agreed["rows"] == rows
    here = built_here(spark, tmp_path, "here")
    with lakewake.open(there) as indexes:
        reader = indexes["sample"].parts.store.open()
        assert isinstance(reader, HudiReader)
        assert len(reader.cells.numbers) > 1
        chunks = pa.Table.from_batches(reader.scan(here.column_names)).sort_by("_id")
    shown = [name for name in here.column_names if name not in ("_instant", "_checkpoint")]
    assert chunks.select(shown).equals(here.select(shown))


def test_the_drivers_memory_does_not_grow_with_the_table(cluster, spark, tmp_path):
    peaks = []
    for rows in (FEW, MANY):
        folder = tmp_path / str(rows)
        folder.mkdir()
        write(spark, folder, vectors(rows, 384), "bulk_insert")
        index = 'vector = "v"\ndimension = 384\n'
        # A small heap is collected often, so that the JVM holds only what it needs.
        options = cluster.options(driver__memory="512m")
        with running_driver(config(folder, "there", index, options)) as driver:
            assert driver.ask("sync")["rows_changed"] == rows
            assert driver.ask("verify")["agrees"]
            assert driver.ask("sync", reconcile=True)["rows_changed"] == 0
            peaks.append(driver.ask("memory"))
    few, many = (sum(peak.values()) for peak in peaks)
    assert many <= few * FLAT, peaks
