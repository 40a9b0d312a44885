"""Dropping an index in the lake, without Spark: which files go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakewake.model.drop import Dropped
from lakewake.store.address import find_indexes
from lakewake.store.hudi.drop import Dropping
from lakewake.store.hudi.generations import Generation, Generations
from lakewake.store.location import location_at

TABLE = "g1-0123456789ab"
OURS = (
    *("g1.json", f"{TABLE}/.hoodie/hoodie.properties", f"{TABLE}/lakewake_cell=0/a.parquet"),
    *("g2-ba9876543210/.hoodie/x", "searching-g1.json", "words/g1/a.words", "staging/ab/c.parquet"),
    *("pins/ab", "wines.deleted", ".0123456789abcdef0123456789abcdef"),
)
THEIRS = ("README", f"{TABLE}/notes.txt", "g1-backup/a", "searching.json", "other.deleted")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*OURS, *THEIRS, "lock", "wines.history/a.json"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    claim = {"format": 1, "generation": 1, "table": TABLE}
    (tmp_path / "g1.json").write_text(json.dumps(claim))
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def names(addresses: tuple[str, ...], folder: Path) -> set[str]:
    return {str(Path(a).relative_to(folder)) for a in addresses}


def drop(folder: Path) -> Dropped:
    dropping = Dropping(Generations(location_at(str(folder)), "wines"))
    return dropping.drop(lambda: None)


def test_everything_of_the_index_goes_and_nothing_else(folder: Path) -> None:
    report = drop(folder)
    assert files(folder) == {*THEIRS, "lock", "g2.json", "wines.history/a.json"}
    assert names(report.marks, folder) == {"g2.json", "lock"}
    tops = {name.partition("/")[0] for name in OURS}
    assert names(report.removed, folder) == tops
    assert names(report.foreign, folder) == {n.removesuffix("/a") for n in THEIRS}
    assert drop(folder).removed == ()


def test_a_builder_that_still_runs_cannot_claim_its_number(folder: Path) -> None:
    drop(folder)
    generations = Generations(location_at(str(folder)), "wines")
    assert not generations.claim(Generation(2, "g2-ba9876543210"))
    assert generations.active() == Generation()
    assert generations.highest() == 2
    assert generations.claim(Generation(3, "g3-ba9876543210"))
    assert generations.active() == Generation(3, "g3-ba9876543210")


def test_a_claim_that_nobody_can_read_is_dropped_too(folder: Path) -> None:
    (folder / "g1.json").write_text("{not json")
    drop(folder)
    assert Generations(location_at(str(folder)), "wines").active() == Generation()


def test_a_dropped_index_is_not_listed(folder: Path) -> None:
    assert [a.store for a in find_indexes(str(folder))] == [f"hudi://{folder}"]
    drop(folder)
    assert find_indexes(str(folder)) == ()
