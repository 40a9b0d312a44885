"""What an index in the lake says about itself, and who may claim a generation."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lakewake.errors import IndexDamaged, StoreError, StoreUnreachable
from lakewake.store.deleted import KEPT
from lakewake.store.hudi.generations import Generation, Generations
from lakewake.store.hudi.layout import CELL, DELETED, NOTES, About, frontier_notes, notes, removals
from lakewake.store.hudi.lock import FileLock
from lakewake.store.hudi.table import bury, completed, pending
from lakewake.store.hudi.writer import SAMPLED, sampled
from lakewake.store.location import Folder
from lakewake.testing.samples import SCHEMA, chunk, recipe


def test_an_index_describes_itself() -> None:
    about = About("wines", recipe("dot"), SCHEMA)
    again = About.from_json(about.to_json())
    assert (again.name, again.recipe) == ("wines", recipe("dot"))
    assert again.schema.equals(SCHEMA)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 2}', "no json"])
def test_another_description_is_refused(text: str) -> None:
    with pytest.raises((ValueError, AttributeError)):
        About.from_json(text)


def test_notes_have_no_vector_and_are_in_a_cell_of_their_own() -> None:
    rows = notes(SCHEMA, {"a": "text", "b": None}).to_pylist()
    assert [(r["_id"], r["_checkpoint"], r[DELETED]) for r in rows] == [
        ("a", "text", False),
        ("b", None, True),
    ]
    assert {r[CELL] for r in rows} == {NOTES}
    assert {r["_vector"] for r in rows} == {None}


def test_a_removal_names_a_chunk_and_its_cell() -> None:
    rows = removals(SCHEMA, [chunk("a")["_id"]], [7]).to_pylist()
    assert [(r["_id"], r[CELL], r[DELETED]) for r in rows] == [(chunk("a")["_id"], 7, True)]


def test_pages_that_a_frontier_no_longer_has_are_deleted() -> None:
    assert frontier_notes("{}", {"new": "1"}, {"old"}) == {
        "__checkpoint__": "{}",
        "__page__old": None,
        "__page__new": "1",
    }


def generations(folder: Path) -> Generations:
    return Generations(Folder(folder / "index"), "wines")


def built(made: Generations, folder: Path, number: int) -> str:
    """A table that looks whole."""
    table = made.new_table(number)
    meta = folder / "index" / table / ".hoodie"
    meta.mkdir(parents=True)
    (meta / "hoodie.properties").touch()
    return table


def test_the_highest_claimed_generation_is_active(tmp_path: Path) -> None:
    made = generations(tmp_path)
    assert made.active() == Generation()
    first, second = built(made, tmp_path, 1), built(made, tmp_path, 2)
    assert made.claim(Generation(1, first))
    assert made.claim(Generation(2, second))
    assert made.active() == Generation(2, second)


def test_a_generation_is_claimed_once(tmp_path: Path) -> None:
    made = generations(tmp_path)
    tables = [built(made, tmp_path, 1) for _ in range(4)]
    claims: list[bool] = []
    gate = threading.Barrier(4)

    def claim(table: str) -> None:
        gate.wait()
        claims.append(made.claim(Generation(1, table)))

    threads = [threading.Thread(target=claim, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claims) == [False, False, False, True]
    assert made.active().table in tables
    assert [p.name for p in (tmp_path / "index").glob(".*")] == []


def test_former_generations_and_unclaimed_tables_are_removed(tmp_path: Path) -> None:
    made = generations(tmp_path)
    first, lost, second = (built(made, tmp_path, n) for n in (1, 1, 2))
    made.claim(Generation(1, first))
    made.claim(Generation(2, second))
    assert made.retire(before=2) == 2
    exist = [(tmp_path / "index" / table).exists() for table in (first, lost, second)]
    assert exist == [False, False, True]
    assert made.active() == Generation(2, second)


def test_a_retrained_generation_names_its_former_one(tmp_path: Path) -> None:
    made = generations(tmp_path)
    tables = [built(made, tmp_path, n) for n in (1, 2, 3)]
    first, second = Generation(1, tables[0]), Generation(2, tables[1], 1, "20260101000000000")
    third = Generation(3, tables[2], 2, "20260102000000000")
    for one in (first, second, third):
        assert made.claim(one)
    assert list(made.lineage()) == [third, second, first]
    made.retire(before=2)
    assert list(made.lineage()) == [third, second]
    rebuilt = Generation(4, built(made, tmp_path, 4))
    assert made.claim(rebuilt)
    assert list(made.lineage()) == [rebuilt]


def test_a_damaged_claim_is_reported(tmp_path: Path) -> None:
    made = generations(tmp_path)
    made.claim(Generation(1, built(made, tmp_path, 1)))
    (tmp_path / "index" / "g1.json").write_text("{}")
    with pytest.raises(IndexDamaged, match="does not name the table"):
        made.active()
    assert made.highest() == 1


def test_a_table_without_a_commit_is_gone_or_was_never_finished(tmp_path: Path) -> None:
    made = generations(tmp_path)
    assert "is not there" in made.without_commit("g1-gone").fact
    assert "has no completed commit" in made.without_commit(built(made, tmp_path, 1)).fact


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    with pytest.raises(StoreUnreachable, match="it is a file"):
        generations(tmp_path).active()


def test_a_second_writer_waits_and_then_gives_up(tmp_path: Path) -> None:
    lock = FileLock(Folder(tmp_path / "index"), "wines")
    with (
        lock.held(),
        pytest.raises(StoreError, match="another process has been writing"),
        lock.held(0),
    ):
        pass
    with lock.held(0) as hold:
        hold.check()


def test_staged_files_and_pins_of_live_processes_are_kept(tmp_path: Path) -> None:
    made = generations(tmp_path)
    with made.staging() as folder:
        made.forget()
        assert (tmp_path / "index" / folder).is_dir()
    assert not (tmp_path / "index" / folder).exists()
    assert not made.is_pinned()
    pin = tmp_path / "index" / "pins" / "one"
    pin.parent.mkdir()
    pin.touch()
    assert made.is_pinned()


def test_staged_files_and_pins_of_dead_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    made, index = generations(tmp_path), tmp_path / "index"
    (index / "staging" / "one").mkdir(parents=True)
    (index / "pins").mkdir()
    (index / "pins" / "one").touch()
    for left in ("staging/one", "pins/one"):
        os.utime(index / left, (1, 1))
    assert not made.is_pinned()
    made.forget()
    assert sorted(p.name for p in index.rglob("*")) == ["pins", "staging"]


TIMELINE = (
    "001_002.deltacommit",
    "001.deltacommit.requested",
    "001.deltacommit.inflight",
    "003.deltacommit.requested",
    "003.deltacommit.inflight",
    "004.deltacommit.requested",
    "005.compaction.requested",
    "006_007.clean",
    "008.rollback.requested",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a completed commit and two that are pending."""
    timeline = tmp_path / "table" / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    for name in TIMELINE:
        (timeline / name).touch()
    (tmp_path / "table" / ".hoodie" / ".temp" / "003").mkdir(parents=True)
    cell = tmp_path / "table" / "lakewake_cell=0"
    cell.mkdir()
    for name in ("f_1-0-1_001.parquet", ".f_003.log.1_1-0-1", ".f_004.log.1_1-0-1"):
        (cell / name).touch()
    return tmp_path / "table"


