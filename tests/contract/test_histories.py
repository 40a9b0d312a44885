"""The contract for each history, and what a history in a folder promises beyond it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from lakewake.config.settings import EmbeddingStoreSettings, IndexSettings
from lakewake.errors import StoreError
from lakewake.history.log import KEPT, LocationLog, MemoryLog, SyncLog, newest, open_history
from lakewake.store.location import Folder
from support.history_contract import HistoryContract, record


class TestInMemory(HistoryContract):
    @pytest.fixture
    def log(self) -> SyncLog:
        return MemoryLog()

    def test_the_memory_log_drops_records_beyond_its_limit(self) -> None:
        log = MemoryLog()
        for second in range(KEPT + 3):
            log.append(record(second))
        assert len(log._records) == KEPT


class TestInAFolder(HistoryContract):
    @pytest.fixture(params=[1, 16])
    def log(self, request: pytest.FixtureRequest, tmp_path: Path) -> SyncLog:
        return LocationLog(Folder(tmp_path / "index"), "wines.history", at_once=request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "wines.history"


def in_folder(folder: Path, **given: int) -> LocationLog:
    return LocationLog(Folder(folder.parent), folder.name, **given)


def test_record_file_names_sort_by_time(folder: Path) -> None:
    log = in_folder(folder)
    for second in (9, 10, 3600):
        log.append(record(second))
    names = sorted(os.listdir(folder))
    assert [n[:23] for n in names] == [
        "20250301T120009000007Z.",
        "20250301T120010000007Z.",
        "20250301T130000000007Z.",
    ]


def test_the_oldest_record_files_are_removed(folder: Path) -> None:
    log = in_folder(folder, kept=3, prune_every=1)
    for second in range(10):
        log.append(record(second))
    assert len(os.listdir(folder)) == 3
    assert newest(log, 10) == (record(9), record(8), record(7))


def test_readers_return_only_the_kept_records_before_old_files_are_pruned(folder: Path) -> None:
    log = in_folder(folder, kept=3, prune_every=10**9)
    for second in range(10):
        log.append(record(second))
    assert len(os.listdir(folder)) == 10
    assert len(newest(log, 10)) == 3


def test_two_syncs_that_prune_the_same_files_at_once_both_succeed(folder: Path) -> None:
    for second in range(5):
        in_folder(folder, prune_every=10**9).append(record(second))
    both_listed = Barrier(2, timeout=60)

    class Meeting(Folder):
        """A folder that waits until both syncs have listed the old files."""

        def names(self, folder: str = "") -> list[str]:
            found = super().names(folder)
            both_listed.wait()
            return found

    location = Meeting(folder.parent)
    logs = [LocationLog(location, folder.name, kept=1, prune_every=1) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda log, second: log.append(record(second)), logs, (10, 11)))
    assert len(os.listdir(folder)) == 1
    assert newest(in_folder(folder), 10) == (record(11),)


def test_a_file_that_is_not_a_record_is_skipped(folder: Path) -> None:
    log = in_folder(folder)
    log.append(record(1))
    good = os.listdir(folder)[0]
    for n, content in enumerate(["", "{", "[]", '{"format": 1}', '{"format": 2}', "null"]):
        (folder / f"20250301T13000000000{n}Z.0000000{n}.json").write_text(content)
    (folder / ".1234.half-written.json").write_text((folder / good).read_text())
    (folder / "notes.txt").write_text("mine")
    assert newest(log, 10) == (record(1),)


def test_a_record_file_is_read_once(folder: Path) -> None:
    log = in_folder(folder)
    log.append(record(1))
    assert newest(log, 1) == (record(1),)
    (file,) = folder.iterdir()
    file.write_text("gone")
    assert newest(log, 1) == (record(1),)
    file.unlink()
    assert newest(log, 1) == ()


def test_the_last_record_is_found_without_reading_the_others(folder: Path) -> None:
    log = in_folder(folder)
    for second in range(30):
        log.append(record(second))
    for file in sorted(folder.iterdir())[:-1]:
        file.unlink()
        file.mkdir()
    assert newest(log, 1) == (record(29),)
    with pytest.raises(StoreError, match="cannot be read"):
        newest(log, 2)


def test_a_location_that_cannot_be_read_is_named_in_the_error(folder: Path) -> None:
    # Not by permission bits: tests may run as root.
    folder.symlink_to(folder)
    with pytest.raises(StoreError, match=r"wines\.history") as caught:
        newest(in_folder(folder), 1)
    assert caught.value.hint


def test_a_history_has_begun_once_the_folder_of_the_index_has_a_file(folder: Path) -> None:
    log = in_folder(folder)
    assert not log.begun()
    (folder.parent / "embeddings.sqlite").write_bytes(b"")
    assert log.begun()
    assert not folder.exists()


def test_the_history_is_stored_beside_the_index(tmp_path: Path) -> None:
    settings = IndexSettings("wines", "table", f"lance://{tmp_path}/index")
    open_history(settings, tmp_path).append(record(1))
    assert os.listdir(tmp_path / "index") == ["wines.history"]


@pytest.mark.parametrize("kept", [True, False])
def test_the_history_of_a_remote_index_is_stored_beside_the_vector_cache(
    kept: bool, tmp_path: Path
) -> None:
    store = EmbeddingStoreSettings(str(tmp_path / "kept")) if kept else None
    settings = IndexSettings("wines", "t", "other://host:6333/wines", embedding_store=store)
    log = open_history(settings, tmp_path)
    log.append(record(1))
    assert len(os.listdir(tmp_path / ("kept" if kept else "index") / "history" / "wines")) == 1
    assert newest(open_history(settings, tmp_path), 5) == (record(1),)


def test_a_memory_index_has_one_history_however_often_it_is_opened(tmp_path: Path) -> None:
    mine = IndexSettings("wines", "t", f"memory://{tmp_path}")
    other = IndexSettings("beers", "t", f"memory://{tmp_path}")
    open_history(mine, tmp_path).append(record(1))
    assert newest(open_history(mine, tmp_path), 5) == (record(1),)
    assert newest(open_history(other, tmp_path), 5) == ()
