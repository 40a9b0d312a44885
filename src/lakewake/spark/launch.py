"""Starts a JVM and a session in it, quietly, and reports why it did not start."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.errors import SetupError
from lakewake.spark import jvm
from lakewake.spark.files import Files, spark_home
from lakewake.spark.java import Java
from lakewake.spark.options import is_local

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_ERROR = re.compile(r"ERROR\b|Exception in |[\w.]+(Exception|Error):")
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def launch(
    options: Mapping[str, str],
    files: Files,
    java: Java,
    *,
    verbose: bool,
    beside: Callable[[], None] = lambda: None,
    starting: jvm.Starting | None = None,
) -> SparkSession:
    """Start a JVM with exactly these options and a session in it.

    Args:
        beside: called while the JVM starts.
        starting: the JVM, if `begin` has started it with the same arguments.

    Raises:
        SetupError: it did not start.
    """
    try:
        with launch_environment(options, java, files.storage), _signals_kept():
            gateway = running_gateway()
            if gateway is None:
                starting = starting or begin(options, files, java, verbose=verbose)
                gateway = _connect(options, files, verbose, beside, starting)
            return _session(options, gateway, verbose=verbose)
    except _spark_errors() as error:
        raise not_started(files, error, verbose=verbose) from error


def _spark_errors() -> tuple[type[Exception], ...]:
    """The errors of a failed start. Imported only then: the JVM starts before PySpark is loaded."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return OSError, Py4JError, PySparkException


def running_gateway() -> JavaGateway | None:
    """The connection to the JVM of this process. Does not import PySpark: the JVM starts first."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._gateway


def begin(
    options: Mapping[str, str], files: Files, java: Java, *, verbose: bool
) -> jvm.Starting | None:
    """Start a JVM directly, and do not wait for it.

    Returns:
        None if Spark's launcher has to start it: something of the caller's decides how.

    Raises:
        OSError: Java cannot be run.
    """
    home = spark_home()
    with launch_environment(options, java, files.storage):
        plain = is_local(options["spark.master"]) and jvm.is_plain(home, options, os.environ)
        if files.launcher is None or verbose or not plain:
            return None
        last = os.environ["SPARK_DIST_CLASSPATH"]
        program = java.home / "bin" / "java"
        command = jvm.java_command(program, home, options, files.launcher, last)
        _quiet(files)
        with files.log.open("ab") as log:
            return jvm.start(command, log, files.scratch)


def _connect(
    options: Mapping[str, str],
    files: Files,
    verbose: bool,
    beside: Callable[[], None],
    starting: jvm.Starting | None,
) -> JavaGateway:
    """Connect to the JVM that is starting; if there is none, Spark's launcher starts one."""
    if starting is not None:
        return jvm.connect(starting, beside)
    from pyspark import SparkConf

    beside()
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    return start_jvm(conf, files, verbose=verbose)


def start_jvm(conf: SparkConf, files: Files, *, verbose: bool) -> JavaGateway:
    """Start the JVM by Spark's launcher; its output goes to a file, or to stderr if `verbose`."""
    from pyspark.java_gateway import launch_gateway

    if verbose:
        return launch_gateway(conf, {"stdout": sys.__stderr__})
    _quiet(files)
    with files.log.open("ab") as log, warnings.catch_warnings():
        # Lance warns about every fork; this one becomes Java at once and never uses Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return launch_gateway(conf, {"stdout": log, "stderr": subprocess.STDOUT})


def _session(options: Mapping[str, str], gateway: JavaGateway, *, verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    context = SparkContext(conf=conf, gateway=gateway)
    if not verbose:
        # It would print a traceback for a connection that ended with the JVM.
        context._accumulatorServer.handle_error = lambda *_: None
    return SparkSession(context)


def _quiet(files: Files) -> None:
    files.logging.write_text(_LOGGING)
    # Py4J raises every error that it logs, so its log lines only repeat the error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger comes from elsewhere.

    Py4J logs a Ctrl-C and a broken connection to the root logger before it raises them.
    """
    return Path(record.pathname).parent.name != "py4j"


def not_started(files: Files, error: Exception, *, verbose: bool) -> SetupError:
    """The error for a failed start, with the JVM's own message if there is one."""
    output = "" if verbose or not files.log.is_file() else files.log.read_text(errors="replace")
    reason = complaint(output) or complaint(str(error)) or type(error).__name__
    return SetupError(f"Spark did not start: {reason}", hint="run it with -v to see Spark's output")


def complaint(output: str) -> str:
    """The most useful line of a failed program's output: its first error, else its first line."""
    lines = [line.strip(": \t") for line in output.splitlines() if line.strip()]
    errors = (line for line in lines if _ERROR.match(line))
    return next(errors, lines[0] if lines else "")


@contextlib.contextmanager
def launch_environment(
    options: Mapping[str, str], java: Java, storage: Sequence[Path] = ()
) -> Iterator[None]:
    """Set the variables that Spark's launcher and Python workers read, while a session starts."""
    values = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    if is_local(options["spark.master"]):
        values["SPARK_HOME"] = str(spark_home())
        # If Spark's web UI is turned on, only this variable decides where it listens.
        values["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
        # Appended to the class path: a class-data archive covers only its beginning.
        last = [*map(str, storage), os.environ.get("SPARK_DIST_CLASSPATH", "")]
        values["SPARK_DIST_CLASSPATH"] = ":".join(part for part in last if part)
    else:
        values["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if python := options.get("spark.pyspark.python"):
        values["PYSPARK_PYTHON"] = python
    if keys := os.environ.get("AWS_SHARED_CREDENTIALS_FILE"):
        # Amazon's SDK in Hadoop only knows the variable's former name.
        values["AWS_CREDENTIAL_PROFILES_FILE"] = keys
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the SIGINT handler that PySpark replaces: the program decides how it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
