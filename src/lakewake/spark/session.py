"""The Spark session: which options it gets, how it starts quietly, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.config.home import lakewake_home
from lakewake.errors import LakewakeError, SetupError
from lakewake.spark import jvm
from lakewake.spark.jars import BUNDLE, brings, bundle_jar, storage_jars, storage_options
from lakewake.spark.java import Java, find_java
from lakewake.spark.scratch import make_folder, remove_folder

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: Part of the archive's key; change it when the content of the class-data archive changes.
ARCHIVED = "a write and its syncs"
EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"

#: Options that Hudi requires in every session.
HUDI_OPTIONS: Mapping[str, str] = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}

#: Turns off Hudi's timeline server, which writers start by default: it listens on all interfaces,
#: asks for no key and deletes folders on request. Without it, markers must be separate files.
WITHOUT_SERVER: Mapping[str, str] = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}

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


@dataclass(frozen=True)
class Files:
    """The files of a session.

    Attributes:
        scratch: the session's own folder, removed when the process ends.
        bundle: the Hudi bundle.
        archive: the class-data archive; None if there is none.
        storage: jars for the file systems of the tables.
        launcher: the Java options that Spark's launcher adds; None if it has not been asked.
    """

    scratch: Path
    bundle: Path
    archive: Path | None = None
    storage: tuple[Path, ...] = ()
    launcher: tuple[str, ...] | None = None

    @property
    def log(self) -> Path:
        """The JVM's own output, if it does not go to the terminal."""
        return self.scratch / "jvm.log"

    @property
    def logging(self) -> Path:
        """The logging configuration of a quiet session."""
        return self.scratch / "log4j2.properties"


def is_local(master: str) -> bool:
    """Whether a master address means this process's own machine and JVM."""
    return master.split("[", 1)[0] == "local"


def local_options(files: Files) -> dict[str, str]:
    """Options for one machine: short jobs, small shuffles, not reachable from other machines."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Driver and executor are one process here. If the machine has slept, heartbeats are missing
        # and the JVM would end itself ten minutes later.
        "spark.executor.heartbeat.maxFailures": str(2**31 - 1),
        "spark.hadoop.hadoop.tmp.dir": str(files.scratch / "hadoop"),
        "spark.local.dir": str(files.scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
    }


def cluster_options() -> dict[str, str]:
    """Options for many machines: Python workers get rows in small batches."""
    return {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}


def session_options(given: Mapping[str, str], files: Files, *, verbose: bool) -> dict[str, str]:
    """All options of a session. The user's take precedence over ours.

    Java options and class paths are the exception: both are kept.
    """
    local = is_local(given.get("spark.master", "local[*]"))
    options = {
        "spark.master": "local[*]",
        "spark.app.name": "lakewake",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (files.scratch / "warehouse").as_uri(),
        "spark.jars.ivy": str(files.scratch / "ivy"),
        **HUDI_OPTIONS,
        **(local_options(files) if local else cluster_options()),
        **given,
    }
    java = " ".join(_java_options(files, local=local, verbose=verbose))
    _join(options, "spark.driver.extraJavaOptions", " ", java, given)
    if not brings(given, "hudi-spark"):
        # In local mode the class path is enough: it avoids copying the jar at every start, and
        # class-data archives only cover the class path.
        option = ("spark.driver.extraClassPath", ":") if local else ("spark.jars", ",")
        _join(options, *option, str(files.bundle), given)
    if files.storage and not local:
        _join(options, "spark.jars", ",", ",".join(map(str, files.storage)), dict(options))
    return options


def _join(
    options: dict[str, str], key: str, separator: str, ours: str, given: Mapping[str, str]
) -> None:
    options[key] = separator.join(part for part in (ours, given.get(key, "")) if part)


def _java_options(files: Files, *, local: bool, verbose: bool) -> Iterator[str]:
    yield shlex.quote(f"-Dderby.system.home={files.scratch / 'derby'}")
    # Hudi measures object sizes with a library that spends seconds trying to attach to its own JVM.
    # Its estimates are as good without that.
    yield "-Djol.skipDynamicAttach=true"
    yield "-Djol.skipHotspotSAAttach=true"
    if not verbose:
        yield f"-Dlog4j2.configurationFile={files.logging.as_uri()}"
    if local:
        # The JVM is killed at the end, and leaves native libraries and spilled rows behind.
        yield shlex.quote(f"-Djava.io.tmpdir={files.scratch}")
        # Most commands end before the optimising compiler pays off.
        yield "-XX:TieredStopAtLevel=1"
        # Without that compiler Java keeps room for 48 MB of code. A watch fills it within minutes,
        # and from then on code is thrown away and compiled again. This much is Java's usual room.
        yield "-XX:ReservedCodeCacheSize=240m"
    if local and files.archive is not None:
        yield "-Xshare:auto"
        yield shlex.quote(f"-XX:SharedArchiveFile={files.archive}")


def archive_path(java: Java, bundle: Path) -> Path:
    """The path of the class-data archive for this Java, Spark and bundle; it may not exist.

    The JVM refuses an archive that was made from other files. So each set of files has its own key.
    """
    parts = [ARCHIVED, str(java.home), java.version]
    for path in (spark_home() / "jars", bundle):
        parts += [str(path), str(path.stat().st_mtime_ns)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return lakewake_home() / "jvm" / f"{key}.jsa"


def launcher_note(archive: Path) -> Path:
    """The file in which `lakewake setup` saves the answer of this Spark's launcher."""
    return archive.with_suffix(".json")


