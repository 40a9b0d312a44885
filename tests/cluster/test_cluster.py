"""The same command on a Spark cluster: a real master and two workers, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakewake
from bench.memory import Watcher
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
#: executors count words, build the indexes for lookups and the approximate one, and probe that.
FLAT, FEW, MANY = 1.3, 33_000, 99_000
NEAREST = 10
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


def test_executors_search_with_what_they_are_sent(cluster, spark, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    write(spark, tmp_path, texts(0, 200, "text", 1), "bulk_insert")
    options = cluster.options(
        pyspark__python=f"{bare}/bin/python", executorEnv__XDG_CACHE_HOME=str(tmp_path / "nowhere")
    )
    questions = ["text 7", "text 70", "number 150"]
    listed = ", ".join(f"('{question}')" for question in questions)
    with running_driver(config(tmp_path, "there", 'text = "{txt}"\n', options)) as driver:
        driver.ask("sync")
        found = driver.ask(
            "sql",
            statement=f"SELECT q.ask, h._rank, h._key, h.num FROM VALUES {listed} q(ask), "
            "LATERAL vector_search('sample', q.ask, 5) h",
        )["rows"]
        for question in questions:
            hits = driver.ask("search", text=question, k=5)["hits"]
            wanted = [[question, n, h["key"], h["payload"]["num"]] for n, h in enumerate(hits, 1)]
            assert sorted(row for row in found if row[0] == question) == wanted


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


@pytest.mark.parametrize("mode", ["vector", "keyword"])
def test_executors_answer_a_dataframe_of_questions_as_one_machine_does(
    cluster, spark, tmp_path, mode
):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    rows, questions = 10_000, str(tmp_path / "questions")
    write(spark, tmp_path, texts(0, rows, "text", 1), "bulk_insert")
    spark.sql("SELECT id n, concat('text ', id * 7) asked FROM range(300)").write.parquet(questions)
    options = cluster.options(pyspark__python=f"{bare}/bin/python")
    how = {"text": "asked", "k": 5, "where": "num >= 100", "mode": mode}
    with running_driver(config(tmp_path, "there", HASHED, options)) as driver:
        assert driver.ask("sync")["rows_changed"] == rows
        answer = driver.ask("join", questions=questions, out=str(tmp_path / "out"), **how)
    assert answer == {"rows": rows}

    def hits(frame):
        return {(r.n, r._rank): (r._key, r.num, round(r._score, 5)) for r in frame.collect()}

    with lakewake.open(config(tmp_path, "there", HASHED), spark=spark) as indexes:
        here = indexes["sample"].search_batch(spark.read.parquet(questions), **how)
        there = hits(spark.read.parquet(str(tmp_path / "out")))
        assert there == hits(here)
    assert len(there) == 300 * 5


def joined(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The result of a join in order of questions: questions, keys and scores."""
    found = pq.read_table(folder / name, columns=["n", "_key", "_score", "_rank"])
    found = found.sort_by([("n", "ascending"), ("_rank", "ascending")])
    shape = (-1, NEAREST)
    keys = np.array(found["_key"].to_pylist(), object).reshape(shape)
    numbers = (found[c].to_numpy().reshape(shape) for c in ("n", "_score"))
    asked, scores = numbers
    return asked[:, 0], keys, scores


