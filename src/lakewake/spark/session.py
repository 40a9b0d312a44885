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

#: Changes with what goes into the class-data archive.
ARCHIVED = "a write and its syncs"
EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"

#: What Hudi asks of every session.
HUDI_OPTIONS: Mapping[str, str] = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}

#: Hudi's timeline server, which a writer starts unless told not to, listens on all interfaces, asks
#: for no key and deletes folders on request. Markers must then be files of their own.
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
    """The files a session is given.

    Attributes:
        scratch: a folder of its own, gone when the process ends.
        bundle: the Hudi bundle.
        archive: the class-data archive, None where there is none.
        storage: jars that bring the file systems of the tables.
        launcher: the Java options that Spark's launcher adds, None where it was not asked yet.
    """

    scratch: Path
    bundle: Path
    archive: Path | None = None
    storage: tuple[Path, ...] = ()
    launcher: tuple[str, ...] | None = None

    @property
    def log(self) -> Path:
        """Where the JVM's own output goes when it is kept from the terminal."""
        return self.scratch / "jvm.log"

    @property
    def logging(self) -> Path:
        """The logging configuration of a quiet session."""
        return self.scratch / "log4j2.properties"


def is_local(master: str) -> bool:
    """Whether a master address means this process's own machine and JVM."""
    return master.split("[", 1)[0] == "local"


def local_options(files: Files) -> dict[str, str]:
    """What fits one machine: short jobs over small shuffles, reachable from nowhere else."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Driver and executor are one process here. When the machine slept, they miss each other's
        # heartbeats, and the JVM would end itself ten minutes later.
        "spark.executor.heartbeat.maxFailures": str(2**31 - 1),
        "spark.hadoop.hadoop.tmp.dir": str(files.scratch / "hadoop"),
        "spark.local.dir": str(files.scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
    }


def cluster_options() -> dict[str, str]:
    """What fits many machines: rows come to Python workers in batches as small as theirs."""
    return {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}


def session_options(given: Mapping[str, str], files: Files, *, verbose: bool) -> dict[str, str]:
    """All options of a session: ours, then the person's, which win.

    Java options and class paths are the exception: those of both sides are kept.
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
        # In local mode the class path is enough, spares a copy of the jar at every start, and is
        # what a class-data archive can speak about.
        where = ("spark.driver.extraClassPath", ":") if local else ("spark.jars", ",")
        _join(options, *where, str(files.bundle), given)
    if files.storage and not local:
        _join(options, "spark.jars", ",", ",".join(map(str, files.storage)), dict(options))
    return options


def _join(
    options: dict[str, str], key: str, separator: str, ours: str, given: Mapping[str, str]
) -> None:
    options[key] = separator.join(part for part in (ours, given.get(key, "")) if part)


def _java_options(files: Files, *, local: bool, verbose: bool) -> Iterator[str]:
    yield shlex.quote(f"-Dderby.system.home={files.scratch / 'derby'}")
    # Hudi measures object sizes with a library that first tries for seconds to attach to its own
    # JVM, and then guesses as well without.
    yield "-Djol.skipDynamicAttach=true"
    yield "-Djol.skipHotspotSAAttach=true"
    if not verbose:
        yield f"-Dlog4j2.configurationFile={files.logging.as_uri()}"
    if local:
        # Killed at its end, the JVM leaves native libraries and spilled rows behind.
        yield shlex.quote(f"-Djava.io.tmpdir={files.scratch}")
        # Most commands end before the optimising compiler has paid for itself.
        yield "-XX:TieredStopAtLevel=1"
        # Without that compiler Java keeps room for 48 MB of code. A watch fills it within minutes,
        # and from then on code is thrown away and compiled again. This much is Java's usual room.
        yield "-XX:ReservedCodeCacheSize=240m"
    if local and files.archive is not None:
        yield "-Xshare:auto"
        yield shlex.quote(f"-XX:SharedArchiveFile={files.archive}")


