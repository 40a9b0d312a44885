"""The history's contract in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from lakewake.config.settings import IndexSettings
from lakewake.history.log import LocationLog, SyncLog, newest, open_history
from lakewake.store.location import location_at
from support.history_contract import HistoryContract, record

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1800)]


class TestHistoryOnS3(HistoryContract):
    @pytest.fixture
    def log(self, bucket: str, tmp_path: Path) -> SyncLog:
        settings = IndexSettings("wines", "table", f"lance+s3://{bucket}/my index %20 ü")
        return open_history(settings, tmp_path)


def test_the_oldest_record_objects_are_removed(files, bucket):
    log = LocationLog(location_at(f"s3://{bucket}/index"), "wines.history", kept=3, prune_every=1)
    for second in range(6):
        log.append(record(second))
    left = files.get_file_info(FileSelector(f"{bucket}/index/wines.history"))
    assert len(left) == 3
    assert newest(log, 10) == (record(5), record(4), record(3))


def test_a_history_has_begun_once_its_folder_has_an_object(files, bucket):
    log = LocationLog(location_at(f"s3://{bucket}/index"), "wines.history")
    assert not log.begun()
    log.append(record(1))
    assert log.begun()
