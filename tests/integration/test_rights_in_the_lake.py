"""The rights of callers over an index in the lake."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakewake.store.hudi.store import HudiStore
from support.rights import RightsContract, World
from support.tenants import THEIRS, index_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: Any) -> Any:
    folders = [tmp_path_factory.mktemp("world") for _ in THEIRS]
    made = [
        World(folder, index_of(rows, HudiStore(str(folder / "index"), "sample", lambda: spark)))
        for folder, rows in zip(folders, THEIRS, strict=True)
    ]
    yield made
    for world in made:
        world.close()


class TestRightsInTheLake(RightsContract):
    pass
