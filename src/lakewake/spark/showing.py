"""Shows how far our Spark jobs are, by what Spark reports: the tasks of each stage that runs.

Our jobs are known by a tag, so that the caller's job group stays as it is, and cancels them.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from lakewake.progress import Counted, Reporter, Steps, Watched, watched

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Seconds between two looks: stages that are over sooner are not shown.
EVERY = 0.5
NAME = "tasks of Spark"


class Stage(NamedTuple):
    """One try of a stage of a Spark job. Only the newest one makes progress."""

    number: int
    attempt: int


class Tasks:
    """The tasks of all jobs with a tag."""

    def __init__(self, context: SparkContext, tag: str) -> None:
        self._context, self._tag = context, tag
        self._running: set[Stage] = set()

    def look(self) -> dict[Hashable, Counted]:
        """The stages that run, and once more those that have ended since the last look.

        A stage that waits is left out: it may never run, because Spark has its result already.
        """
        tracker, before = self._context.statusTracker(), self._running
        running = set(tracker.getActiveStageIds()).intersection(self._stages())
        found: dict[Hashable, Counted] = {}
        self._running = set()
        for number in running.union(stage.number for stage in before):
            if (info := tracker.getStageInfo(number)) is None:
                continue
            stage = Stage(number, info.currentAttemptId)
            if number in running:
                self._running.add(stage)
            if number in running or stage in before:
                found[stage] = Counted(NAME, info.numCompletedTasks, info.numTasks)
        return found

    def _stages(self) -> set[int]:
        """The numbers of the stages of our jobs."""
        tracker = self._context.statusTracker()
        # PySpark 3.5 has no method for tags.
        tagged = self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag)
        jobs = (tracker.getJobInfo(job) for job in tagged)
        return {stage for job in jobs if job for stage in job.stageIds}


@contextmanager
def showing(context: SparkContext, reporter: Reporter) -> Iterator[None]:
    """Show the tasks of the jobs that this thread starts, if a person watches."""
    seen = watched(reporter)
    if seen is None:
        yield
        return
    from py4j.protocol import Py4JError
    from pyspark import InheritableThread

    tag, ended = f"lakewake-{uuid4().hex}", threading.Event()
    tasks = Tasks(context, tag)
    # Unlike other threads, it frees its connection to the JVM at its end.
    thread = InheritableThread(lambda: _show(tasks, seen, ended), name="lakewake-tasks")
    thread.daemon = True
    context.addJobTag(tag)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        # If the JVM has ended, the error of the work must be raised.
        with suppress(Py4JError, ConnectionError):
            context.removeJobTag(tag)


def _show(tasks: Tasks, shown: Watched, ended: threading.Event) -> None:
    """Show the tasks until the work has ended. Whatever fails here, the work goes on."""
    with suppress(Exception), closing(Steps(shown)) as steps:
        while not ended.wait(EVERY):
            steps.show(tasks.look())
        steps.show(tasks.look())