def archive_path(java: Java, bundle: Path) -> Path:
    """Where the class-data archive of this Java, this Spark and this bundle is, or would be.

    The JVM refuses an archive of other files than those it runs; another key keeps the two apart.
    """
    parts = [ARCHIVED, str(java.home), java.version]
    for path in (spark_home() / "jars", bundle):
        parts += [str(path), str(path.stat().st_mtime_ns)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return lakewake_home() / "jvm" / f"{key}.jsa"


def launcher_note(archive: Path) -> Path:
    """Where `lakewake setup` keeps what Spark's launcher said, for the same Java and Spark."""
    return archive.with_suffix(".json")


def spark_home() -> Path:
    """The folder of the installed PySpark."""
    # Not imported: that takes longer than all the rest of a set-up that has nothing to do.
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SetupError("PySpark is not installed", hint="`pip install lakewake` brings it")
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
    """The session of this process: the one that runs already, or a new one with these options.

    Args:
        tables: what it is to reach; a new session gets what their storage needs.
        beside: done in a thread while a session starts. Its errors are not seen here.

    Raises:
        SetupError: Java or a jar is missing, Spark did not start, or the session that runs
            has no Hudi in it.
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
    """The archive if it is there; those that were used last are kept."""
    if not archive.is_file():
        return None
    with contextlib.suppress(OSError):
        archive.touch()
    return archive


def _no_gateway() -> bool:
    """Whether this process has no JVM yet."""
    return _gateway() is None


def _gateway() -> JavaGateway | None:
    """What talks to the JVM of this process. Does not import PySpark: a JVM starts before that."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._gateway


def stop_session() -> None:
    """Stop the session that `start_session` started. A caller's own is left alone."""
    global _ours
    if _ours is None:
        return
    if has_ended(_ours) or (_own_jvm and is_local(_ours.sparkContext.master)):
        _kill(_ours)
    else:
        _ours.stop()
    _ours = None


def _kill(spark: SparkSession) -> None:
    """End a JVM of our own at once: all it holds is in our scratch folder, and a stop takes 0.5 s.

    It may have ended already.
    """
    process = spark.sparkContext._gateway.proc
    # It looks every half a second whether it is to end.
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
    """Let go of a session that cannot be asked to stop, so that another one can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def running_session() -> SparkSession | None:
    """The session this process has or, inside `spark-submit`, was started for."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted and "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None and not submitted:
        return None
    return SparkSession.builder.getOrCreate()


def check_session(spark: SparkSession) -> None:
    """Whether a session of the caller's can read Hudi tables.

    Raises:
        SetupError: it cannot; says which options it was to be started with.
    """
    from py4j.java_gateway import JavaClass

    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        raise SetupError(
            "this Spark session has no JVM of its own (Spark Connect)",
            hint="give a classic session, or none: Lakewake then starts one",
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
        beside: called once the JVM is on its way.

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
    """What a start can fail with. Imported once it has failed: a JVM starts before PySpark is."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return OSError, Py4JError, PySparkException


def _session(options: Mapping[str, str], gateway: JavaGateway, *, verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    context = SparkContext(conf=conf, gateway=gateway)
    if not verbose:
        # It prints a traceback for a connection that ended with the JVM.
        context._accumulatorServer.handle_error = lambda *_: None
    return SparkSession(context)


def _start(
    options: Mapping[str, str],
    files: Files,
    java: Java,
    verbose: bool,
    beside: Callable[[], None],
) -> JavaGateway:
    """A JVM, by the short way where nothing of the caller's decides how it is started."""
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
    """Start the JVM; what it prints goes to a file, or to stderr when asked for."""
    from pyspark.java_gateway import launch_gateway

    if verbose:
        return launch_gateway(conf, {"stdout": sys.__stderr__})
    _quiet(files)
    with files.log.open("ab") as log, warnings.catch_warnings():
        # Lance warns of every fork; this one becomes Java at once and never touches Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return launch_gateway(conf, {"stdout": log, "stderr": subprocess.STDOUT})


def _quiet(files: Files) -> None:
    files.logging.write_text(_LOGGING)
    # Py4J raises what it logs, so its log lines only repeat an error, with a traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger comes from elsewhere.

    Py4J logs a Ctrl-C and a broken connection to the root logger before it raises them.
    """
    return Path(record.pathname).parent.name != "py4j"


def not_started(files: Files, error: Exception, *, verbose: bool) -> SetupError:
    """The error that says why there is no session, in the JVM's words where it left any."""
    said = "" if verbose or not files.log.is_file() else files.log.read_text(errors="replace")
    reason = complaint(said) or complaint(str(error)) or type(error).__name__
    return SetupError(f"Spark did not start: {reason}", hint="-v shows all that Spark says")


def complaint(output: str) -> str:
    """The line of a failed program's output that tells a person most: its first error or line."""
    lines = [line.strip(": \t") for line in output.splitlines() if line.strip()]
    errors = (line for line in lines if _ERROR.match(line))
    return next(errors, lines[0] if lines else "")


@contextlib.contextmanager
def launch_environment(
    options: Mapping[str, str], java: Java, storage: Sequence[Path] = ()
) -> Iterator[None]:
    """What Spark's launcher and its Python workers read from the environment, while it starts."""
    values = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    if is_local(options["spark.master"]):
        values["SPARK_HOME"] = str(spark_home())
        # Spark's own pages, where a person turns them on, go by this and by no option.
        values["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
        # The end of the class path: what a class-data archive speaks about stays in front of it.
        last = [*map(str, storage), os.environ.get("SPARK_DIST_CLASSPATH", "")]
        values["SPARK_DIST_CLASSPATH"] = ":".join(part for part in last if part)
    else:
        values["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if python := options.get("spark.pyspark.python"):
        values["PYSPARK_PYTHON"] = python
    if keys := os.environ.get("AWS_SHARED_CREDENTIALS_FILE"):
        # Amazon's SDK in Hadoop knows the variable by its former name only.
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
    """Undo that PySpark takes SIGINT for itself: the program decides how it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def scratch_folder() -> Path:
    """A folder that is gone when the process ends, after the JVM."""
    folder = make_folder()
    atexit.register(_end, folder)
    return folder


def _end(scratch: Path) -> None:
    # A JVM that died cannot be asked to stop; its folder goes all the same.
    with contextlib.suppress(Exception):
        stop_session()
    # First the JVM: it would write again into a folder removed under it.
    with contextlib.suppress(Exception):
        shut_down_jvm()
    remove_folder(scratch)


def shut_down_jvm(gateway: JavaGateway | None = None, patience: float = 60) -> None:
    """End the given JVM, else that of this process, and wait `patience` seconds for its end."""
    from pyspark import SparkContext

    if gateway is None:
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    gateway.shutdown()
    # The JVM ends when the pipe to its stdin does.
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience)
