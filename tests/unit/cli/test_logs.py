"""`--log-file`: lines of JSON with times."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakewake.cli import logs, run
from lakewake.cli.flags import Flags
from lakewake.cli.sync import log_sync
from lakewake.errors import ConfigError
from lakewake.model.plan import Action
from lakewake.model.report import SyncReport
from lakewake.progress import Logged, Silent


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "lakewake.log"
    logs.stop()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_failure_is_one_line_with_its_time_and_what_to_do(file, tmp_path):
    missing = str(tmp_path / "none.toml")
    assert run(["status", "--config", missing, "--log-file", str(file)]) == 2
    (line,) = lines(file)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["level"], line["error"]) == ("error", "ConfigError")
    assert missing in line["message"]
    assert line["landed"] == "nothing was written"
    assert line["hint"]


def test_the_variables_do_the_same_as_the_flags(file, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEWAKE_LOG_FILE", str(file))
    monkeypatch.setenv("LAKEWAKE_LOG_LEVEL", "error")
    assert run(["status", "--config", str(tmp_path / "none.toml")]) == 2
    assert len(lines(file)) == 1


def test_a_second_command_adds_to_the_file(file, tmp_path):
    for _ in range(2):
        run(["status", "--config", str(tmp_path / "none.toml"), "--log-file", str(file)])
    assert len(lines(file)) == 2


def test_progress_and_reports_are_lines(file):
    logs.start(file, "info")
    reporter = Flags(quiet=True).reporter()
    reporter.say("Java: 17")
    log_sync(SyncReport("wines", Action.NOTHING, "the index is at 1"))
    said, synced = lines(file)
    assert said["message"] == "Java: 17"
    assert synced["report"]["action"] == Action.NOTHING.value


def test_a_stage_leaves_the_line_that_people_see(file):
    logs.start(file, "info")
    seconds = iter([0.0, 2.0, 4.0])
    reporter = Logged(Silent(), logs.log_line, clock=lambda: next(seconds))
    with reporter.stage("embed", 8) as stage:
        stage.advance(8)
    (line,) = lines(file)
    assert line["message"] == "embed: 8 in 4.0 s, 2.0/s"


def test_less_important_lines_are_left_out(file):
    logs.start(file, "warning")
    logs.log_line("a detail")
    logging.getLogger("lakewake.serve").warning("slow")
    assert [line["message"] for line in lines(file)] == ["slow"]


def test_secrets_and_line_breaks_do_not_get_into_a_line(file):
    logs.start(file, "info")
    logs.log_line("read https://me:hunter2@host/x\nforged")
    (line,) = lines(file)
    assert "hunter2" not in line["message"]


def test_a_log_that_cannot_be_written_stops_the_command_before_it_begins(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        logs.start(tmp_path / "none" / "x.log", "info")
    assert not logs.started()


def test_without_a_log_nothing_is_wrapped():
    assert isinstance(Flags(quiet=True).reporter(), Silent)
