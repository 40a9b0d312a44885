"""What a person sees of Spark's work while it runs: tasks that Spark reports, and only ours."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import InheritableThread, SparkContext, cloudpickle

from lakewake.model.chunks import ScanParts
from lakewake.model.rows import Difference, RowBatch
from lakewake.progress import Counted
from lakewake.source import compared
from lakewake.source.hudi import HudiTable
from lakewake.spark import showing as showing_module
from lakewake.spark.showing import NAME, Tasks, showing
from lakewake.sync import SyncOptions, sync
from lakewake.verify import repair, verify
from support import watched
from support.hudi.tables import HudiTables, row
from support.oracle import HudiParts, following
from support.watched import Gate, Watching, wait_at

pytestmark = pytest.mark.spark

# Spark's workers cannot import tests.
for _module in (sys.modules[__name__], watched):
    cloudpickle.register_pickle_by_value(_module)


@pytest.fixture
def context(spark) -> SparkContext:
    return spark.sparkContext


@pytest.fixture
def parts(spark, small_tables, tmp_path) -> HudiParts:
    """A table of ten rows, and its index."""
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}", f"text {n}", part="ab"[n % 2]) for n in range(10)])
    made = following(spark, table.path, tmp_path / "index")
    sync(made)
    return made


@pytest.fixture
def promptly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and only when Spark has noted all that has happened."""
    look = Tasks.look

    def drained(tasks: Tasks) -> dict[object, Counted]:
        tasks._context._jsc.sc().listenerBus().waitUntilEmpty()
        return look(tasks)

    monkeypatch.setattr(showing_module, "EVERY", 0.01)
    monkeypatch.setattr(Tasks, "look", drained)


def watched_by(parts: HudiParts, seen: Watching, distributed: int | None = None) -> HudiParts:
    table = HudiTable(
        parts.table.path, parts.recipe, parts.table._start, distributed, reporter=seen
    )
    return replace(parts, table=table, reporter=seen)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = InheritableThread(work)
    thread.start()
    return thread


def run_tasks(context: SparkContext, count: int, port: int) -> None:
    context.parallelize(range(count), count).foreach(lambda _: wait_at(port))


def test_tasks_are_counted_one_by_one_up_to_their_number(context: SparkContext) -> None:
    tasks, counts = Tasks(context, "ours"), [0]

    def work() -> None:
        context.addJobTag("ours")
        run_tasks(context, 3, gate.port)

    with Gate() as gate:
        running = in_thread(work)
        for done in (1, 2, 3):
            gate.let_one_pass()
            while counts[-1] < done:
                for one in tasks.look().values():
                    assert (one.name, one.total) == (NAME, 3)
                    counts.append(one.done)
        running.join()
    assert counts == sorted(counts)
    assert counts[-1] == 3
    # A stage that has ended is counted once more.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tasks.look()
    assert tasks.look() == {}


def test_tasks_of_others_are_not_counted(context: SparkContext) -> None:
    tasks, tracker = Tasks(context, "ours"), context.statusTracker()
    with Gate() as gate:
        running = in_thread(lambda: run_tasks(context, 1, gate.port))
        while not tracker.getActiveStageIds():
            assert running.is_alive()
        assert tasks.look() == {}
        gate.let_one_pass()
        running.join()


def test_the_callers_job_group_and_tags_stay_as_they_were(context: SparkContext, promptly) -> None:
    context.setJobGroup("the caller's", "")
    context.addJobTag("theirs")
    try:
        with showing(context, Watching()):
            run_nothing(context)
            assert context.getLocalProperty("spark.jobGroup.id") == "the caller's"
            assert len(context.getJobTags()) == 2
        assert context.getLocalProperty("spark.jobGroup.id") == "the caller's"
        assert set(context.getJobTags()) == {"theirs"}
        assert context.statusTracker().getJobIdsForGroup("the caller's")
    finally:
        context.clearJobTags()
        context.setLocalProperty("spark.jobGroup.id", None)


def run_nothing(context: SparkContext) -> None:
    context.parallelize([1], 1).count()


def test_the_tag_is_gone_after_a_failure_too(context: SparkContext) -> None:
    with pytest.raises(ValueError, match="broken"), showing(context, Watching()):
        raise ValueError("broken")
    assert not len(context.getJobTags())


def test_a_reporter_that_fails_does_not_fail_the_work(context: SparkContext, promptly) -> None:
    class Broken(Watching):
        def step(self, name: str, total: int | None = None):
            self.begun.set()
            raise OSError("the terminal is gone")

    broken = Broken()
    with Gate() as gate, gate.opened_by(broken.begun), showing(context, broken):
        run_tasks(context, 1, gate.port)
    assert broken.begun.is_set()


@dataclass(frozen=True)
class SlowPart:
    """A part of an index whose reader waits at a gate."""

    batches: tuple[pa.RecordBatch, ...]
    port: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        wait_at(self.port)
        return iter(self.batches)


def test_a_comparison_by_executors_shows_their_tasks(parts: HudiParts, promptly) -> None:
    seen = Watching()
    table, index = watched_by(parts, seen, 1).table, parts.store.open()
    there = index.scan_parts(compared(parts.recipe))
    with Gate() as gate, gate.opened_by(seen.begun):
        slow = tuple(SlowPart(tuple(part), gate.port) for part in there.parts)
        found = table.compare(table.look(None), ScanParts(there.schema, slow))
    assert found == Difference()
    assert seen.named(NAME)
    assert all(shown.is_complete for shown in seen.steps)


def test_work_on_executors_shows_their_tasks(parts: HudiParts, promptly) -> None:
    seen = Watching()
    table = watched_by(parts, seen, 1).table
    changes = table.snapshot(table.look(None))
    seen.steps.clear()
    seen.begun.clear()
    with Gate() as gate, gate.opened_by(seen.begun):
        port = gate.port

        def count(rows: Iterator[RowBatch], files: dict[Path, Path]) -> int:
            wait_at(port)
            return sum(len(batch.ids) for batch in rows)

        assert sum(changes.distributed(count, [])) == 10
    assert seen.steps
    assert all(shown.is_complete for shown in seen.steps)


def test_a_comparison_in_this_process_counts_the_chunks_of_the_index(parts: HudiParts) -> None:
    for work in (verify, repair, lambda parts: sync(parts, SyncOptions(reconcile=True))):
        seen = Watching()
        work(watched_by(parts, seen))
        [read] = seen.named("read the index")
        assert (read.total, read.is_complete) == (10, True)


def test_without_a_person_watching_nobody_asks_spark(
    parts: HudiParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(tasks: Tasks) -> None:
        raise AssertionError("nobody looks")

    monkeypatch.setattr(Tasks, "look", look)
    monkeypatch.setattr(SparkContext, "addJobTag", look)
    assert verify(parts).agrees
