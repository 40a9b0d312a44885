"""What the tests of every folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from lakewake.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Before anything imports it, so that pytest explains its assertions like those of tests.
pytest.register_assert_rewrite("support")

# The same examples in every run of the same code; `make soak` explores others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

#: Modules whose tests share an expensive fixture: one worker runs all of them.
TOGETHER = (
    "tests/acceptance/test_demo.py",
    "tests/acceptance/test_demo_shop.py",
    "tests/acceptance/test_page_live.py",
    "tests/acceptance/test_readme.py",
    "tests/integration/test_bench_smoke.py",
    "tests/integration/test_pinned.py",
    "tests/integration/test_rights_in_the_lake.py",
    "tests/integration/test_sql.py",
    "tests/unit/test_packages.py",
)


class Together(LoadScopeScheduling):
    """Give each test to any worker, except for modules that stay together.

    xdist's own groups do nothing under this pytest.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if module in TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """Choose how tests are distributed to the workers."""
    return Together(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of langchain-tests, whose plugins are not loaded."""
    for marker in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{marker}: of langchain-tests, in none of our tests")


@pytest.fixture(scope="session")
def small_tables() -> dict[str, str]:
    """Write options for small tables."""
    from support.hudi import SMALL_TABLES

    return dict(SMALL_TABLES)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all tests share."""
    yield start_session(
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            # Two sessions share two cores, so parallel garbage collection would slow both down.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            # Tables of ten rows: compiling a query costs more than interpreting it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
    )
    stop_session()
