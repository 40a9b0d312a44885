"""The benchmarks run, at a size that says nothing about speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT as PROJECT

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

#: These need the peers' own environment, with torch.
BESIDE_A_PEER = {5, 8, 15, 33, 34, 40}
BARS = [*range(1, 29), *range(30, 41), 42, 43, 44]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    with subprocess.Popen(
        [sys.executable, "-m", "bench", "--size", "smoke", "--out", str(out)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, told = process.communicate()
        except BaseException:
            # With the servers and watches that it has started.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode in (0, 1), told
    (out / "said").write_text(said)
    return out


def bars(results: Path) -> dict[int, dict]:
    found = [json.loads(file.read_text()) for file in results.glob("bar*.json")]
    return {bar["bar"]: bar for bar in found}


def test_every_bar_runs_to_its_end(results: Path) -> None:
    faults = {number: bar["fault"] for number, bar in bars(results).items()}
    assert faults == dict.fromkeys(BARS, "")


def test_only_bars_beside_a_peer_lack_numbers(results: Path) -> None:
    lacking = {
        number
        for number, bar in bars(results).items()
        if any(m["value"] is None for m in bar["measures"])
    }
    assert lacking == BESIDE_A_PEER


def test_a_line_for_each_bar_ends_the_run(results: Path) -> None:
    said = (results / "said").read_text().splitlines()
    assert [line.partition(":")[0] for line in said] == [f"bar {n}" for n in BARS]


def test_a_small_run_is_marked_as_small_in_its_table(results: Path) -> None:
    assert "Size smoke: only shows that it runs." in (results / "README.md").read_text()
    assert {bar["run"]["size"] for bar in bars(results).values()} == {"smoke"}


def test_pictures_are_drawn(results: Path) -> None:
    drawn = {picture.name for picture in results.glob("*.png")}
    names = ("bars", "one_row", "table_size", "search", "memory", "streaming", "recall")
    assert drawn == {f"{name}.png" for name in names}