@pytest.mark.parametrize("size", [5_000, 100_000])
def test_the_memory_of_a_join_does_not_grow_with_the_questions(cluster, spark, tmp_path, size):
    """Bar 29: 100,000 questions and rows; executors in 2 GB, 100 MB more in the driver."""
    write(spark, tmp_path, vectors(size, 384), "bulk_insert")
    asked = "transform(sequence(1, 384), i -> cast(hash(id, -i) AS float)) asked"
    for count in (1_000, size):
        frame = spark.sql(f"SELECT id n, {asked} FROM range({count})")
        frame.write.parquet(str(tmp_path / f"questions{count}"))
    index = 'vector = "v"\ndimension = 384\nrecall = 1\n'
    how = {"vector": "asked", "k": NEAREST}
    peaks = {}
    options = cluster.options(driver__memory="512m")
    with running_driver(config(tmp_path, "there", index, options)) as driver:
        assert driver.ask("sync")["rows_changed"] == size
        with ExitStack() as opened:
            seen = [opened.enter_context(Watcher(pid)) for pid in cluster.executors()]
            for count in (1_000, size):
                out = str(tmp_path / f"there{count}")
                driver.ask("join", questions=str(tmp_path / f"questions{count}"), out=out, **how)
                peaks[count] = sum(driver.ask("memory").values())
    assert seen
    assert max(watched.peak for watched in seen) <= 2 * 1024**3
    assert peaks[size] - peaks[1_000] <= 100, peaks
    with lakewake.open(config(tmp_path, "there", index), spark=spark) as indexes:
        questions = spark.read.parquet(str(tmp_path / f"questions{size}"))
        here = indexes["sample"].search_batch(questions, **how)
        here.write.parquet(str(tmp_path / "here"))
    there, local = joined(tmp_path, f"there{size}"), joined(tmp_path, "here")
    assert np.array_equal(there[0], np.arange(size))
    assert np.array_equal(there[0], local[0])
    assert np.allclose(there[2], local[2], atol=1e-5)
    for ours, theirs, scores in zip(there[1], local[1], local[2], strict=True):
        # Rows with equal scores may come in any order, and the last of them may differ.
        sure = scores > scores[-1] + 1e-5
        assert set(theirs[sure]) <= set(ours)


def test_the_drivers_memory_does_not_grow_with_the_table(cluster, spark, tmp_path):
    peaks = []
    for rows in (FEW, MANY):
        folder = tmp_path / str(rows)
        folder.mkdir()
        write(spark, folder, vectors(rows, 384), "bulk_insert")
        index = 'vector = "v"\ndimension = 384\nann = {from = 20000}\n'
        # A small heap is collected often, so that the JVM holds only what it needs.
        options = cluster.options(driver__memory="512m")
        with running_driver(config(folder, "there", index, options)) as driver:
            assert driver.ask("sync")["rows_changed"] == rows
            assert driver.ask("verify")["agrees"]
            assert driver.ask("sync", reconcile=True)["rows_changed"] == 0
            assert driver.ask("status")["searching"]["questions"]
            peaks.append(driver.ask("memory"))
    few, many = (sum(peak.values()) for peak in peaks)
    assert many <= few * FLAT, peaks


def test_executors_build_the_indexes_of_an_index(cluster, spark, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    rows = 32_000
    write(spark, tmp_path, texts(0, rows, "text", 1), "bulk_insert")
    options = cluster.options(pyspark__python=f"{bare}/bin/python")
    index = HASHED + "ann = {from = 20000}\n"
    with running_driver(config(tmp_path, "there", index, options)) as driver:
        assert driver.ask("sync")["embedded"] == rows
        there = driver.ask("status")["searching"]
        found = driver.ask("search", text="text 7", k=5)["hits"]
        worded = driver.ask("search", text="text 70", k=5, mode="keyword")["hits"]
        assert driver.ask("upkeep") == {}
    built_here(spark, tmp_path, "here", index)
    with lakewake.open(config(tmp_path, "here", index)) as indexes:
        here = indexes["sample"]
        assert there["kind"] == here.status().searching.kind == "ivf_rq"
        assert there["questions"] == here.status().searching.questions
        assert there["recall_mean"] >= here.status().searching.recall_mean - 0.005
        assert [hit["key"] for hit in worded] == [
            hit.key for hit in here.search("text 70", k=5, mode="keyword").hits
        ]
    assert found[0]["key"] == "7"
    names = [
        {i.name for i in lance.dataset(str(tmp_path / n / "sample.g1.lance")).describe_indices()}
        for n in ("there", "here")
    ]
    assert names[0] == names[1] == {"_vector_idx", "_id_idx", "_key_idx", "_hash_idx"}
