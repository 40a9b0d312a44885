"""The README's snippets run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from lakewake.config.file import parse_config
from lakewake.config.settings import ServeSettings
from lakewake.sample import wines
from lakewake.serve.app import build_app
from support import ROOT

JSON = {"Content-Type": "application/json"}
README = ROOT / "README.md"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def lake(spark, small_tables, tmp_path_factory) -> Path:
    """A folder with the table that the README mentions."""
    folder = tmp_path_factory.mktemp("readme")
    pq.write_table(wines(40), folder / "wines.parquet")
    options = {
        "hoodie.table.name": "wine_reviews",
        "hoodie.datasource.write.recordkey.field": "wine_id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "country",
        **small_tables,
    }
    frame = spark.read.parquet(str(folder / "wines.parquet"))
    frame.write.format("hudi").options(**options).save(str(folder / "lake" / "wine_reviews"))
    return folder


def test_the_configuration_is_valid(tmp_path):
    (text,) = snippets("toml")
    (index,) = parse_config(text, tmp_path / "lakewake.toml").indexes
    assert (index.name, index.payload[0]) == ("wines", "title")


@pytest.mark.spark
def test_the_commands_do_what_the_readme_says(lake):
    (block,) = snippets("bash")
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    executable = str(Path(sys.executable).parent / "lakewake")
    said = {}
    for _, *arguments in (c for c in commands if c[0] == "lakewake"):
        ended = subprocess.run(
            [executable, *arguments], cwd=lake, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        said[arguments[0]] = ended.stdout
    assert list(said) == ["init", "plan", "sync", "search", "verify"]
    assert "40" in said["plan"]
    assert "agree" in said["verify"]
    assert "Italy" in said["search"]


@pytest.mark.spark
def test_the_python_snippet_runs_and_the_served_query_is_answered(lake, spark, monkeypatch, capsys):
    (config,) = snippets("toml")
    monkeypatch.chdir(lake)
    (lake / "lakewake.toml").write_text(config.replace("lance://index", "lance://python-index"))
    (code,) = snippets("python")
    names: dict[str, Any] = {}
    exec(compile(code, str(README), "exec"), names)
    first, *hits = capsys.readouterr().out.splitlines()
    assert first == "build 40 embedded, 0 reused"
    assert len(hits) == 3
    (served,) = snippets("sh")
    with TestClient(build_app(names["lakewake"].open(), ServeSettings(), None)) as client:
        client.base_url = "http://localhost"
        body = re.search(r"-d '(.*)'", served)[1]
        answer = client.post("/indexes/wines/search", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert all(hit["payload"]["price"] < 40 for hit in answer.json()["hits"])
