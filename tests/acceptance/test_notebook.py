"""The notebooks in examples/ run from beginning to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

NOTEBOOK = ROOT / "examples" / "ask-from-spark.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.mark.usefixtures("without_a_screen")
def test_the_notebook_creates_joins_finds_duplicates_and_plots(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    try:
        for number, cell in enumerate(code_cells()):
            exec(compile(cell, f"cell {number}", "exec"), names)
        assert [row["_key"] for row in names["found"].collect()[:2]] == ["w1", "w2"]
        best = {row["id"]: row["_key"] for row in names["answers"].collect() if row["_rank"] == 1}
        assert best[1] in ("w3", "w5")
        assert best[2] == "w4"
        pairs = [(row["wine_id"], row["duplicate"]) for row in names["duplicates"].collect()]
        assert pairs == [("w1", "w2"), ("w3", "w5")]
        assert len(names["distances"]) == 5
        assert 'name = "wines"' in (tmp_path / "lakewake.toml").read_text()
        assert len(names["axes"].patches) == 5
    finally:
        spark.sql("DROP DATABASE IF EXISTS shop CASCADE")
