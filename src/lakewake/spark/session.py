"""The Spark session of this process: how it starts, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lakewake.errors import LakewakeError, SetupError
from lakewake.spark.files import (
    Files,
    archive_path,
    launcher_note,
    marked_as_used,
    read_note,
    spark_home,
)
from lakewake.spark.jars import BUNDLE, bundle_jar, storage_jars, storage_options
from lakewake.spark.java import Java, find_java
from lakewake.spark.jvm import Starting
from lakewake.spark.launch import begin, launch, running_gateway
from lakewake.spark.options import EXTENSION, HUDI_OPTIONS, is_local, session_options
from lakewake.spark.scratch import make_folder, remove_folder, remove_leftovers

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession


class _Parts(NamedTuple):
    """What a session is launched with."""

    options: dict[str, str]
    files: Files
    java: Java


class _Early(NamedTuple):
    """A JVM that was started for a session with these options and tables."""

    given: Mapping[str, str]
    tables: Collection[str]
    parts: _Parts
    starting: Starting


_early: _Early | None = None
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
    global _early, _ours, _own_jvm
    _own_jvm = running_gateway() is None
    early, _early = _early, None
    if early is not None and (early.given, early.tables, False) == (options, tables, verbose):
        parts, starting = early.parts, early.starting
        # Again: when the JVM was started, that of a killed process may still have been ending.
        remove_leftovers()
    else:
        _end_early(early)
        parts, starting = _parts(options, tables, verbose=verbose), None
    _ours = launch(*parts, verbose=verbose, beside=_in_a_thread(beside), starting=starting)
    return _ours


def start_early(options: Mapping[str, str], tables: Collection[str]) -> None:
    """Start the JVM that `start_session` will need, and do not wait for it.

    If the session turns out not to be needed, the JVM ends with this process.

    Raises:
        SetupError: Java or a jar is missing.
        OSError: Java cannot be run.
    """
    global _early
    parts = _parts(options, tables, verbose=False)
    if starting := begin(*parts, verbose=False):
        _early = _Early(options, tables, parts, starting)


def _end_early(early: _Early | None) -> None:
    if early is not None:
        early.starting.end()


def _parts(options: Mapping[str, str], tables: Collection[str], *, verbose: bool) -> _Parts:
    """What a new session is launched with."""
    spark_home()
    java = find_java()
    bundle = bundle_jar()
    archive = archive_path(java, bundle)
    local = is_local(options.get("spark.master", "local[*]"))
    storage = storage_jars(options, tables, local=local)
    given = {**storage_options(tables), **options}
    used, launcher = marked_as_used(archive), read_note(launcher_note(archive))
    files = Files(scratch_folder(), bundle, used, storage, launcher)
    return _Parts(session_options(given, files, verbose=verbose), files, java)


def _in_a_thread(task: Callable[[], None]) -> Callable[[], None]:
    def quietly() -> None:
        with contextlib.suppress(LakewakeError):
            task()

    return threading.Thread(target=quietly, daemon=True).start


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


def is_ours(spark: SparkSession) -> bool:
    """Whether `start_session` started the context of this session."""
    return _ours is not None and spark.sparkContext is _ours.sparkContext


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


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM that was started for a session is gone: killed, or out of memory."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


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


def _forget() -> None:
    """Make PySpark forget a session that cannot be stopped, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def scratch_folder() -> Path:
    """A folder that is removed when the process ends, after the JVM has ended."""
    folder = make_folder()
    atexit.register(_end, folder)
    return folder


def _end(scratch: Path) -> None:
    # A JVM that died cannot be stopped; its folder is removed all the same.
    with contextlib.suppress(Exception):
        stop_session()
    _end_early(_early)
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
