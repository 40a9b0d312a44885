"""Starts the JVM of a local session directly, as Spark's own launcher would.

`spark-submit` runs three shell scripts and a JVM that prints the command line of the real one,
which takes a quarter of a second at every start. `lakewake setup` asks that launcher once and saves
its answer.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lakewake.errors import SetupError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

MAIN = "org.apache.spark.deploy.SparkSubmit"
#: What `MAIN` runs for PySpark, after it has made system properties of its options.
SERVER = "org.apache.spark.api.python.PythonGatewayServer"
#: Options with which `MAIN` does nothing else.
PASSED_ON = (
    "spark.app.name",
    "spark.driver.",
    "spark.executor.",
    "spark.hadoop.",
    "spark.jars.ivy",
    "spark.kryo.",
    "spark.local.dir",
    "spark.master",
    "spark.serializer",
    "spark.sql.",
    "spark.ui.",
)
#: Settings that the launcher reads, other than the three that `java_command` handles.
FOREIGN_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraLibraryPath")
#: Variables that change the launcher's answer, in addition to all `SPARK_` variables that are not
#: in `KNOWN_VARIABLES`.
FOREIGN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
#: The last two are set by PySpark when a session starts. Later child processes inherit them: the
#: JVM that replaces one that died, and every `lakewake` that a notebook or a test runs.
KNOWN_VARIABLES = (
    "SPARK_HOME",
    "SPARK_DIST_CLASSPATH",
    "SPARK_LOCAL_IP",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
)
POLL_SECONDS = 0.01


def is_plain(spark_home: Path, options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether only our own options decide how the JVM is started."""
    variables = [v for v in environment if v.startswith("SPARK_") and v not in KNOWN_VARIABLES]
    foreign = [v for v in FOREIGN_VARIABLES if environment.get(v)]
    given = [o for o in FOREIGN_OPTIONS if o in options]
    return not (variables or foreign or given or (spark_home / "conf").exists())


def ask_launcher(java: Path, spark_home: Path) -> list[str]:
    """The Java options that Spark's launcher adds by itself.

    Raises:
        SetupError: it did not answer.
    """
    command = [
        str(java), "-Xmx128m", "-cp", f"{spark_home}/jars/*", "org.apache.spark.launcher.Main",
        MAIN, "--master", "local", "pyspark-shell",
    ]  # fmt: skip
    # Without the Scala version it does not find the jars.
    scala = next((spark_home / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
    environment = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": scala}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    words = [word.strip("\n") for word in answer.stdout.split("\0")]
    if answer.returncode or MAIN not in words:
        raise SetupError(
            "Spark's launcher did not answer", hint="run it with -v to see Spark's output"
        )
    # Before the class: java -cp PATH -Xmx1g OPTIONS…
    return [w for w in words[words.index("-cp") + 2 : words.index(MAIN)] if w[:4] != "-Xmx"]


def java_command(
    java: Path, spark_home: Path, options: Mapping[str, str], launcher: Sequence[str], last: str
) -> list[str]:
    """The command line of the JVM.

    Args:
        launcher: the options that `ask_launcher` returned.
        last: the end of the class path.
    """
    first = options.get("spark.driver.extraClassPath", "")
    paths = [first, f"{spark_home}/conf", f"{spark_home}/jars/*", last]
    return [
        str(java),
        "-cp",
        ":".join(path for path in paths if path),
        f"-Xmx{options.get('spark.driver.memory', '1g')}",
        *shlex.split(options.get("spark.driver.extraJavaOptions", "")),
        *launcher,
        *_program(options),
    ]


def _program(options: Mapping[str, str]) -> list[str]:
    """The program with its options. Spark's own one first needs 0.1 s to find the other one."""
    if all(key.startswith(PASSED_ON) for key in options):
        return [*(f"-D{key}={value}" for key, value in options.items()), SERVER]
    given = (word for key, value in options.items() for word in ("--conf", f"{key}={value}"))
    return [MAIN, *given, "pyspark-shell"]


@dataclass(frozen=True)
class Starting:
    """A JVM that has been started. It writes to `connection` how to connect to it."""

    process: subprocess.Popen[bytes]
    connection: Path

    def end(self) -> None:
        """Kill the JVM, to which nothing has connected."""
        self.process.kill()
        self.process.communicate()


def start(command: list[str], output: IO[bytes], folder: Path) -> Starting:
    """Start the JVM, and do not wait for it.

    Args:
        output: where the JVM's own output goes.
        folder: an empty folder that only this user can read.

    Raises:
        OSError: the program cannot be run.
    """
    connection = folder / "connection"
    process = subprocess.Popen(
        command,
        # The JVM ends when this pipe is closed, at the latest when this process ends.
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
            "PYTHONHASHSEED": "0",
        },
        # Ctrl-C in a terminal goes to us only, and we end the JVM.
        process_group=0,
    )
    return Starting(process, connection)


def connect(starting: Starting, beside: Callable[[], None]) -> JavaGateway:
    """Connect to the JVM as PySpark does.

    Args:
        beside: called while the JVM starts, which takes about a second.

    Raises:
        OSError: the JVM ended before it accepted a connection.
    """
    beside()
    # The import is slow too, so it happens while the JVM starts.
    import pyspark.sql  # noqa: F401

    while not starting.connection.is_file():
        if starting.process.poll() is not None:
            raise OSError("the JVM ended before it accepted a connection")
        time.sleep(POLL_SECONDS)
    content = starting.connection.read_bytes()
    starting.connection.unlink()
    # Two numbers of four bytes each: the port, and the length of the secret that follows.
    port, secret = int.from_bytes(content[:4]), content[8:].decode()
    gateway = _gateway(port, secret)
    gateway.proc = starting.process
    return gateway


def _gateway(port: int, secret: str) -> JavaGateway:
    from pyspark.java_gateway import launch_gateway

    # With these variables it launches nothing, and only connects.
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        return launch_gateway()
    finally:
        for name in variables:
            del os.environ[name]
