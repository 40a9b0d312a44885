"""Rows processed by tasks, as on executors: the same index, the same counts, no text twice."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakewake.embed.cache import FILE, SqliteVectorCache
from lakewake.embed.registry import kept_embedder
from lakewake.errors import EmbedError, SetupError, StoreError
from lakewake.model.chunks import text_hash
from lakewake.model.plan import Action
from lakewake.model.rows import Changes, Work
from lakewake.source.distributed import MOST_PARTS, PART_BYTES, PART_ROWS, parts_of
from lakewake.source.memory import MemoryTable
from lakewake.store.lance.store import LanceStore
from lakewake.store.memory import MemoryStore
from lakewake.sync import SyncOptions, sync
from support.oracle import built_from_nothing, indexed
from support.sampling import HASHING, SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

PARTS = 3


@pytest.fixture(autouse=True)
def counted() -> list[str]:
    """What the one embedder of all tasks received."""
    embedder: Any = kept_embedder(HASHING)
    received: list[str] = embedder.received
    received.clear()
    return received


@pytest.fixture(params=["memory", "lance"])
def distributed(request, tmp_path: Path) -> SampleParts:
    """An index whose rows are processed by tasks."""
    store = MemoryStore() if request.param == "memory" else LanceStore(str(tmp_path), "sample")
    made = sample_parts(store=store, model=HASHING)
    made.table.parts = PARTS
    return made


def write_some(table: MemoryTable) -> None:
    table.upsert({rid(f"k{n}"): values(f"text {n % 15}", n) for n in range(20)})


def change_some(table: MemoryTable) -> None:
    table.upsert({rid(f"k{n}"): values(f"changed {n}", n) for n in range(4)})
    table.upsert({rid("k5"): values(None), rid("k6"): values("text 6", 99), rid("k7"): values("")})
    table.delete([rid("k9"), rid("k10")])


def counts(parts: SampleParts, options: SyncOptions) -> dict[str, Any]:
    report = sync(parts, options).as_dict()
    del report["seconds"]
    return report


@pytest.mark.parametrize(
    "options", [SyncOptions(), SyncOptions(reconcile=True), SyncOptions(rebuild=True)], ids=str
)
def test_several_tasks_make_the_same_index_and_report_as_one(options, distributed, counted):
    alone = sample_parts()
    for parts in (distributed, alone):
        write_some(parts.table)
    assert counts(distributed, SyncOptions()) == counts(alone, SyncOptions())
    assert indexed(distributed) == indexed(alone)
    for parts in (distributed, alone):
        change_some(parts.table)
    assert counts(distributed, options) == counts(alone, options)
    assert indexed(distributed) == indexed(alone) == built_from_nothing(alone)
    assert sorted(counted) == sorted(alone.embedder.received)
    assert distributed.embedder.received == []


def test_a_task_without_rows_does_no_harm(distributed):
    distributed.table.upsert({rid("a"): values("one")})
    assert sync(distributed).chunks_upserted == 1
    assert indexed(distributed) == built_from_nothing(distributed)


def test_a_table_without_rows_is_built_by_tasks(distributed):
    distributed.table.upsert({rid("a"): values("one")})
    distributed.table.delete([rid("a")])
    assert sync(distributed).action is Action.BUILD
    assert indexed(distributed) == {}


def test_texts_in_the_vector_cache_are_not_embedded_by_tasks(tmp_path, counted):
    recipe = sample_recipe()
    vector_cache = SqliteVectorCache(tmp_path / FILE, recipe.model)
    parts = sample_parts(vector_cache=vector_cache, model=HASHING)
    parts.table.parts = PARTS
    parts.table.upsert({rid("a"): values("known"), rid("b"): values("new")})
    [vector] = parts.embedder.embed(["known"])
    vector_cache.put({text_hash("known"): vector})
    assert sync(parts).embedded == 1
    assert counted == ["new"]


def test_another_model_on_an_executor_is_refused_and_nothing_lands(distributed):
    write_some(distributed.table)
    with pytest.raises(SetupError, match="a different model from the driver: dimension"):
        sync(replace(distributed, model=replace(HASHING, dimension=16)))
    assert distributed.store.open() is None


class Unlucky(MemoryTable):
    """A cluster that loses the result of a task, and runs it again."""

    def snapshot(self, look) -> Changes:
        found = super().snapshot(look)

        def twice(work: Work[Any], files: Any) -> list[Any]:
            found.distributed(work, files)
            return found.distributed(work, files)

        return replace(found, distributed=twice)


def test_a_task_that_runs_twice_counts_and_lands_once(tmp_path):
    store = LanceStore(str(tmp_path), "sample")
    parts = sample_parts(Unlucky(sample_recipe(), SCHEMA), store, model=HASHING)
    parts.table.parts = PARTS
    write_some(parts.table)
    report = sync(parts)
    assert (report.rows_changed, report.chunks_upserted, report.embedded) == (20, 20, 15)
    assert indexed(parts) == built_from_nothing(parts)


class Refusing(MemoryTable):
    """A table with texts that cannot be read."""

    unread = frozenset({rid("k7"), rid("k8")})

    def _batch(self, rows, schema):
        made = super()._batch(rows, schema)
        return replace(made, undecodable=self.unread.intersection(made.ids))


def test_rows_refused_by_a_task_are_quarantined():
    parts = sample_parts(Refusing(sample_recipe(), SCHEMA), model=HASHING)
    parts.table.parts = PARTS
    write_some(parts.table)
    report = sync(parts)
    assert (report.quarantined, report.chunks_upserted) == (2, 18)
    assert parts.store.open().frontier().quarantine.keys() == Refusing.unread


def test_too_many_refused_rows_across_tasks_fail_the_sync():
    table = Refusing(sample_recipe(), SCHEMA)
    parts = sample_parts(table, model=HASHING)
    table.parts = PARTS
    table.unread = frozenset(rid(f"k{n}") for n in range(15))
    write_some(parts.table)
    with pytest.raises(EmbedError, match="refused 15 of 20 rows"):
        sync(parts)
    assert parts.store.open() is None


def test_no_staged_file_is_left_beside_the_index(tmp_path):
    parts = sample_parts(store=LanceStore(str(tmp_path), "sample"), model=HASHING)
    parts.table.parts = PARTS
    for change in (write_some, change_some):
        change(parts.table)
        sync(parts)
        assert {p.name for p in tmp_path.iterdir()} == {"sample.json", "sample.g1.lance"}


def test_an_executor_that_does_not_see_the_folder_of_the_store_is_an_error(tmp_path):
    store = LanceStore(str(tmp_path / "index"), "sample")
    with store.staging(after=0) as staging:
        shutil.rmtree(tmp_path / "index")
        with pytest.raises(StoreError, match="executors do not see the folder") as refused:
            staging.write(SCHEMA, iter(()))
    assert "all machines reach" in refused.value.hint


def test_every_core_has_a_task_and_no_task_is_too_large():
    assert parts_of(10, 10, cores=8) == 8
    assert parts_of(PART_ROWS * 20 + 1, 10, cores=8) == 21
    assert parts_of(10, PART_BYTES * 30 + 1, cores=8) == 31
    assert parts_of(10**12, 10, cores=8) == MOST_PARTS
