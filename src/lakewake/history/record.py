"""Records what each sync of an index did. A sync never fails because of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lakewake.errors import LakewakeError
from lakewake.history.log import SyncLog, newest
from lakewake.model.history import SyncRecord
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

    def run(self, sync: Callable[[], SyncReport]) -> SyncReport:
        """Sync, and record what it did, unless there was nothing to do."""
        began = time.perf_counter()
        try:
            report = sync()
        except Exception as error:
            spent = time.perf_counter() - began
            self._keep_failure(SyncRecord.of_failure(self._index, error, spent, _now()))
            raise
        if report.did_something:
            self._keep(lambda log: log.append(SyncRecord.of(report, _now())))
        return report

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
