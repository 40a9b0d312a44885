"""Which options a session gets, decided without starting one."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

import pytest

from lakewake.errors import SetupError
from lakewake.spark.jars import (
    BUNDLE,
    S3_JARS,
    bundle_jar,
    jar_path,
    storage_jars,
    storage_options,
)
from lakewake.spark.java import Java
from lakewake.spark.session import (
    EXTENSION,
    HUDI_OPTIONS,
    Files,
    archive_path,
    complaint,
    is_local,
    launch_environment,
    not_started,
    session_options,
    start_jvm,
)

FILES = Files(Path("/scratch"), Path("/jars/bundle.jar"), Path("/jvm/key.jsa"))
JAVA = Java(Path("/java"), "17.0.9", "PATH")


def options(given: dict[str, str] | None = None, files: Files = FILES, verbose: bool = False):
    return session_options(given or {}, files, verbose=verbose)


def java_options(given: dict[str, str] | None = None, files: Files = FILES, verbose: bool = False):
    return shlex.split(options(given, files, verbose)["spark.driver.extraJavaOptions"])


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
    ],
)
def test_only_a_master_inside_this_jvm_is_local(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_hudis_four_settings_are_in_every_session() -> None:
    for master in ("local[2]", "yarn"):
        assert HUDI_OPTIONS.items() <= options({"spark.master": master}).items()


def test_settings_of_the_user_win_over_ours() -> None:
    given = {"spark.driver.memory": "7g", "spark.ui.enabled": "true", "spark.sql.extensions": "x.Y"}
    assert given.items() <= options(given).items()


def test_java_options_of_the_user_come_after_ours() -> None:
    ours = java_options()
    both = java_options({"spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=4"})
    assert both == [*ours, "-Xss4m", "-XX:TieredStopAtLevel=4"]


def test_a_local_session_has_the_bundle_on_its_class_path_and_copies_it_nowhere() -> None:
    made = options({"spark.driver.extraClassPath": "/mine.jar"})
    assert made["spark.driver.extraClassPath"] == "/jars/bundle.jar:/mine.jar"
    assert "spark.jars" not in made


def test_a_cluster_is_sent_the_bundle_beside_the_users_jars() -> None:
    made = options({"spark.master": "yarn", "spark.jars": "/mine.jar"})
    assert made["spark.jars"] == "/jars/bundle.jar,/mine.jar"
    assert "spark.driver.extraClassPath" not in made


def test_a_hudi_bundle_of_the_user_replaces_ours() -> None:
    for key in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"):
        made = options({key: "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1"})
        assert not any("/jars/bundle.jar" in value for value in made.values())


def test_a_cluster_keeps_its_own_addresses_and_folders() -> None:
    made = options({"spark.master": "spark://host:7077"})
    for key in ("spark.driver.bindAddress", "spark.driver.host", "spark.local.dir"):
        assert key not in made


def test_nothing_is_written_to_the_current_folder() -> None:
    made = options()
    assert made["spark.sql.warehouse.dir"] == "file:///scratch/warehouse"
    assert made["spark.local.dir"] == "/scratch/local"
    assert made["spark.hadoop.hadoop.tmp.dir"] == "/scratch/hadoop"
    assert "-Dderby.system.home=/scratch/derby" in java_options()


def test_a_quiet_session_has_our_logging_and_a_verbose_one_sparks() -> None:
    ours = "-Dlog4j2.configurationFile=file:///scratch/log4j2.properties"
    assert ours in java_options()
    assert ours not in java_options(verbose=True)


def test_the_archive_is_used_if_it_exists_and_a_broken_one_does_no_harm() -> None:
    with_archive = java_options()
    assert "-XX:SharedArchiveFile=/jvm/key.jsa" in with_archive
    assert "-Xshare:auto" in with_archive
    without = java_options(files=Files(FILES.scratch, FILES.bundle))
    assert not any("share" in option.lower() for option in without)


def test_folders_with_spaces_stay_one_option() -> None:
    files = Files(Path("/my scratch"), Path("/b.jar"), Path("/my jvm/key.jsa"))
    made = java_options(files=files)
    assert "-Dderby.system.home=/my scratch/derby" in made
    assert "-XX:SharedArchiveFile=/my jvm/key.jsa" in made
    assert "-Dlog4j2.configurationFile=file:///my%20scratch/log4j2.properties" in made


def test_a_missing_bundle_names_the_setup_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        bundle_jar()
    assert str(tmp_path) in caught.value.fact
    assert "lakewake setup" in caught.value.hint


def test_the_bundle_is_found_by_name_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    jar = tmp_path / "jars" / "hudi-spark3.5-bundle_2.12-1.2.0.jar"
    jar.parent.mkdir()
    jar.touch()
    assert bundle_jar() == jar
    assert BUNDLE.endswith(":hudi-spark3.5-bundle_2.12:1.2.0")


def test_another_java_or_bundle_has_another_archive(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jar", tmp_path / "b.jar"
    first.touch()
    second.touch()
    newer = Java(JAVA.home, "17.0.15", JAVA.origin)
    assert archive_path(JAVA, first) == archive_path(JAVA, first)
    assert (
        len({archive_path(JAVA, first), archive_path(newer, first), archive_path(JAVA, second)})
        == 3
    )


def test_a_replaced_bundle_has_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    before = archive_path(JAVA, jar)
    os.utime(jar, ns=(1, 1))
    assert archive_path(JAVA, jar) != before


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

    from lakewake.spark.session import _not_from_py4j

    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "message", None, None)

    assert not _not_from_py4j(record(java_gateway.__file__))
    assert _not_from_py4j(record(__file__))


def test_our_extension_is_the_one_that_a_callers_session_is_checked_for() -> None:
    assert HUDI_OPTIONS["spark.sql.extensions"] == EXTENSION


ON_S3 = ("lake/wines", "s3a://lake/wines")


@pytest.fixture
def s3_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """A Lakewake home with the jars of s3a:// in it."""
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    jars = tuple(jar_path(coordinates) for coordinates in S3_JARS)
    jars[0].parent.mkdir()
    for jar in jars:
        jar.touch()
    return jars