def test_commits_and_roll_backs_that_are_not_completed_are_pending(table: Path) -> None:
    assert completed(Folder(table.parent), "table") == ("001_002.deltacommit",)
    assert {instant: len(files) for instant, files in pending(TIMELINE).items()} == {
        "003": 2,
        "004": 1,
        "008": 1,
    }


def test_commits_of_writers_that_lost_the_lock_are_removed_with_their_files(table: Path) -> None:
    bury(Folder(table.parent), "table")
    left = sorted(path.name for path in (table / "lakewake_cell=0").iterdir())
    assert left == ["f_1-0-1_001.parquet"]
    timeline = sorted(path.name for path in (table / ".hoodie" / "timeline").iterdir())
    assert timeline == sorted([*TIMELINE[:3], *TIMELINE[6:8]])
    assert not (table / ".hoodie" / ".temp" / "003").exists()


def test_the_sample_of_removed_chunks_is_from_all_cells_and_larger_after_many_removals() -> None:
    ids = [f"cell {n // 500} chunk {n}" for n in range(10_000)]
    cells = {id.split()[1] for id in sampled(ids)}
    assert (len(sampled(ids)), len(cells)) == (KEPT, 20)
    assert len(sampled(ids[:200])) == SAMPLED
    assert sorted(sampled(ids[:5])) == ids[:5]
