"""What an index in the lake says about itself, and who may claim a generation."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from lakewake.errors import IndexDamaged, StoreError, StoreUnreachable
from lakewake.store.hudi.generations import Generations
from lakewake.store.hudi.layout import CELL, DELETED, NOTES, About, frontier_notes, notes, removals
from support.store_contract import SCHEMA, chunk, recipe


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
    return Generations(folder / "index", "wines")


def built(made: Generations, number: int) -> Path:
    """A table that looks whole."""
    table = made.new_table(number)
    (table / ".hoodie").mkdir(parents=True)
    (table / ".hoodie" / "hoodie.properties").touch()
    return table


def test_the_highest_claimed_generation_is_active(tmp_path: Path) -> None:
    made = generations(tmp_path)
    assert made.active() == (0, made.folder)
    first, second = built(made, 1), built(made, 2)
    assert made.claim(1, first)
    assert made.claim(2, second)
    assert made.active() == (2, second)


def test_a_generation_is_claimed_once(tmp_path: Path) -> None:
    made = generations(tmp_path)
    tables = [built(made, 1) for _ in range(4)]
    claims: list[bool] = []
    gate = threading.Barrier(4)

    def claim(table: Path) -> None:
        gate.wait()
        claims.append(made.claim(1, table))

    threads = [threading.Thread(target=claim, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claims) == [False, False, False, True]
    assert made.active()[1] in tables
    assert [p.name for p in made.folder.glob(".*")] == []


def test_former_generations_and_unclaimed_tables_are_removed(tmp_path: Path) -> None:
    made = generations(tmp_path)
    first, lost, second = built(made, 1), built(made, 1), built(made, 2)
    made.claim(1, first)
    made.claim(2, second)
    assert made.retire(before=2) == 2
    assert [p.exists() for p in (first, lost, second)] == [False, False, True]
    assert made.active() == (2, second)


def test_a_lost_table_and_a_damaged_claim_are_reported(tmp_path: Path) -> None:
    made = generations(tmp_path)
    made.claim(1, built(made, 1))
    claim = made.folder / "g1.json"
    claim.write_text(json.dumps({"format": 1, "generation": 1, "table": "g1-gone"}))
    with pytest.raises(IndexDamaged, match="is not there"):
        made.active()
    claim.write_text("{}")
    with pytest.raises(IndexDamaged, match="does not name the table"):
        made.active()
    assert made.highest() == 1


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    with pytest.raises(StoreUnreachable, match="it is a file"):
        generations(tmp_path).active()


def test_a_second_writer_waits_and_then_gives_up(tmp_path: Path) -> None:
    made = generations(tmp_path)
    with (
        made.lock(),
        pytest.raises(StoreError, match="another process has been writing"),
        made.lock(0),
    ):
        pass
    with made.lock(0):
        pass


def test_staged_files_and_pins_of_live_processes_are_kept(tmp_path: Path) -> None:
    made = generations(tmp_path)
    with made.staging() as folder:
        made.forget()
        assert folder.is_dir()
    assert not folder.exists()
    assert not made.is_pinned()
    (made.folder / "pins").mkdir()
    (made.folder / "pins" / "one").touch()
    assert made.is_pinned()
