"""The cells of an index in the lake, trained on executors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakewake.store.hudi import training, writer, writing
from lakewake.store.hudi.cells import Cells, comparable, trained
from lakewake.store.hudi.store import HudiStore
from lakewake.store.hudi.training import Sampled, train_on_executors
from lakewake.store.location import location_at
from lakewake.testing.samples import batch, chunk, frontier, recipe

pytestmark = pytest.mark.spark
DIMENSION, CLUSTERS = 16, 12


def write_part(folder: Path, name: str, vectors: list[list[float] | None]) -> str:
    column = pa.array(vectors, pa.list_(pa.float32()))
    pq.write_table(pa.table({"_vector": column}), folder / name)
    return name


@pytest.fixture
def sampled(tmp_path: Path) -> Sampled:
    """Clustered vectors in four files; one file is empty, and some vectors cannot be compared."""
    rng = np.random.default_rng(5)
    middles = rng.normal(size=(CLUSTERS, DIMENSION))
    parts = []
    for number, rows in enumerate((400, 0, 300, 500)):
        made = middles[rng.integers(0, CLUSTERS, rows)] + 0.1 * rng.normal(size=(rows, DIMENSION))
        vectors: list[list[float] | None] = [*made.tolist(), None, [float("nan")] * DIMENSION]
        parts.append(write_part(tmp_path, f"{number}.parquet", vectors if rows else []))
    return Sampled(location_at(str(tmp_path)), tuple(parts), 1.0, DIMENSION)


def far(cells: Cells, vectors: np.ndarray) -> float:
    """The mean squared distance of vectors to the middle of their cell."""
    vectors = comparable(vectors, cells.metric)
    middles = {int(n): c for n, c in zip(cells.numbers, cells.centroids, strict=True)}
    of = np.array([middles[int(n)] for n in cells.of(vectors)])
    return float(((vectors - of) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_cells_trained_on_executors_are_as_good_as_those_trained_here(
    metric: str, sampled: Sampled, spark: SparkSession
) -> None:
    count = 4 * CLUSTERS
    there = train_on_executors(spark.sparkContext, sampled, count, metric)
    here = trained(sampled.read_all(), count, metric)
    assert there.numbers.tolist() == list(range(count)) == here.numbers.tolist()
    assert np.isfinite(there.centroids).all()
    vectors = sampled.read_all()
    assert far(there, vectors) <= 1.1 * far(here, vectors)


def test_equal_files_give_equal_cells(sampled: Sampled, spark: SparkSession) -> None:
    one, other = (
        train_on_executors(spark.sparkContext, sampled, CLUSTERS, "cosine") for _ in range(2)
    )
    assert one.digest == other.digest


def test_files_without_vectors_give_one_cell(tmp_path: Path, spark: SparkSession) -> None:
    part = write_part(tmp_path, "nulls.parquet", [None, None])
    sampled = Sampled(location_at(str(tmp_path)), (part,), 1.0, DIMENSION)
    cells = train_on_executors(spark.sparkContext, sampled, 5, "cosine")
    assert cells.numbers.tolist() == [0]
    assert cells.centroids.shape == (1, DIMENSION)


def test_on_a_cluster_a_build_reads_no_vector_in_the_driver(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the driver reads the sample")

    monkeypatch.setattr(writing, "on_cluster", lambda _: True)
    monkeypatch.setattr(training.Sampled, "read_all", refuse)
    monkeypatch.setattr(writer, "trained", refuse)
    store = HudiStore(str(tmp_path / "index"), "sample", lambda: spark, cell_chunks=10)
    store.create(recipe(), batch(*(chunk(f"k{n}") for n in range(60))), frontier(1), after=0)
    reader = store.open()
    assert reader is not None
    assert len(reader.cells.numbers) == 6
    assert reader.counts() == (60, 60)
