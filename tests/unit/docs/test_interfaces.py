"""The claims of docs/interfaces.md hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lakewake.cli import COMMANDS
from lakewake.search.where import parse_where
from lakewake.search.where_json import parse_where_json
from support import ROOT
from support.cellar import make_cellar

DOCS = (ROOT / "docs" / "interfaces.md").read_text()
FILTERS = re.findall(r"^\| `(\{.*\})` \| `(.*)` \|$", DOCS, re.MULTILINE)
SNIPPETS = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize(("as_json", "text"), FILTERS)
def test_the_two_ways_to_write_a_filter_mean_the_same(as_json: str, text: str) -> None:
    assert parse_where_json(json.loads(as_json)) == parse_where(text)


def test_every_filter_in_the_documented_table_is_tried() -> None:
    assert len(FILTERS) == 15


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if "import" in s])
def test_the_snippets_of_the_documentation_run(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cellar(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "interfaces.md", "exec"), {})


def test_each_quick_start_has_at_most_ten_lines() -> None:
    starts = [*SNIPPETS, *re.findall(r"```json\n(.*?)```", DOCS, re.DOTALL)]
    assert len(starts) == 8
    assert max(len(start.splitlines()) for start in starts) <= 10


def test_the_assistants_configuration_starts_an_existing_command() -> None:
    (found,) = re.findall(r"```json\n(.*?)```", DOCS, re.DOTALL)
    started = json.loads(found)["mcpServers"]["lakewake"]
    assert started["command"] == "lakewake"
    assert started["args"][0] in [command.__name__ for command, _ in COMMANDS]
