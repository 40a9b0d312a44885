"""What every history promises, wherever it is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from lakewake.history.log import KEPT, SyncLog, newest
from lakewake.model.history import SyncRecord

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def record(second: int, why: str = "1 new commit") -> SyncRecord:
    """A record of a sync that ended this many seconds after noon."""
    return SyncRecord(
        NOON + timedelta(seconds=second, microseconds=7),
        "wines",
        "follow",
        why,
        "20250301115900000",
        "20250301120000000",
        rows_changed=3,
        rows_deleted=1,
        chunks_upserted=4,
        chunks_deleted=2,
        embedded=2,
        reused=2,
        quarantined=1,
        seconds={"read": 0.25, "total": 1.5},
        instants={"20250301120000000": "20250301120000500"},
    )


class HistoryContract:
    """Subclasses provide a fixture `log`."""

    def test_an_empty_history_has_no_records(self, log: SyncLog) -> None:
        assert newest(log, 5) == ()

    def test_a_record_is_read_back_unchanged(self, log: SyncLog) -> None:
        log.append(record(1, 'ü "quoted"\n'))
        assert newest(log, 5) == (record(1, 'ü "quoted"\n'),)

    def test_the_newest_records_come_first_in_any_order_of_writing(self, log: SyncLog) -> None:
        for second in (2, 1, 3):
            log.append(record(second))
        assert newest(log, 2) == (record(3), record(2))

    def test_two_syncs_that_end_at_the_same_moment_are_both_recorded(self, log: SyncLog) -> None:
        log.append(record(1, "mine"))
        log.append(record(1, "yours"))
        assert {r.why for r in newest(log, 5)} == {"mine", "yours"}

    def test_concurrent_writers_lose_no_record(self, log: SyncLog) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: log.append(record(n)), range(40)))
        assert newest(log, 50) == tuple(record(n) for n in reversed(range(40)))

    def test_a_record_written_after_a_read_is_in_the_next_read(self, log: SyncLog) -> None:
        log.append(record(1))
        assert len(newest(log, 5)) == 1
        log.append(record(2))
        assert newest(log, 5) == (record(2), record(1))

    def test_only_the_newest_500_records_are_read(self, log: SyncLog) -> None:
        assert KEPT == 500
        for second in range(KEPT + 3):
            log.append(record(second))
        read = newest(log, 2 * KEPT)
        assert (len(read), read[0], read[-1]) == (KEPT, record(KEPT + 2), record(3))