def test_hadoop_finds_the_credentials_file_of_amazons_other_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/my/credentials")
    with launch_environment({"spark.master": "local[2]"}, JAVA):
        assert os.environ["AWS_CREDENTIAL_PROFILES_FILE"] == "/my/credentials"
    assert "AWS_CREDENTIAL_PROFILES_FILE" not in os.environ


@pytest.mark.usefixtures("s3_fetched")
def test_a_session_for_local_tables_gets_nothing_for_s3() -> None:
    assert storage_jars({}, ["lake/wines"], local=True) == ()
    assert storage_options(["lake/wines"]) == {}


def test_a_session_for_a_table_on_s3_gets_the_s3_jars(s3_fetched: tuple[Path, ...]) -> None:
    assert storage_jars({}, ON_S3, local=True) == s3_fetched
    assert storage_jars({}, ON_S3, local=False) == s3_fetched


@pytest.mark.usefixtures("s3_fetched")
def test_a_hadoop_aws_of_the_user_replaces_ours() -> None:
    own = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.3.6"}
    assert storage_jars(own, ON_S3, local=True) == ()


def test_missing_s3_jars_are_named_with_the_setup_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        storage_jars({}, ON_S3, local=True)
    assert "org.apache.hadoop:hadoop-aws:3.3.4" in caught.value.fact
    assert "lakewake setup --s3" in caught.value.hint
    assert storage_jars({}, ON_S3, local=False) == ()


def test_a_cluster_is_sent_the_jars_of_s3_beside_the_bundle() -> None:
    files = Files(FILES.scratch, FILES.bundle, storage=(Path("/jars/a.jar"), Path("/jars/b.jar")))
    made = options({"spark.master": "yarn", "spark.jars": "/mine.jar"}, files)
    assert sorted(made["spark.jars"].split(",")) == [
        "/jars/a.jar",
        "/jars/b.jar",
        "/jars/bundle.jar",
        "/mine.jar",
    ]


def test_a_local_session_has_the_jars_of_s3_at_the_end_of_its_class_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/mine/*")
    with launch_environment({"spark.master": "local[2]"}, JAVA, [Path("/jars/a.jar")]):
        assert os.environ["SPARK_DIST_CLASSPATH"] == "/jars/a.jar:/mine/*"
    assert os.environ["SPARK_DIST_CLASSPATH"] == "/mine/*"
