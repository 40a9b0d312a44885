"""The store contract for an index in the lake, on real Spark and Hudi."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakewake.store import Store
from lakewake.store.hudi.store import HudiStore
from support.store_contract import StoreContract

pytestmark = pytest.mark.spark


@pytest.mark.matrix
class TestHudi(StoreContract):
    """With cells of the usual size."""

    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> Store:
        return HudiStore(str(tmp_path / "my index %20 #1 ü"), "wines", lambda: spark)


class TestCells(StoreContract):
    """The same with cells of a few chunks, which upkeep splits and dissolves."""

    #: As many cells as 6,000 chunks of a real index have would take minutes to write.
    many = 60

    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> Store:
        folder = str(tmp_path / "index")
        return HudiStore(folder, "wines", lambda: spark, cell_chunks=4, ann_min_chunks=0)
