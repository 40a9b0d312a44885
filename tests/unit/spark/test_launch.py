"""What a JVM finds in its environment, and what is shown of one that does not start."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from lakewake.spark.files import Files
from lakewake.spark.java import Java
from lakewake.spark.launch import complaint, launch_environment, not_started, start_jvm

JAVA = Java(Path("/java"), "17.0.9", "PATH")


def test_workers_of_a_local_session_run_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    monkeypatch.setenv("SPARK_HOME", "/other/spark")
    with launch_environment({"spark.master": "local[2]"}, JAVA):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["JAVA_HOME"] == "/java"
        assert Path(os.environ["SPARK_HOME"], "bin", "spark-submit").is_file()


def test_a_local_session_offers_its_pages_to_this_machine_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with launch_environment({"spark.master": "local[2]"}, JAVA):
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    with launch_environment({"spark.master": "yarn"}, JAVA):
        assert "SPARK_LOCAL_IP" not in os.environ
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.7")
    with launch_environment({"spark.master": "local[2]"}, JAVA):
        assert os.environ["SPARK_LOCAL_IP"] == "192.0.2.7"


def test_workers_of_a_cluster_run_the_configured_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/env/python")
    monkeypatch.setenv("SPARK_HOME", "/cluster/spark")
    with launch_environment({"spark.master": "yarn"}, JAVA):
        assert os.environ["PYSPARK_PYTHON"] == "/env/python"
        assert os.environ["SPARK_HOME"] == "/cluster/spark"
    with launch_environment({"spark.master": "yarn", "spark.pyspark.python": "/opt/python"}, JAVA):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_the_environment_is_restored_once_spark_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    before = dict(os.environ)
    with launch_environment({"spark.master": "local"}, JAVA):
        assert dict(os.environ) != before
    assert dict(os.environ) == before


def test_hadoop_finds_the_credentials_file_of_amazons_other_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/my/credentials")
    with launch_environment({"spark.master": "local[2]"}, JAVA):
        assert os.environ["AWS_CREDENTIAL_PROFILES_FILE"] == "/my/credentials"
    assert "AWS_CREDENTIAL_PROFILES_FILE" not in os.environ


def test_a_local_session_has_the_jars_of_s3_at_the_end_of_its_class_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/mine/*")
    with launch_environment({"spark.master": "local[2]"}, JAVA, [Path("/jars/a.jar")]):
        assert os.environ["SPARK_DIST_CLASSPATH"] == "/jars/a.jar:/mine/*"
    assert os.environ["SPARK_DIST_CLASSPATH"] == "/mine/*"


def test_a_jvm_that_cannot_start_is_reported_with_its_own_message(tmp_path: Path) -> None:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError

    files = Files(tmp_path, tmp_path / "bundle.jar")
    nowhere = Java(tmp_path / "no-java", "17", "JAVA_HOME")
    with (
        launch_environment({"spark.master": "local"}, nowhere),
        pytest.raises(PySparkRuntimeError) as caught,
    ):
        start_jvm(SparkConf(loadDefaults=False), files, verbose=False)
    error = not_started(files, caught.value, verbose=False)
    assert "no-java" in error.fact
    assert "-v" in error.hint


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("loading\nException in thread main: X\n\tat a.b.C\n", "Exception in thread main: X"),
        ("calling None.x\n: org.apache.Sad: no\n", "calling None.x"),
        ("calling None.x\n: org.a.SadException: no\n at b\n", "org.a.SadException: no"),
        ("Invalid heap size: -Xmx1k\nError: Could not create it\n", "Invalid heap size: -Xmx1k"),
        ("\n", ""),
    ],
)
def test_the_most_telling_line_of_a_failed_program_is_shown(output: str, line: str) -> None:
    assert complaint(output) == line


def test_only_the_log_lines_of_py4j_are_left_out() -> None:
    from py4j import java_gateway

    from lakewake.spark.launch import _not_from_py4j

    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "message", None, None)

    assert not _not_from_py4j(record(java_gateway.__file__))
    assert _not_from_py4j(record(__file__))
