"""Starting a JVM directly: the command that Spark's launcher would build, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.spark.files import spark_home
from lakewake.spark.java import find_java
from lakewake.spark.jvm import MAIN, ask_launcher, is_plain, java_command, start

HOME = Path("/spark")


def test_the_command_holds_memory_class_path_options_and_settings_in_the_launchers_order() -> None:
    options = {
        "spark.master": "local[*]",
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": "/hudi.jar",
        "spark.driver.extraJavaOptions": "-Da='b c' -Xss4m",
    }
    command = java_command(Path("/java"), HOME, options, ["--add-opens=x"], "/s3.jar")
    assert command[:7] == [
        "/java",
        "-cp",
        "/hudi.jar:/spark/conf:/spark/jars/*:/s3.jar",
        "-Xmx3g",
        "-Da=b c",
        "-Xss4m",
        "--add-opens=x",
    ]
    assert command[7:10] == [MAIN, "--conf", "spark.master=local[*]"]
    assert command[-1] == "pyspark-shell"


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ({}, {"SPARK_SUBMIT_OPTS": "-Dx"}),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--jars x.jar pyspark-shell"}),
        ({"spark.driver.extraLibraryPath": "/lib"}, {}),
    ],
)
def test_settings_that_the_launcher_reads_require_the_launcher(
    options: dict[str, str], environment: dict[str, str]
) -> None:
    assert not is_plain(HOME, options, environment)
    assert is_plain(HOME, {"spark.driver.memory": "2g"}, {"SPARK_HOME": "/spark", "PATH": "/bin"})


def test_variables_left_by_pyspark_do_not_require_the_launcher() -> None:
    left = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536", "SPARK_HOME": "/spark"}
    assert is_plain(HOME, {}, left)


def test_configuration_files_of_spark_require_the_launcher(tmp_path: Path) -> None:
    assert is_plain(tmp_path, {}, {})
    (tmp_path / "conf").mkdir()
    assert not is_plain(tmp_path, {}, {})


def test_the_launcher_is_asked_for_the_options_it_adds() -> None:
    options = ask_launcher(find_java().home / "bin" / "java", spark_home())
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in options
    assert not any(o.startswith(("-Xmx", "-cp")) for o in options)


def test_a_jvm_that_ends_at_once_is_an_error_without_waiting(tmp_path: Path) -> None:
    done = []
    with (tmp_path / "log").open("wb") as log, pytest.raises(OSError, match="ended"):
        start(["false"], log, lambda: done.append(1))
    assert done == [1]
