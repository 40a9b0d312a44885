"""What a run of the benchmark leaves behind: its own figures, and the range over earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.bars import BARS
from bench.measures import Measure, Outcome
from bench.results import EARLIER, read_bars, write_bar, write_table


def run_of(day: int, processor: str = "Xeon") -> dict[str, Any]:
    machine = {
        "processor": processor,
        "cores": 2,
        "memory_gb": 25.3,
        "system": "Linux",
        "python": "3.11",
        "java": "17",
        "hudi": "hudi",
        "packages": {},
    }
    return {"began": f"2026-11-{day:02} 10:00", "size": "full", "machine": machine}


def reached(value: float) -> Outcome:
    return Outcome((Measure("of the script", value, "≤", 0.2),))


def test_a_line_describes_one_run_and_names_its_processor(tmp_path: Path) -> None:
    write_bar(tmp_path, BARS[5], reached(0.18), run_of(1, "EPYC"))
    write_bar(tmp_path, BARS[5], reached(0.26), run_of(2, "Xeon"))
    write_table(tmp_path)
    line = next(r for r in (tmp_path / "README.md").read_text().splitlines() if r[:4] == "| 5 ")
    assert "0.26 (≤ 0.2)" in line
    assert "0.18–0.26 (2 runs)" in line
    assert "2026-11-02 10:00, Xeon" in line
    assert "missed" in line


def test_a_single_run_has_no_range(tmp_path: Path) -> None:
    write_bar(tmp_path, BARS[5], reached(0.18), run_of(1))
    write_table(tmp_path)
    assert "runs)" not in (tmp_path / "README.md").read_text()


def test_only_the_last_runs_are_kept(tmp_path: Path) -> None:
    for day in range(1, EARLIER + 5):
        write_bar(tmp_path, BARS[5], reached(day), run_of(day))
    [bar] = read_bars(tmp_path)
    assert [r["values"]["of the script"] for r in bar["earlier"]] == list(range(4, EARLIER + 4))
