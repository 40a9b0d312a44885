"""A renamed index is the same index, with everything that belongs to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakewake
from lakewake.cli import run
from support.cellar import WINES, make_cellar


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return make_cellar(tmp_path)


def test_a_renamed_index_gives_the_same_answers(config: Path, tmp_path: Path) -> None:
    files = sorted(tmp_path.rglob("index/**"))
    with lakewake.open(config) as lake:
        before = lake["wines"].search("smoky red", k=10)
        renamed = lake.rename("wines", "reds")
        assert lake.names == ("reds",)
        assert lake["reds"] is renamed
        for index in (renamed, lakewake.open(config)["reds"]):
            assert index.search("smoky red", k=10).hits == before.hits
            assert (index.name, index.describe().rows) == ("reds", len(WINES))
            assert index.status().index == "reds"
    assert sorted(tmp_path.rglob("index/**")) == files


def test_its_address_is_that_of_its_store(config: Path) -> None:
    with lakewake.open(config) as lake:
        address = lake["wines"].describe().address
        assert lake.rename("wines", "reds").describe().address == address
        assert lakewake.open_index(address).describe().rows == len(WINES)


def test_commands_take_the_stored_name_as_long_as_no_other_index_has_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lakewake.open(config) as lake:
        lake.rename("wines", "reds")
        with pytest.raises(lakewake.ConfigError, match="no index 'wines'"):
            lake["wines"]
    for command in (["status", "wines"], ["search", "wines", "smoky"]):
        assert run([*command, "--json", "--config", str(config)]) in (0, 3)
        assert '"reds"' in capsys.readouterr().out
    section = config.read_text().replace("reds", "wines").replace('stored_as = "wines"', "")
    other = section.replace("lance://index", "lance://other")
    config.write_text(f"{config.read_text()}\n{other}")
    assert run(["status", "wines", "--json", "--config", str(config)]) == 3
    assert '"reds"' not in capsys.readouterr().out


def test_a_renamed_index_is_dropped_whole(config: Path, tmp_path: Path) -> None:
    with lakewake.open(config) as lake:
        removed = lake["wines"].drop(dry_run=True).removed
        report = lake.rename("wines", "reds").drop()
        assert (report.index, report.removed) == ("reds", removed)
        assert not lake["reds"].status().built


def test_an_index_that_was_not_built_can_be_renamed(config: Path) -> None:
    with lakewake.open(config) as lake:
        lake["wines"].drop()
        assert not lake.rename("wines", "reds").status().built


def test_a_failed_rename_leaves_the_indexes_as_they_were(config: Path) -> None:
    with lakewake.open(config) as lake:
        index = lake["wines"]
        for old, new in (("wines", "wines"), ("nothing", "reds"), ("wines", "a b")):
            with pytest.raises(lakewake.ConfigError):
                lake.rename(old, new)
        assert lake.names == ("wines",)
        assert lake["wines"] is index


def test_the_command_can_be_run_again(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(["rename", "wines", "reds", "--config", str(config)]) == 0
        assert "wines: renamed to reds" in capsys.readouterr().out
    assert run(["rename", "wines", "whites", "--json", "--config", str(config)]) == 2
    assert "there is no index 'wines'" in json.loads(capsys.readouterr().out)["fact"]
    assert run(["rename", "reds", "wines", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["stored_as"] == "wines"
    assert "stored_as" not in config.read_text()