def spark_home() -> Path:
    """The folder of the installed PySpark."""
    # Not imported: that takes longer than the rest of a setup that has nothing to do.
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SetupError("PySpark is not installed", hint="run `pip install lakewake`")
    return Path(found.origin).parent


_ours: SparkSession | None = None
#: Whether the JVM under `_ours` was started for it; otherwise it is the caller's.
_own_jvm = False


def start_session(
    options: Mapping[str, str],
    *,
    tables: Collection[str] = (),
    verbose: bool = False,
    beside: Callable[[], None] = lambda: None,
) -> SparkSession:
    """The session of this process: the running one, or a new one with these options.

    Args:
        tables: a new session gets the jars and options that these tables' storage needs.
        beside: done in a thread while a new session starts. Its errors are ignored.

    Raises:
        SetupError: Java or a jar is missing, Spark did not start, or the running session has no
            Hudi.
    """
    running = running_session()
    if running is not None:
        check_session(running)
        return running
    java = find_java()
    bundle = bundle_jar()
    archive = archive_path(java, bundle)
    local = is_local(options.get("spark.master", "local[*]"))
    storage = storage_jars(options, tables, local=local)
    given = {**storage_options(tables), **options}
    used, launcher = _marked_as_used(archive), _read_note(launcher_note(archive))
    files = Files(scratch_folder(), bundle, used, storage, launcher)
    global _ours, _own_jvm
    _own_jvm = _no_gateway()
    options = session_options(given, files, verbose=verbose)
    _ours = launch(options, files, java, verbose=verbose, beside=_in_a_thread(beside))
    return _ours


def _in_a_thread(task: Callable[[], None]) -> Callable[[], None]:
    def quietly() -> None:
        with contextlib.suppress(LakewakeError):
            task()

    return threading.Thread(target=quietly, daemon=True).start


def _read_note(note: Path) -> tuple[str, ...] | None:
    try:
        return tuple(json.loads(note.read_text()))
    except (OSError, ValueError):
        return None


def _marked_as_used(archive: Path) -> Path | None:
    """The archive, touched, if it exists: only the most recently used archives are kept."""
    if not archive.is_file():
        return None
    with contextlib.suppress(OSError):
        archive.touch()
    return archive


def _no_gateway() -> bool:
    """Whether this process has no JVM yet."""
    return _gateway() is None


def _gateway() -> JavaGateway | None:
    """The connection to the JVM of this process. Does not import PySpark: the JVM starts first."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._gateway


def stop_session() -> None:
    """Stop the session that `start_session` started. A caller's own session is left alone."""
    global _ours
    if _ours is None:
        return
    if has_ended(_ours) or (_own_jvm and is_local(_ours.sparkContext.master)):
        _kill(_ours)
    else:
        _ours.stop()
    _ours = None


