"""An index describes itself: it is opened by its address, without its configuration."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.api.address import settings_from
from lakewake.cli import run
from lakewake.embed.recorded import RecordedEmbedder
from lakewake.errors import ConfigError, IndexMissing, RecipeMismatch
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.store.address import find_index
from support.cellar import FIRST, WINES, build, make_cellar

QUERY = "smoky red with leather"


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """The folder of an index, on a machine without its table and its configuration."""
    make_cellar(tmp_path / "there")
    (tmp_path / "here").mkdir()
    shutil.move(tmp_path / "there" / "index", tmp_path / "here" / "index")
    shutil.rmtree(tmp_path / "there")
    return tmp_path / "here" / "index"


def test_an_index_answers_by_its_address_as_with_its_configuration(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [
        *({"text": QUERY, "mode": mode} for mode in ("vector", "keyword", "hybrid")),
        {"text": QUERY, "where": "price < 20"},
        {"like": RowId("red", "smoky")},
        {"vector": [1.0] * 64},
    ]
    with lakewake.open(make_cellar(tmp_path)) as lake:
        by_name = [lake["wines"].search(**one) for one in asked]
    (tmp_path / "lakewake.toml").unlink()
    shutil.rmtree(tmp_path / "lake")
    with lakewake.open_index(f"lance://{tmp_path}/index/wines") as index:
        assert [index.search(**one) for one in asked] == by_name


@pytest.mark.parametrize("address", ["lance://{}", "lance://{}/wines", "{}"])
def test_a_folder_with_one_index_is_address_enough(moved: Path, address: str) -> None:
    with lakewake.open_index(address.format(moved)) as index:
        assert index.name == "wines"


def test_it_describes_itself(moved: Path, tmp_path: Path) -> None:
    with lakewake.open_index(f"lance://{moved}") as index:
        found = index.describe()
    assert (found.index, found.built, found.rows, found.generation) == (
        "wines",
        True,
        len(WINES),
        1,
    )
    assert found.table == str(tmp_path / "there" / "lake" / "wines")
    assert (found.table_name, found.instant) == ("wines", FIRST)
    assert found.address == f"lance://{moved}/wines"
    assert found.recipe["fields"] == [["text", "{description}"]]
    assert found.recipe["model"]["name"] == "words-and-trigrams-1"


def test_nothing_is_written_where_it_is(moved: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in moved.rglob("*")}
    with lakewake.open_index(f"lance://{moved}") as index:
        index.search(QUERY)
        index.describe()
    lakewake.find_indexes(str(moved))
    assert {p: p.stat().st_mtime_ns for p in moved.rglob("*")} == before


@pytest.mark.parametrize("name", ["sync", "plan", "verify"])
def test_it_is_not_written_without_a_configuration(moved: Path, name: str) -> None:
    index = lakewake.open_index(f"lance://{moved}")
    with pytest.raises(ConfigError, match="opened by its address") as refused:
        getattr(index, name)()
    assert "lakewake.open(CONFIG)" in refused.value.hint


def test_its_status_is_known_if_the_table_is_where_it_was(tmp_path: Path) -> None:
    make_cellar(tmp_path)
    with lakewake.open_index(f"lance://{tmp_path}/index") as index:
        assert index.status().lag_commits == 0


def test_an_index_that_does_not_record_its_table_says_so(moved: Path) -> None:
    with lakewake.open_index(f"lance://{moved}") as index:
        index.settings = replace(index.settings, table="")
        with pytest.raises(ConfigError, match="does not record where its table is"):
            index.status()
        with pytest.raises(ConfigError, match="does not record where its table is"):
            index.search(QUERY, max_age=60)


def test_of_several_indexes_one_has_to_be_named(tmp_path: Path) -> None:
    config = make_cellar(tmp_path)
    text = config.read_text()
    config.write_text(text + text.replace('"wines"\ntable', '"ales"\ntable'))
    build(lakewake.open(config)["ales"])
    with pytest.raises(ConfigError, match="holds 2 indexes") as refused:
        find_index(f"lance://{tmp_path}/index")
    assert f"lance://{tmp_path}/index/ales, lance://{tmp_path}/index/wines" in refused.value.hint
    with lakewake.open_index(f"lance://{tmp_path}/index/ales") as index:
        assert index.search(QUERY, k=1).index == "ales"


def test_an_address_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing, match="there is no index at") as refused:
        lakewake.open_index(f"lance://{tmp_path}/nowhere")
    assert "lakewake list FOLDER" in refused.value.hint


def test_an_index_in_qdrant_needs_its_configuration() -> None:
    with pytest.raises(ConfigError, match="qdrant:// cannot be opened by its address") as refused:
        lakewake.open_index("qdrant://localhost:6333/wines")
    assert "lance://…" in refused.value.hint


def test_an_address_with_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="user, password or key"):
        lakewake.open_index("lance+s3://key:secret@bucket/index")


def test_indexes_are_found_below_a_folder(tmp_path: Path) -> None:
    make_cellar(tmp_path / "a")
    lake = tmp_path / "a" / "b" / "wines_index"
    lake.mkdir(parents=True)
    (lake / "g1.json").touch()
    assert lakewake.find_indexes(str(tmp_path)) == (
        f"hudi://{lake}",
        f"lance://{tmp_path}/a/index/wines",
    )
    assert lakewake.find_indexes(f"hudi://{tmp_path}") == (f"hudi://{lake}",)


def test_the_partitions_of_a_table_are_not_looked_into(tmp_path: Path) -> None:
    make_cellar(tmp_path)
    (tmp_path / ".hoodie").mkdir()
    assert lakewake.find_indexes(str(tmp_path)) == ()


def identity(provider: str = "hashing", **other: Any) -> ModelIdentity:
    return ModelIdentity(provider, "some-model", 8, **other)


def test_the_model_of_a_service_is_refused_with_what_works_instead() -> None:
    with pytest.raises(ConfigError, match="of a service") as refused:
        RecordedEmbedder(identity("http")).embed(["x"])
    assert "its configuration" in refused.value.hint
    assert "by words" in refused.value.hint


def test_a_model_that_is_not_here_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be found here"):
        RecordedEmbedder(identity("onnx")).embed(["x"])


def test_another_model_of_the_same_name_is_refused() -> None:
    with pytest.raises(RecipeMismatch, match="name 'some-model' ≠ 'words-and-trigrams-1'"):
        RecordedEmbedder(identity()).embed(["x"])


def test_an_index_of_vectors_has_no_text_model() -> None:
    with pytest.raises(ConfigError, match="has no text model"):
        RecordedEmbedder(identity("column", normalized=False)).embed(["x"])


def test_the_settings_are_those_that_the_index_records() -> None:
    recipe = Recipe(identity(), vector="embedding", payload=("price",))
    frontier = Frontier(TableIdentity("t", "k", "", "MERGE_ON_READ"), location="s3a://b/t")
    found = settings_from("hudi://x", "wines", 0.95, recipe, frontier)
    assert (found.table, found.store, found.vector) == ("s3a://b/t", "hudi://x", "embedding")
    assert (found.payload, found.model.dimension, found.recall) == (("price",), 8, 0.95)


def test_search_takes_an_address_instead_of_a_name(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "--index", f"lance://{moved}", QUERY, "-k", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["hits"]) == 1
    assert (
        run(["search", "--index", f"lance://{moved}", "--like", "smoky", "--partition", "red"]) == 0
    )
    assert "smokier" in capsys.readouterr().out


@pytest.mark.parametrize("args", [[], ["wines", "red", "--index", "lance://index"]])
def test_search_takes_either_a_name_or_an_address(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", *args]) == 2
    assert "the name of an index, or --index ADDRESS" in capsys.readouterr().err


def test_an_address_and_a_configuration_are_refused(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "--index", f"lance://{moved}", QUERY, "-c", "lakewake.toml"]) == 2
    assert "without a configuration" in capsys.readouterr().err


def test_list_shows_the_indexes_below_a_folder(
    moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    assert run(["list", str(moved.parent), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["indexes"]
    assert (found["index"], found["rows"], found["instant"]) == ("wines", len(WINES), FIRST)
    assert run(["list", str(moved.parent)]) == 0
    shown = capsys.readouterr().out
    assert "wines: 5 rows, 5 chunks, generation 1" in shown
    for part in (f"{tmp_path}/there/lake/wines", f"lance://{moved}/wines", "2025-03-01", "64 dim"):
        assert part in shown


def test_list_shows_the_indexes_of_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_cellar(tmp_path)
    text = config.read_text()
    config.write_text(text + text.replace('"wines"\ntable', '"ales"\ntable'))
    assert run(["list", "-c", str(config), "--json"]) == 0
    wines, ales = json.loads(capsys.readouterr().out)["indexes"]
    assert (wines["built"], ales["built"]) == (True, False)
    assert ales["table"] == str(tmp_path / "lake" / "wines")
    assert run(["list", "-c", str(config)]) == 0
    assert "ales: not built yet" in capsys.readouterr().out


def test_list_of_a_folder_without_indexes_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", str(tmp_path)]) == 0
    assert f"no index below {tmp_path}" in capsys.readouterr().out


def test_list_shows_the_others_if_one_is_damaged(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (moved / "lake").mkdir()
    (moved / "lake" / "g1.json").write_text("{}")
    assert run(["list", str(moved)]) == 1
    shown = capsys.readouterr()
    assert "wines: 5 rows" in shown.out
    assert f"hudi://{moved}/lake" in shown.err
