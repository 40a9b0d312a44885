"""An index is searched as it was at an earlier instant of its table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import lakewake
from lakewake.api import Index
from lakewake.cli import run
from lakewake.errors import ConfigError
from lakewake.mcp import Tools
from lakewake.model.chunks import Batch
from lakewake.serve.app import build_app
from support.cellar import FIRST, SECOND, make_cellar

QUERY = "smoky red with leather"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An index from which a row was deleted by the second commit."""
    config = make_cellar(tmp_path)
    with lakewake.open(config) as lake:
        delete(lake["wines"], "smoky")
    return config


def delete(index: Index, key: str) -> None:
    """Remove a row from the index, as the sync of commit `SECOND` would."""
    store = index.parts.store
    reader = store.open()
    assert reader is not None
    held = reader.frontier()
    chunks = reader.chunks([lakewake.RowId("red", key)], ["_id"])
    ids = tuple(id for batch in chunks for id in batch["_id"].to_pylist())
    then = replace(held, instants={**held.instants, SECOND: SECOND}, sync=held.sync + 1)
    store.commit(Batch(reader.schema(), reader.schema().empty_table().to_reader, ids), held, then)


def test_a_search_as_of_an_instant_finds_what_was_there(config: Path) -> None:
    with lakewake.open(config) as lake:
        index = lake["wines"]
        now = index.search(QUERY, k=10)
        then = index.search(QUERY, k=10, as_of=FIRST)
        assert (now.instant, then.instant) == (SECOND, FIRST)
        assert {h.key for h in then.hits} - {h.key for h in now.hits} == {"smoky"}
        # Between two commits, and as a date.
        assert index.search(QUERY, k=10, as_of="2025-03-02 11:59") == then
        assert index.search(QUERY, k=10, as_of="2025-03-03") == now
        with index.view(as_of=FIRST) as view:
            assert view.instant == FIRST
            assert view.search(QUERY, k=10) == then


def test_an_instant_that_is_not_kept_is_refused_with_the_range(config: Path) -> None:
    with (
        lakewake.open(config) as lake,
        pytest.raises(ConfigError, match=f"from {FIRST} to {SECOND}"),
    ):
        lake["wines"].search(QUERY, as_of="2020-01-01")


def test_the_shell_searches_as_of_an_instant(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["search", "wines", QUERY, "-k", "10", "-c", str(config), "--json"]
    assert run([*asked, "--as-of", FIRST]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["instant"], len(answer["hits"])) == (FIRST, 5)
    assert run([*asked, "--as-of", "lately"]) == 2
    assert "is not an instant" in json.loads(capsys.readouterr().out)["fact"]


def test_http_searches_as_of_an_instant(config: Path) -> None:
    with lakewake.open(config) as lake:
        client = TestClient(build_app(lake, lake.settings.serve, None), base_url="http://127.0.0.1")
        body = {"text": QUERY, "k": 10, "as_of": FIRST}
        answer = client.post("/indexes/wines/search", json=body)
        assert answer.json()["instant"] == FIRST
        refused = client.post("/indexes/wines/search", json=body | {"as_of": "2020-01-01"})
        assert (refused.status_code, FIRST in refused.json()["error"]) == (400, True)


def test_an_assistant_searches_as_of_an_instant(config: Path) -> None:
    with lakewake.open(config) as lake:
        tools = Tools(lake)
        now, then = tools.search(QUERY, k=10), tools.search(QUERY, k=10, as_of=FIRST)
        assert (now.instant, then.instant) == (SECOND, FIRST)
        assert {h.key for h in then.hits} - {h.key for h in now.hits} == {"smoky"}
        with pytest.raises(ConfigError, match=f"from {FIRST} to {SECOND}"):
            tools.search(QUERY, as_of="2020-01-01")
