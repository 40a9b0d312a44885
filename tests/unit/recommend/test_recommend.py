"""`Index.recommend` and `lakewake recommend` on a real index, with and without a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakewake
from lakewake.cli import run
from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, FilterError, IndexMissing
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.recommendation import Recommendation
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.store.registry import open_store
from support.chat_service import KEY_ENV, Service, breaks_off, says, serving, stalls

PAYLOAD = pa.schema({"name": pa.string(), "stock": pa.int64()})
PRODUCTS = [
    ("j1", "warm waterproof jacket for hiking", "Gale Jacket", 4),
    ("j2", "warm waterproof jacket for town", "Sable Jacket", 0),
    ("t1", "roomy tent for families", "Wren Tent", 2),
]
CONFIG = """
[[index]]
name = "shop"
table = "lake/products"
text = "{description}"
payload = ["name", "stock"]
model = {provider = "hashing", dimension = 64}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration beside an index of the products."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("LAKEWAKE_RECOMMEND_URL", "LAKEWAKE_RECOMMEND_NAME", KEY_ENV):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakewake.toml").write_text(CONFIG)
    embedder = HashingEmbedder(ModelSettings(provider="hashing", dimension=64))
    fields = (TextField("text", "{description}"),)
    recipe = Recipe(embedder.identity, fields, payload=tuple(PAYLOAD.names))
    schema = index_schema(recipe, PAYLOAD)
    rows = [
        {
            "_id": chunk_id(RowId("", key), "text", 0),
            "_key": key,
            "_partition": "",
            "_field": "text",
            "_chunk": 0,
            "_hash": text_hash(text),
            "_text": text,
            "_vector": embedder.embed([text])[0].tolist(),
            "name": name,
            "stock": stock,
        }
        for key, text, name, stock in PRODUCTS
    ]
    table = pa.Table.from_pylist(rows, schema)
    frontier = Frontier(
        TableIdentity("products", "id", "", "COPY_ON_WRITE"),
        {"20250301120000000": "20250301120001000"},
    )
    store = open_store(f"lance://{tmp_path}/index", "shop")
    store.create(recipe, Batch(schema, table.to_reader), frontier, after=0)
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    with serving() as running:
        section = f'[recommend]\nurl = "http://127.0.0.1:{running.port}/v1"\nname = "tiny"\n'
        (folder / "lakewake.toml").write_text(CONFIG + section + "timeout = 5\n")
        yield running


def test_the_answer_uses_only_rows_that_match_the_filter(folder: Path) -> None:
    with lakewake.open() as lake:
        found = lake["shop"].recommend("warm waterproof jacket", where="stock > 0", k=2)
    assert [hit.key for hit in found.hits] == ["j1", "t1"]
    assert found.message.startswith("Gale Jacket: warm waterproof jacket for hiking [1]")
    assert (found.answered_by, found.instant) == ("extract", "20250301120000000")


def test_an_invalid_question_is_an_error(folder: Path) -> None:
    with lakewake.open() as lake:
        with pytest.raises(ConfigError, match="blank"):
            lake["shop"].recommend(" ")
        with pytest.raises(FilterError):
            lake["shop"].recommend_stream("jacket", where="stock >")


def test_a_missing_index_is_an_error(folder: Path) -> None:
    other = CONFIG.replace('"shop"', '"other"')
    (folder / "lakewake.toml").write_text(other)
    with lakewake.open() as lake, pytest.raises(IndexMissing):
        lake["other"].recommend_stream("jacket")


def test_the_configured_model_is_asked_unless_it_is_excluded(
    folder: Path, service: Service
) -> None:
    service.script = [says("The Gale Jacket [1].")]
    with lakewake.open() as lake:
        assert lake["shop"].recommend("jacket").answered_by == "model"
        assert lake["shop"].recommend("jacket", model=False).answered_by == "extract"
        *_, last = lake["shop"].recommend_stream("jacket")
    assert isinstance(last, Recommendation)
    assert last.message == "The Gale Jacket [1]."
    assert len(service.requests) == 2


def test_address_and_model_can_come_from_the_environment(
    folder: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lakewake.toml").write_text(CONFIG)
    monkeypatch.setenv("LAKEWAKE_RECOMMEND_URL", f"http://127.0.0.1:{service.port}/v1")
    monkeypatch.setenv("LAKEWAKE_RECOMMEND_NAME", "from-env")
    service.script = [says("The Gale Jacket [1].")]
    with lakewake.open() as lake:
        assert lake["shop"].recommend("jacket").answered_by == "model"
    assert service.requests[0]["model"] == "from-env"


def test_the_command_prints_the_answer_and_then_the_rows(
    folder: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.script = [says("The Gale Jacket\nis \x1b[31mwarm [1].")]
    assert run(["recommend", "shop", "warm jacket", "--where", "stock > 0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["The Gale Jacket", "is  [31mwarm [1]."]
    assert lines[3] == "2 rows found, 1 named in the answer, table at 2025-03-01 12:00:00.000"
    assert lines[4].split()[::2] == ["1", "j1"]


def test_the_command_reports_an_answer_that_broke_off(
    folder: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.script = [breaks_off]
    assert run(["recommend", "shop", "warm jacket"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The Gale Jacket is warm [1], and it"
    assert lines[1] == "The answer broke off. From the rows instead:"
    assert "warm waterproof jacket for hiking" in lines[2]
    assert any("broke off in the middle" in line for line in lines)


def test_with_json_the_recommendation_is_one_object(
    folder: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.script = [stalls]
    asked = "warm waterproof jacket for hiking"
    assert run(["recommend", "shop", asked, "-k", "1", "--no-model", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answered_by"] == "extract"
    assert found["used"] == [{"key": "j1", "partition": ""}]
    first = ["query", "message", "answered_by", "used", "hits", "instant", "reason"]
    assert list(found) == [*first, "matched", "asked"]
    assert service.requests == []


def test_an_unknown_mode_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", "shop", "jacket", "--mode", "magic"]) == 2
    assert "'--mode'" in capsys.readouterr().err
