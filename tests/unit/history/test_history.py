"""The sync records of an index, on tables and stores without Spark."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread

import pytest

from lakewake.api import Index
from lakewake.errors import ConfigError, EmbedError, HistoryLost, StoreError
from lakewake.history.log import MemoryLog, newest
from lakewake.history.record import SAME_ERROR_EVERY, Recorder
from lakewake.model.history import SyncRecord
from lakewake.model.plan import Action
from lakewake.model.reads import Reads
from lakewake.model.report import SyncReport
from lakewake.source.memory import MemoryTable
from support.following import Heard, follow, table_of
from support.sampling import SCHEMA, rid, sample_recipe, values


@pytest.fixture(params=["memory", "lance"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    """A built index of two rows."""
    made = follow(f"{request.param}://{tmp_path}/index")
    table_of(made).upsert({rid("a"): values("one"), rid("b"): values("two")})
    made.sync()
    return made


def embedder_fails(index: Index, fact: str = "the model is down") -> None:
    def embed(_texts: list[str]) -> None:
        raise EmbedError(fact)

    index.parts.embedder.embed = embed  # type: ignore[method-assign, assignment]


def test_a_build_and_a_follow_are_recorded_newest_first(index: Index) -> None:
    first = table_of(index).look(None).newest
    second = table_of(index).upsert({rid("a"): values("new"), rid("b"): values("two", 5)})
    before = datetime.now(UTC)
    index.sync()
    follow_, build = index.history()
    assert (build.action, build.from_instant, build.to_instant) == ("build", "", first)
    assert (build.rows_changed, build.embedded, build.error) == (2, 2, None)
    assert (follow_.action, follow_.from_instant, follow_.to_instant) == ("follow", first, second)
    assert (follow_.rows_changed, follow_.chunks_upserted) == (2, 2)
    assert (follow_.embedded, follow_.reused, follow_.rows_deleted) == (1, 1, 0)
    assert follow_.why == "1 new commit (upsert)"
    assert {"plan", "read", "write", "total"} <= set(follow_.seconds)
    assert build.time < before <= follow_.time <= datetime.now(UTC)


def test_a_record_holds_what_the_sync_reported(index: Index) -> None:
    table_of(index).delete([rid("a")])
    report = index.sync()
    as_json = index.history(1)[0].as_dict()
    assert as_json.pop("time").endswith("Z")
    assert as_json.pop("error") is None
    assert as_json == report.as_dict()


def test_a_sync_with_nothing_to_do_is_not_recorded(index: Index) -> None:
    index.sync()
    assert [r.action for r in index.history()] == ["build"]


def test_the_history_is_kept_when_the_index_is_opened_again(tmp_path: Path) -> None:
    store = f"lance://{tmp_path}/index"
    index = follow(store)
    table_of(index).upsert({rid("a"): values("one")})
    index.sync()
    assert follow(store).history() == index.history()
    assert len(index.history()) == 1


def test_history_returns_no_more_records_than_requested(index: Index) -> None:
    for n in range(3):
        table_of(index).upsert({rid("a"): values(f"text {n}")})
        index.sync()
    assert [len(index.history(n)) for n in (1, 3, 50)] == [1, 3, 4]
    with pytest.raises(ConfigError, match="limit is 0"):
        index.history(0)


def test_a_failed_sync_is_recorded_with_its_fact_and_still_raises(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    embedder_fails(index)
    with pytest.raises(EmbedError, match="the model is down"):
        index.sync()
    failed = index.history(1)[0]
    assert (failed.action, failed.error) == ("failed", "the model is down")
    assert (failed.rows_changed, failed.embedded) == (0, 0)
    assert failed.seconds["total"] > 0


def test_a_refusal_to_reconcile_is_a_failed_sync(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    index.sync()
    table_of(index).restore(1)
    with pytest.raises(HistoryLost) as caught:
        index.sync(reconcile=False)
    assert index.history(1)[0].error == caught.value.fact


def test_an_unexpected_error_is_recorded_by_its_first_line(index: Index) -> None:
    error = ZeroDivisionError("by\nzero")
    record = SyncRecord.of_failure("wines", error, 0.5, datetime.now(UTC))
    assert record.error == "ZeroDivisionError: by"


def test_a_repeated_error_is_recorded_once(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    embedder_fails(index)
    for _ in range(5):
        with pytest.raises(EmbedError):
            index.sync()
    embedder_fails(index, "the model is upside down")
    with pytest.raises(EmbedError):
        index.sync()
    errors = [r.error for r in index.history()]
    assert errors == ["the model is upside down", "the model is down", None]


def test_a_continuing_error_is_recorded_every_hour(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    embedder_fails(index)
    long_ago = datetime.now(UTC) - SAME_ERROR_EVERY - timedelta(seconds=1)
    index._log.append(SyncRecord.of_failure("sample", EmbedError("the model is down"), 1, long_ago))
    with pytest.raises(EmbedError):
        index.sync()
    assert index.history(1)[0].time > long_ago


def test_a_failure_before_the_first_build_creates_no_folder(tmp_path: Path) -> None:
    index = follow(f"lance://{tmp_path}/index")
    table_of(index).upsert({rid("a"): values("one")})
    embedder_fails(index)
    with pytest.raises(EmbedError):
        index.sync()
    assert os.listdir(tmp_path) == []
    assert index.history() == ()


def test_an_unwritable_history_does_not_fail_a_sync_and_is_reported_once(
    tmp_path: Path,
) -> None:
    heard = Heard()
    index = follow(f"lance://{tmp_path}", reporter=heard)
    (tmp_path / "sample.history").write_text("in the way")
    for n in range(3):
        table_of(index).upsert({rid("a"): values(f"text {n}")})
        assert index.sync().rows_changed == 1
    (said,) = [line for line in heard.lines if "history" in line]
    assert said.startswith("the history of 'sample' is not kept: ")


def test_an_unreadable_history_hides_no_error() -> None:
    heard = Heard()

    def no_log() -> MemoryLog:
        raise StoreError("there is no bucket")

    def fail() -> None:
        raise EmbedError("the model is down")

    recorder = Recorder("sample", no_log, heard.say)
    for _ in range(2):
        with pytest.raises(EmbedError, match="the model is down"):
            recorder.run(fail)  # type: ignore[arg-type]
    assert heard.lines == ["the history of 'sample' is not kept: there is no bucket"]


def test_a_stopped_sync_is_not_recorded_as_a_failure() -> None:
    log = MemoryLog()

    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Recorder("sample", lambda: log, print).run(stopped)  # type: ignore[arg-type]
    assert newest(log, 5) == ()


def test_two_concurrent_syncers_each_record_what_they_did(tmp_path: Path) -> None:
    table = MemoryTable(sample_recipe(), SCHEMA)
    store = f"lance://{tmp_path}/index"
    one, other = follow(store, table), follow(store, table)
    table.upsert({rid("a"): values("one")})
    one.sync()
    table.upsert({rid("a"): values("new")})
    start, reports = Barrier(2), []

    def run(index: Index) -> None:
        start.wait()
        reports.append(index.sync())

    threads = [Thread(target=run, args=(i,)) for i in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    did = [r.as_dict() for r in reports if r.did_something]
    kept = [r.as_dict() for r in other.history()]
    assert len(kept) == len(did) + 1
    for record in kept[:-1]:
        del record["time"], record["error"]
        assert record in did
    assert [m.record.action for m in one.commits() if m.record] == ["follow", "build"]


def test_a_sync_that_retries_what_was_refused_is_one_record(index: Index) -> None:
    table_of(index).upsert({rid("c"): values("three")})
    index.sync(retry_quarantined=True)
    assert [r.action for r in index.history()] == ["follow", "build"]


def test_a_record_survives_being_stored() -> None:
    record = SyncRecord(
        datetime(2025, 3, 1, 12, 0, 1, 123456, UTC),
        "wines",
        "follow",
        seconds={"total": 1.25},
        instants={"1": "2"},
    )
    assert SyncRecord.from_stored(record.to_stored()) == record
    assert record.as_dict()["time"] == "2025-03-01T12:00:01.123456Z"
    assert "instants" not in record.as_dict()


def test_a_follow_shows_the_size_of_the_table_that_an_earlier_sync_saw() -> None:
    log = MemoryLog()

    def run(reads: Reads) -> Reads:
        report = SyncReport("wines", Action.FOLLOW, "", reads=reads)
        # A new process: it knows only what was recorded.
        return Recorder("wines", lambda: log, print).run(lambda: report).reads

    assert run(Reads(1, 10)) == Reads(1, 10)
    assert run(Reads.whole(7, 700)) == Reads(7, 700, 7, 700)
    assert run(Reads(2, 20)) == Reads(2, 20, 7, 700)
    assert run(Reads(2, 20, None, 800)) == Reads(2, 20, 7, 800)
    assert [record.reads for record in newest(log, 2)] == [
        Reads(2, 20, 7, 800),
        Reads(2, 20, 7, 700),
    ]


def test_a_record_of_an_earlier_version_has_no_reads(index: Index) -> None:
    stored = index.history(1)[0].to_stored()
    assert SyncRecord.from_stored(stored).reads == Reads()
    del stored["reads"]
    assert SyncRecord.from_stored(stored).reads is None
