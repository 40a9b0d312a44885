"""An S3 server for all tests here, a bucket for each, and a Spark session that reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from lakewake.setup import S3, ensure_jars
from lakewake.spark.java import find_java
from lakewake.spark.session import running_session, start_session, stop_session
from support.gateway import Gateway, find_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The program of the server."""
    found = find_program(tmp_path_factory.mktemp("bin"))
    if found is None:
        pytest.skip("there is neither a versitygw nor the Go that builds it")
    return found


@pytest.fixture(scope="session")
def gateway(program: Path, tmp_path_factory) -> Iterator[Gateway]:
    """The server, and its address in the environment."""
    server = Gateway(program, tmp_path_factory.mktemp("gateway"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield server
    server.stop()


@pytest.fixture
def bucket(gateway: Gateway) -> str:
    """A new bucket."""
    name = f"lake-{next(_numbers)}"
    gateway.files().create_dir(name)
    return name


@pytest.fixture
def files(gateway: Gateway) -> fs.FileSystem:
    """The file system of the buckets."""
    return gateway.files()


@pytest.fixture(scope="session")
def spark(gateway: Gateway) -> Iterator[SparkSession]:
    """A session with s3a://, which the session of the other tests lacks."""
    if running_session() is not None:
        pytest.skip("a session without s3a:// runs in this process: run tests/objectstore alone")
    ensure_jars(S3, find_java(), print)
    yield start_session(
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
        tables=["s3a://"],
    )
    stop_session()
