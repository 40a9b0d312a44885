"""`lakewake eval` on an index that is there, without Spark."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import lakewake
from lakewake.cli import run
from support import TESTS

OLDER = TESTS / "data" / "older" / "2475629.tar.xz"
CONFIG = "COPY_ON_WRITE/lakewake.toml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(OLDER) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    lines = [{"query": f"row {n} is about", "relevant": [f"k{n}"]} for n in (2, 15, 35)]
    lines.append({"query": "row 15", "relevant": ["no such key"]})
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


def test_eval_prints_the_means_of_each_mode_and_draws_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", "queries.jsonl", "-c", CONFIG, "--plot", "quality.svg"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[2:5]] == ["vector", "keyword", "hybrid"]
    assert "1 question found none of the relevant rows" in shown
    assert ElementTree.parse(folder / "quality.svg").getroot().tag.endswith("svg")
    # Words find every row that there is; a fourth question has none.
    keyword = shown.splitlines()[3]
    assert "0.750 (" in keyword


def test_eval_compares_modes_and_shows_the_questions_that_differ(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["eval", "sample", "queries.jsonl", "-c", CONFIG, "--mode", "keyword"]
    assert run([*given, "--compare", "vector", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["means"]) == {"keyword", "vector"}
    compared = found["comparison"]
    assert compared["other"].startswith("sample keyword")
    gained = found["means"]["keyword"]["mrr"]["value"] - found["means"]["vector"]["mrr"]["value"]
    assert compared["differences"]["mrr"]["value"] == pytest.approx(gained, abs=1e-5)
    assert run([*given, "--compare", "vector"]) == 0
    assert "compared with sample vector" in capsys.readouterr().out


def test_eval_compares_with_a_file_with_an_instant_and_with_another_index(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["eval", "sample", "queries.jsonl", "-c", CONFIG, "--mode", "keyword"]
    assert run([*given, "--json"]) == 0
    before = capsys.readouterr().out
    (folder / "before.json").write_text(before)
    instant = json.loads(before)["instant"]
    for what in ("before.json", f"as-of={instant}", "index=sample"):
        assert run([*given, "--compare", what, "--json"]) == 0
        compared = json.loads(capsys.readouterr().out)["comparison"]
        assert (compared["better"], compared["worse"], compared["most"]) == (0, 0, [])
    assert run([*given, "--compare", "queries.jsonl", "--json"]) == 2
    assert "a mode, index=NAME" in json.loads(capsys.readouterr().out)["hint"]


def test_eval_measures_an_index_by_its_address(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "lance://COPY_ON_WRITE/index/sample"
    given = ["eval", "queries.jsonl", "--index", address, "--mode", "keyword"]
    assert run([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfound"] == 1
    assert run([*given, "--compare", "index=sample"]) == 2
    assert "leave out --index" in capsys.readouterr().err


def test_an_evaluation_in_python_is_of_one_version(folder: Path) -> None:
    with lakewake.open(folder / CONFIG) as lake:
        found = lake["sample"].evaluate("queries.jsonl", modes=["keyword"])
        assert found.instant == lake["sample"].status().instant
        assert found.means["keyword"]["recall@100"].value == 0.75
        assert [q.values["keyword"]["mrr"] > 0 for q in found.questions] == [True] * 3 + [False]
