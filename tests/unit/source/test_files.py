"""Reads of file groups that would be wrong are refused before Spark is asked."""

from __future__ import annotations

import pytest

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import (
    CommitMetadata,
    FileGroup,
    Instant,
    Look,
    TableIdentity,
    WriteStat,
)
from lakewake.source.files import GroupReader
from lakewake.source.lineage import touched_by

TABLE = TableIdentity("t", "id", "part", "MERGE_ON_READ")
SLOW, QUICK = "20250301120001000", "20250301120002000"


def log_of(file_id: str) -> CommitMetadata:
    """An update of a file group, by a log file."""
    group = FileGroup("p", file_id)
    return CommitMetadata("UPSERT", (WriteStat(group, f"p/.{file_id}_1.log.1", None, 0, 1, 0),))


def before(pending: CommitMetadata, absorbed: CommitMetadata | None) -> object:
    """The rows before a slow writer, whose quicker neighbour completed later and is absorbed."""
    late = Instant(SLOW, "20250301120005000", "deltacommit")
    first = Instant(QUICK, "20250301120006000", "deltacommit")
    commits = {SLOW: pending, **({QUICK: absorbed} if absorbed else {})}
    look = Look(TABLE, (late, first), {}, commits)
    reader = GroupReader(
        None, "t", look, Frontier(TABLE, {QUICK: first.completed or ""}), [late], {}, {}
    )
    return reader.before(touched_by([pending]), ())


@pytest.mark.parametrize("absorbed", [log_of("f"), None], ids=["same file group", "archived"])
def test_a_writer_that_completed_before_an_absorbed_one_of_its_file_group_is_not_followed(
    absorbed: CommitMetadata | None,
) -> None:
    with pytest.raises(
        HistoryLost, match=f"{SLOW} completed before {QUICK}, which the index absorbed first"
    ):
        before(log_of("f"), absorbed)


def test_a_writer_that_completed_before_an_absorbed_one_of_another_file_group_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupReader, "_merged", lambda _self, groups, until, _columns: until)
    assert before(log_of("f"), log_of("g")) == "20250301120004999"