def _kill(spark: SparkSession) -> None:
    """Kill our own JVM, which may have ended already.

    It keeps everything in our scratch folder, and a regular stop takes 0.5 s.
    """
    process = spark.sparkContext._gateway.proc
    # In a thread: the server checks only every half second whether to end.
    threading.Thread(target=spark.sparkContext._accumulatorServer.shutdown, daemon=True).start()
    process.kill()
    process.stdin.close()
    process.wait()
    _forget()


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM that was started for a session is gone: killed, or out of memory."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget() -> None:
    """Make PySpark forget a session that cannot be stopped, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def running_session() -> SparkSession | None:
    """The session that this process has, or inside `spark-submit` the one it was started for."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted and "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None and not submitted:
        return None
    return SparkSession.builder.getOrCreate()


def check_session(spark: SparkSession) -> None:
    """Check that the caller's session can read Hudi tables.

    Raises:
        SetupError: it cannot. The hint names the options to start it with.
    """
    from py4j.java_gateway import JavaClass

    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        raise SetupError(
            "this Spark session has no JVM of its own (Spark Connect)",
            hint="pass a classic session, or none: Lakewake then starts its own",
        )
    needed = " ".join(f"--conf {key}={value}" for key, value in HUDI_OPTIONS.items())
    hint = f"start it with `spark-submit --packages {BUNDLE} {needed}`"
    if not isinstance(jvm.org.apache.hudi.common.table.HoodieTableMetaClient, JavaClass):
        raise SetupError("Hudi is not in this Spark session", hint=hint)
    if EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        raise SetupError("Hudi's extension is not set in this Spark session", hint=hint)


def launch(
    options: Mapping[str, str],
    files: Files,
    java: Java,
    *,
    verbose: bool,
    beside: Callable[[], None] = lambda: None,
) -> SparkSession:
    """Start a JVM with exactly these options and a session in it.

    Args:
        beside: called while the JVM starts.

    Raises:
        SetupError: it did not start.
    """
    try:
        with launch_environment(options, java, files.storage), _signals_kept():
            gateway = _gateway() or _start(options, files, java, verbose, beside)
            return _session(options, gateway, verbose=verbose)
    except _spark_errors() as error:
        raise not_started(files, error, verbose=verbose) from error


def _spark_errors() -> tuple[type[Exception], ...]:
    """The errors of a failed start. Imported only then: the JVM starts before PySpark is loaded."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return OSError, Py4JError, PySparkException


def _session(options: Mapping[str, str], gateway: JavaGateway, *, verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    context = SparkContext(conf=conf, gateway=gateway)
    if not verbose:
        # It would print a traceback for a connection that ended with the JVM.
        context._accumulatorServer.handle_error = lambda *_: None
    return SparkSession(context)


def _start(
    options: Mapping[str, str],
    files: Files,
    java: Java,
    verbose: bool,
    beside: Callable[[], None],
) -> JavaGateway:
    """Start a JVM, directly if nothing of the caller's decides how it is started."""
    home = spark_home()
    plain = is_local(options["spark.master"]) and jvm.is_plain(home, options, os.environ)
    if files.launcher is None or verbose or not plain:
        from pyspark import SparkConf

        beside()
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        return start_jvm(conf, files, verbose=verbose)
    last = os.environ["SPARK_DIST_CLASSPATH"]
    program = java.home / "bin" / "java"
    command = jvm.java_command(program, home, options, files.launcher, last)
    _quiet(files)
    with files.log.open("ab") as log:
        return jvm.start(command, log, beside)


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
    return SetupError(f"Spark did not start: {reason}", hint="use -v to see Spark's output")


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


def scratch_folder() -> Path:
    """A folder that is removed when the process ends, after the JVM has ended."""
    folder = make_folder()
    atexit.register(_end, folder)
    return folder


def _end(scratch: Path) -> None:
    # A JVM that died cannot be stopped; its folder is removed all the same.
    with contextlib.suppress(Exception):
        stop_session()
    # The JVM first: it could write to the folder again after its removal.
    with contextlib.suppress(Exception):
        shut_down_jvm()
    remove_folder(scratch)


def shut_down_jvm(gateway: JavaGateway | None = None, patience: float = 60) -> None:
    """End the given JVM, or this process's, and wait up to `patience` seconds for it."""
    from pyspark import SparkContext

    if gateway is None:
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    gateway.shutdown()
    # The JVM ends when its stdin is closed.
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience)
