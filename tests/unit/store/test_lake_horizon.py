"""From which instant on the states of an index in the lake are whole."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pytest

from lakewake.store.hudi.table import kept_from
from lakewake.store.location import location_at


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    folder = tmp_path / "g1" / ".hoodie" / "timeline"
    folder.mkdir(parents=True)
    return folder


def plan(kept: str | None) -> bytes:
    """The plan of a clean that keeps what is visible from this instant on."""
    instant = {"type": "record", "name": "i", "fields": [{"name": "timestamp", "type": "string"}]}
    field = {"name": "earliestInstantToRetain", "type": ["null", instant]}
    written = io.BytesIO()
    schema = {"type": "record", "name": "p", "fields": [field]}
    value = None if kept is None else {"timestamp": kept}
    fastavro.writer(written, schema, [{"earliestInstantToRetain": value}])
    return written.getvalue()


def test_without_a_clean_every_state_is_whole(timeline: Path, tmp_path: Path) -> None:
    (timeline / "01_02.deltacommit").touch()
    assert kept_from(location_at(str(tmp_path)), "g1") == ""


def test_the_clean_that_keeps_least_decides(timeline: Path, tmp_path: Path) -> None:
    (timeline / "20.clean.requested").write_bytes(plan("10"))
    (timeline / "30.clean.requested").write_bytes(plan("15"))
    assert kept_from(location_at(str(tmp_path)), "g1") == "15"


@pytest.mark.parametrize("content", [b"", b"Obj\x01", plan(None)])
def test_of_a_clean_whose_plan_says_nothing_only_later_states_are_known_to_be_whole(
    timeline: Path, tmp_path: Path, content: bytes
) -> None:
    (timeline / "20.clean.requested").write_bytes(content)
    assert kept_from(location_at(str(tmp_path)), "g1") == "20"
