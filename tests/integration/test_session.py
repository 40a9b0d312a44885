"""The session as a program sees it: quiet, tidy, with the right Python, not killed by Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakewake.errors import HistoryLost, SetupError
from lakewake.source.session import beside, reading_session
from lakewake.spark.options import HUDI_OPTIONS
from lakewake.spark.own import active
from lakewake.spark.session import check_session, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Interrupts its whole process group, including the JVM, during a job that would take hours.
INTERRUPTED = """
import faulthandler, os, signal, threading
from lakewake.spark.session import start_session, stop_session

# If it hangs, this shows where.
faulthandler.dump_traceback_later(90, exit=True)
# A shell starts background jobs with SIGINT ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

spark = start_session({"spark.master": "local[1]"})
interrupt = lambda: os.killpg(os.getpgid(0), signal.SIGINT)
tracker = spark.sparkContext.statusTracker()
def when_the_job_runs():
    while not tracker.getActiveJobsIds():
        pass
    interrupt()
threading.Thread(target=when_the_job_runs).start()
try:
    spark.sql("SELECT sum(sqrt(id) * sqrt(id + 1)) FROM range(1000000000000)").collect()
except KeyboardInterrupt:
    stop_session()
    print("stopped cleanly")
"""

#: A foreign session, with or without Hudi's classes.
FOREIGN = """
import sys
from pyspark.sql import SparkSession
from lakewake.errors import SetupError
from lakewake.spark.jars import bundle_jar
from lakewake.spark.session import check_session

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
if sys.argv[1] == "classes only":
    builder = builder.config("spark.driver.extraClassPath", str(bundle_jar()))
try:
    check_session(builder.getOrCreate())
except SetupError as error:
    print(error)
"""

#: Uses a JVM that was started early, then does not use one because the options differ.
EARLY = """
from lakewake.spark import session

options = {"spark.master": "local[1]"}
session.start_early(options, ())
process = session._early.starting.process
spark = session.start_session(options)
print("the same JVM:", spark.sparkContext._gateway.proc is process)
print([row[0] for row in spark.sql("SELECT 1").collect()])
session.stop_session()

session.start_early(options, ())
unused = session._early.starting.process
spark = session.start_session({**options, "spark.sql.shuffle.partitions": "1"})
print("another:", spark.sparkContext._gateway.proc is not unused and unused.poll() is not None)
"""

#: Prints whether PySpark is imported once the JVM is starting; `true` replaces the JVM.
JVM_FIRST = """
import sys
from pathlib import Path
from lakewake.spark import jvm, session

assert session.running_session() is None
with open("log", "ab") as log:
    starting = jvm.start(["true"], log, Path())
    try:
        jvm.connect(starting, lambda: print("PySpark is there:", "pyspark" in sys.modules))
    except OSError:
        pass
"""


def run(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in its own folder, with a home that does not exist."""
    (folder / "tmp").mkdir()
    (folder / "here").mkdir()
    environment = {"HOME": str(folder / "no-home"), "TMPDIR": str(folder / "tmp")}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder / "here",
        env={**os.environ, "XDG_CACHE_HOME": cache, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
    )


def test_our_session_can_read_hudi(spark: SparkSession) -> None:
    check_session(spark)
    for key, value in HUDI_OPTIONS.items():
        assert spark.conf.get(key) == value


def test_the_jvm_has_room_for_the_code_of_a_long_watch(spark: SparkSession) -> None:
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    # Seen after a minute of work: 47 MB.
    assert sum(code) >= 200 * 2**20


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_a_running_session_is_used_again(spark: SparkSession) -> None:
    again = start_session({"spark.app.name": "another"})
    assert again.sparkContext is spark.sparkContext
    assert again.sparkContext.appName == "lakewake"


def test_a_jvm_that_was_started_early_becomes_the_session(tmp_path: Path) -> None:
    done = run(EARLY, folder=tmp_path)
    assert done.stdout.splitlines() == ["the same JVM: True", "[1]", "another: True"], done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_ctrl_c_ends_a_job_quietly_and_keeps_the_jvm(tmp_path: Path) -> None:
    done = run(INTERRUPTED, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("stopped cleanly\n", "")
    assert list((tmp_path / "here").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "fact"),
    [("nothing", "Hudi is not in"), ("classes only", "extension is not set")],
)
def test_a_callers_session_without_hudi_is_refused_with_the_options_it_needs(
    kind: str, fact: str, tmp_path: Path
) -> None:
    output = run(FOREIGN, kind, folder=tmp_path).stdout
    assert fact in output
    assert "--packages org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0" in output
    assert "--conf spark.sql.extensions=" in output


def test_a_session_that_cannot_start_is_an_error_with_the_reason(tmp_path: Path) -> None:
    program = (
        "from lakewake.spark.session import start_session as s; s({'spark.master': 'spak://x'})"
    )
    done = run(program, folder=tmp_path)
    assert SetupError.__name__ in done.stderr
    assert "Master must" in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_work_beside_a_read_uses_its_session_and_the_callers_job_group(
    spark: SparkSession,
) -> None:
    ours, context = reading_session(spark), spark.sparkContext
    context.setJobGroup("the caller's", "")
    sessions = context._jvm.org.apache.spark.sql.SparkSession

    def seen() -> tuple[str, str, bool]:
        zone = sessions.active().conf().get("spark.sql.session.timeZone")
        group = context.getLocalProperty("spark.jobGroup.id")
        return zone, group, threading.current_thread() is threading.main_thread()

    try:
        with active(ours), beside(ours, seen) as result:
            assert result() == ("UTC", "the caller's", False)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_a_failure_beside_a_read_is_raised_when_its_result_is_needed(spark: SparkSession) -> None:
    def fail() -> None:
        raise HistoryLost("gone")

    with beside(reading_session(spark), fail) as result, pytest.raises(HistoryLost, match="gone"):
        result()


def test_without_pinned_threads_nothing_runs_beside_a_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "_gateway", object())
    with beside(spark, threading.current_thread) as result:
        assert result() is threading.main_thread()


def test_pyspark_is_imported_while_the_jvm_starts(tmp_path: Path) -> None:
    done = run(JVM_FIRST, folder=tmp_path)
    assert done.stdout.splitlines() == ["PySpark is there: False"], done.stderr
