"""What the tests of every folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from lakewake.spark import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples in every run of the same code; `make soak` explores others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

#: Makes commits to small tables fast; tests of default settings override them per write.
SMALL_TABLES = {
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
}


def pytest_configure(config: pytest.Config) -> None:
    """Know the markers of langchain-tests, whose plugins are not loaded."""
    for marker in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{marker}: of langchain-tests, in none of our tests")


@pytest.fixture(scope="session")
def small_tables() -> dict[str, str]:
    """Write options for small tables."""
    return dict(SMALL_TABLES)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session that all tests share."""
    yield start_session(
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            # Two sessions share two cores: threads that collect garbage are in each other's way.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            # Tables of ten rows: compiling a query costs more than interpreting it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
    )
    stop_session()
