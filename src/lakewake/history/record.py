"""Records what each sync of an index did. A sync never fails because of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lakewake.errors import IndexDropped, LakewakeError
from lakewake.history.log import SyncLog, newest
from lakewake.model.history import SyncRecord
from lakewake.model.reads import NO_READS, Reads
from lakewake.model.report import SyncReport

#: An error that repeats is recorded no more often than this.
SAME_ERROR_EVERY = timedelta(hours=1)


class Recorder:
    """Keeps the history of one index.

    Args:
        open_log: opens the history when there is something to record.
        say: called with a sentence the first time that fails.
    """

    def __init__(
        self, index: str, open_log: Callable[[], SyncLog], say: Callable[[str], None]
    ) -> None:
        self._index, self._open_log, self._say = index, open_log, say
        self._failed = False
        self._totals: Reads | None = None

    def run(self, sync: Callable[[], SyncReport]) -> SyncReport:
        """Sync, and record what it did, unless there was nothing to do."""
        began = time.perf_counter()
        try:
            report = sync()
        except Exception as error:
            spent = time.perf_counter() - began
            if isinstance(error, IndexDropped):
                # Its history was dropped too.
                raise
            self._keep_failure(SyncRecord.of_failure(self._index, error, spent, _now()))
            raise
        if report.did_something:
            report = self._with_totals(report)
            self._keep(lambda log: log.append(SyncRecord.of(report, _now())))
        return report

    def _with_totals(self, report: SyncReport) -> SyncReport:
        """The report, with the size of the table from earlier records if the sync did not see it.

        To follow a commit, only the files of the touched file groups are listed.
        """
        try:
            if self._totals is None and report.reads.groups_in_table is None:
                every = (record.reads for record in self._open_log().records())
                self._totals = next((r for r in every if r and r.groups_in_table), None)
        # Any error: it is only for display.
        except Exception:
            return report
        known, reads = self._totals or NO_READS, report.reads
        groups, size = reads.groups_in_table, reads.bytes_in_table
        self._totals = replace(
            reads,
            groups_in_table=known.groups_in_table if groups is None else groups,
            bytes_in_table=known.bytes_in_table if size is None else size,
        )
        return replace(report, reads=self._totals)

    def _keep_failure(self, record: SyncRecord) -> None:
        def append(log: SyncLog) -> None:
            if log.begun() and not _recorded_lately(record, newest(log, 1)):
                log.append(record)

        self._keep(append)

    def _keep(self, append: Callable[[SyncLog], None]) -> None:
        try:
            append(self._open_log())
        # Any error: the sync itself has landed, or failed for a reason of its own.
        except Exception as error:
            if not self._failed:
                fact = error.fact if isinstance(error, LakewakeError) else error
                self._say(f"the history of '{self._index}' is not kept: {fact}")
            self._failed = True


def _recorded_lately(record: SyncRecord, last: tuple[SyncRecord, ...]) -> bool:
    return any(
        before.error == record.error and record.time - before.time < SAME_ERROR_EVERY
        for before in last
    )


def _now() -> datetime:
    return datetime.now(UTC)
