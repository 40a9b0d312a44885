"""Upkeep of a Lance index by executors: parts, one commit, and the same answers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakewake.errors import StoreError
from lakewake.model.chunks import Batch
from lakewake.model.query import Query, Words
from lakewake.model.recall import RECALL
from lakewake.model.rows import RowId
from lakewake.store.executors import grouped
from lakewake.store.lance.recall import coverage_of
from lakewake.store.lance.store import LanceStore
from lakewake.testing.samples import batch, chunk, frontier
from support.executing import LocalExecutors
from support.fragments import ROWS, build, dataset_of, opened, recall_of, recipe, rows, vectors


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows()


@pytest.fixture
def executors() -> LocalExecutors:
    return LocalExecutors()


@pytest.fixture
def built(tmp_path: Path, table: pa.Table, executors: LocalExecutors) -> LanceStore:
    store = opened(tmp_path / "index", executors)
    build(store, table)
    return store


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_executors_build_an_approximate_index_that_keeps_the_recall(
    tmp_path, table, executors, metric
):
    store = opened(tmp_path / "index", executors)
    build(store, table, metric)
    done = store.maintain()
    assert (done["chunks_indexed"], done["lookups_made"], done["texts_indexed"]) == (ROWS, 3, ROWS)
    there = coverage_of(dataset_of(store))
    # Lance counts the row of the checkpoint too.
    assert (there.partitions, there.covered, there.kind) == (11, ROWS + 1, "ivf_rq")
    [vector] = [i for i in dataset_of(store).describe_indices() if i.field_names == ["_vector"]]
    assert len(vector.segments) == 1
    assert store.open().searching().mode == "approximate"
    assert store.open().searching().kind == "ivf_rq"
    assert recall_of(store) >= RECALL
    assert store.maintain() == {}


def test_every_large_step_is_done_by_executors(built, executors):
    built.maintain()
    assert executors.ran.count("train") == 1
    assert executors.ran.count("vector_part") == 3
    assert executors.ran.count("lookup_part") == 9
    assert executors.ran.count("merge") == 4
    assert executors.ran.count("words") == 3
    assert executors.ran.count("nearest_distances") == 3
    assert "shares" in executors.ran


def test_few_chunks_are_tended_without_executors(tmp_path, table, executors):
    store = opened(tmp_path / "index", executors)
    build(store, table.slice(0, 1_900))
    store.maintain()
    assert executors.ran == []


def test_the_index_answers_as_one_that_one_process_tended(built, tmp_path, table):
    alone = opened(tmp_path / "alone", None)
    build(alone, table)
    built.maintain()
    alone.maintain()
    one, other = built.open(), alone.open()
    for text in ("red", "plum smoke", "oak 17"):
        assert one.keyword(Words(text, 20)).equals(other.keyword(Words(text, 20)))
    wanted = [RowId("p", str(n)) for n in (0, 17, ROWS - 1)]
    assert one.existing(wanted) == other.existing(wanted)
    assert len(one.vectors([row["_hash"] for row in table.slice(0, 50).to_pylist()])) == 50
    names = [{i.name for i in dataset_of(s).describe_indices()} for s in (built, alone)]
    assert names[0] == names[1]


def test_chunks_that_come_later_are_added_by_an_executor(built, executors, monkeypatch, table):
    monkeypatch.setattr("lakewake.store.lance.upkeep.MIN_WAITING", 10)
    built.maintain()
    new = [chunk(f"n{n}", f"new {n}", _vector=vectors()[n].tolist()) for n in range(40)]
    built.commit(batch(*new, schema=table.schema), frontier(1), frontier(2))
    assert built.maintain() == {"chunks_indexed": 40}
    assert "optimize" in executors.ran
    assert coverage_of(dataset_of(built)).covered == ROWS + 41
    assert built.open().searching().mode == "approximate"
    assert len(built.open().existing([RowId("p", "n7")])) == 1
    assert built.maintain() == {}


@pytest.mark.parametrize("at", ["train", "vector_part", "merge", "lookup_part", "words"])
def test_a_crash_before_the_commit_leaves_nothing_visible(built, executors, at, table):
    def crash(name: str) -> None:
        if name == at and executors.ran.count(name) == (1 if at.endswith("part") else 0):
            raise KeyboardInterrupt

    before = built.open().frontier()
    executors.before = crash
    with pytest.raises(KeyboardInterrupt):
        built.maintain()
    described = {i.field_names[0]: i for i in dataset_of(built).describe_indices()}
    assert "_vector" not in described
    assert built.open().frontier() == before
    assert recall_of(built) == 1.0
    executors.before = lambda name: None
    built.maintain()
    assert coverage_of(dataset_of(built)).covered == ROWS + 1
    assert recall_of(built) >= RECALL


def test_a_failed_task_is_reported_and_the_next_upkeep_does_the_work(built, executors):
    def fail(name: str) -> None:
        if name == "vector_part":
            raise StoreError("the machine is gone", hint="start it")

    executors.before = fail
    with pytest.raises(StoreError, match="machine is gone"):
        built.maintain()
    assert recall_of(built) == 1.0
    executors.before = lambda name: None
    assert built.maintain()["chunks_indexed"] == ROWS


@pytest.mark.parametrize("again", [False, True], ids=["first index", "index made again"])
@pytest.mark.parametrize("interference", ["commit", "delete", "compaction", "upkeep", "rebuild"])
def test_a_writer_that_comes_between_parts_and_commit_costs_no_row(
    tmp_path, table, executors, interference, again
):
    store, other = opened(tmp_path / "index", executors), opened(tmp_path / "index", None)
    build(store, table)
    if again:
        opened(tmp_path / "index", None, "ivf_sq").maintain()
    reader = other.open()
    new = chunk("new", "new", _vector=vectors()[3].tolist())
    gone = chunk("5", "")["_id"]
    done: list[str] = []

    def interfere(name: str) -> None:
        if name != "merge" or done or executors.ran.count("vector_part") == 0:
            return
        done.append(interference)
        match interference:
            case "commit":
                other.commit(batch(new, schema=reader.schema()), frontier(1), frontier(2))
            case "delete":
                nothing = batch(schema=reader.schema(), deletes=(gone,))
                other.commit(nothing, frontier(1), frontier(2))
            case "compaction":
                dataset_of(other).optimize.compact_files(target_rows_per_fragment=ROWS)
            case "upkeep":
                other.maintain()
            case _:
                fresh = opened(tmp_path / "index", None)
                again = Batch(table.schema, table.to_reader)
                fresh.create(recipe(), again, frontier(3), after=1)

    executors.before = interfere
    store.maintain()
    assert done
    after = opened(tmp_path / "index", executors)
    for _ in range(2):
        expected = {"commit": ROWS + 1, "delete": ROWS - 1}.get(interference, ROWS)
        assert after.open().counts() == (expected, expected)
        assert recall_of(after) >= RECALL
        assert bool(after.open().existing([RowId("p", "new")])) == (interference == "commit")
        assert bool(after.open().existing([RowId("p", "5")])) == (interference != "delete")
        found = after.open().search(Query(vectors()[3], 2))
        assert ("new" in found["_key"].to_pylist()) == (interference == "commit")
        after.maintain()
    there = coverage_of(after._versions.dataset(2 if interference == "rebuild" else 1))
    assert (there.kind, there.covered >= ROWS - 1) == ("ivf_rq", True)


@pytest.mark.parametrize(
    ("sizes", "groups", "least", "found"),
    [
        ({0: 10, 1: 10, 2: 10, 3: 10}, 2, 1, [(0, 2), (1, 3)]),
        ({0: 30, 1: 10, 2: 10, 3: 10}, 2, 1, [(0,), (1, 2, 3)]),
        ({0: 10}, 4, 1, [(0,)]),
        ({0: 100, 1: 1}, 2, 5, [(0, 1)]),
        ({0: 1, 1: 1}, 2, 5, [(0, 1)]),
        ({}, 2, 1, []),
    ],
)
def test_fragments_are_grouped_evenly_and_no_group_is_almost_empty(sizes, groups, least, found):
    assert grouped(sizes, groups, least=least) == found
