"""Starting a JVM directly: the command that Spark's launcher would build, without running it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakewake.spark.files import Files, spark_home
from lakewake.spark.java import find_java
from lakewake.spark.jvm import MAIN, SERVER, ask_launcher, connect, is_plain, java_command, start
from lakewake.spark.options import session_options

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
    assert command[7:] == [*(f"-D{key}={value}" for key, value in options.items()), SERVER]


def test_options_that_spark_submit_acts_on_are_left_to_it() -> None:
    options = {"spark.master": "local[*]", "spark.jars": "/mine.jar"}
    command = java_command(Path("/java"), HOME, options, [], "")
    given = ["--conf", "spark.master=local[*]", "--conf", "spark.jars=/mine.jar"]
    assert command[command.index(MAIN) :] == [MAIN, *given, "pyspark-shell"]


def test_a_session_without_options_of_the_user_does_not_need_spark_submit(tmp_path: Path) -> None:
    options = session_options({}, Files(tmp_path, tmp_path / "hudi.jar"), verbose=False)
    assert java_command(Path("/java"), HOME, options, [], "")[-1] == SERVER


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
        connect(start(["false"], log, tmp_path), lambda: done.append(1))
    assert done == [1]


def test_a_jvm_that_is_not_needed_is_ended(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        starting = start(["cat"], log, tmp_path)
    assert starting.process.poll() is None
    starting.end()
    assert starting.process.returncode == -signal.SIGKILL
