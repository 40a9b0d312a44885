"""Data files damaged under a server and a watch: both report it, and the watch rebuilds it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lakewake.api import Index
from lakewake.errors import IndexDamaged, IndexMissing, StoreError, StoreUnreachable
from lakewake.model.plan import Action
from lakewake.store.lance.store import LanceStore
from lakewake.sync.watch import damage_of, sync_or_heal
from support.sampling import rid, values
from support.serving import WINES, DiskLake, asking, served_index

SEARCH = "/indexes/sample/search"
Damage = Callable[[Path], None]


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite(file: Path) -> None:
    file.write_bytes(os.urandom(file.stat().st_size))


def spoil_the_middle(file: Path) -> None:
    """Damage that only reading reveals: length and end stay the same."""
    content = file.read_bytes()
    file.write_bytes(content[:64] + b"\0" * (len(content) - 1400) + content[-1336:])


SEEN = [remove, empty, cut, overwrite]


@pytest.fixture
def lake(tmp_path: Path) -> DiskLake:
    made = DiskLake(tmp_path)
    made.write()
    made.write({rid("late"): values("a late vintage", 7)})
    return made


def index_of(lake: DiskLake, *, store: LanceStore | None = None) -> Index:
    from dataclasses import replace

    parts = replace(lake.parts, store=store or lake.store)
    return served_index(lake.table, parts=lambda _: parts)


def data_files(lake: DiskLake) -> list[Path]:
    """Data files, oldest first. The newest holds the frontier, which every open needs."""
    found = (lake.config.parent / "index").glob("*.lance/data/*.lance")
    return sorted(found, key=lambda file: file.stat().st_mtime_ns)


def health_of(client: TestClient) -> tuple[int, bool, bool, bool]:
    """The answers of /ready, `fresh` in the list, and the two metrics."""
    lines = client.get("/metrics").text.splitlines()
    up, fresh = (f'lakewake_{n}{{index="sample"}} 1.0' in lines for n in ("up", "fresh"))
    listed = client.get("/indexes").json()["indexes"][0]["fresh"]
    return client.get("/ready").status_code, listed, up, fresh


@pytest.mark.parametrize("damage", SEEN)
def test_readiness_and_metrics_report_a_damaged_data_file(lake: DiskLake, damage: Damage) -> None:
    with asking(index_of(lake)) as client:
        assert health_of(client) == (200, True, True, True)
        damage(data_files(lake)[0])
        assert health_of(client) == (503, False, False, False)
        why = client.get("/ready").json()["indexes"][0]["why"]
        assert "index 'sample' cannot be read, it is damaged: " in why
        status = client.get("/indexes/sample/status")
        assert (status.status_code, "--rebuild" in status.json()["hint"]) == (503, True)


def test_a_file_with_damaged_content_is_found_by_reading(lake: DiskLake) -> None:
    spoil_the_middle(data_files(lake)[0])
    opened = LanceStore(str(lake.config.parent / "index"), "sample")
    with asking(index_of(lake, store=opened)) as client:
        assert client.post(SEARCH, json={"text": "smoky"}).status_code == 503
        assert health_of(client) == (503, False, False, False)


def test_an_index_is_ready_again_once_its_file_is_back(lake: DiskLake) -> None:
    file = data_files(lake)[0]
    content = file.read_bytes()
    with asking(index_of(lake)) as client:
        empty(file)
        assert health_of(client)[0] == 503
        file.write_bytes(content)
        assert health_of(client) == (200, True, True, True)


def test_a_missing_deletion_file_is_damage_too(lake: DiskLake) -> None:
    file = next((lake.config.parent / "index").glob("*.lance/_deletions/*"))
    file.unlink()
    with pytest.raises(IndexDamaged, match="is not there"):
        index_of(lake).probe()


def test_readiness_and_metrics_report_a_missing_table(lake: DiskLake) -> None:
    with asking(index_of(lake)) as client:
        shutil.rmtree(lake.config.parent / "table")
        assert health_of(client) == (503, False, False, False)
        assert "there is no table at" in client.get("/ready").json()["indexes"][0]["why"]
        # The index itself is sound.
        assert client.post(SEARCH, json={"text": "smoky"}).status_code == 200


@pytest.mark.parametrize("damage", [*SEEN, spoil_the_middle])
def test_the_watch_rebuilds_a_damaged_index_and_embeds_nothing(
    lake: DiskLake, damage: Damage
) -> None:
    damage(data_files(lake)[0])
    index, said = index_of(lake, store=_fresh(lake)), list[str]()
    report = sync_or_heal(index, said.append)
    assert (report.action, report.embedded) == (Action.BUILD, 0)
    assert report.reused == len(WINES) + 1
    assert "sample" in report.why
    assert "building it again" in said[0]
    assert index.search("smoky red with leather", k=1).hits[0].key == "smoky"
    assert sync_or_heal(index, said.append).action is Action.NOTHING
    assert len(said) == 1


def test_the_watch_rebuilds_an_index_whose_dataset_was_removed(lake: DiskLake) -> None:
    shutil.rmtree(next((lake.config.parent / "index").glob("*.lance")))
    report = sync_or_heal(index_of(lake), lambda _: None)
    assert (report.action, report.embedded) == (Action.BUILD, 0)


@pytest.mark.parametrize("damage", [*SEEN, spoil_the_middle])
def test_a_watch_that_starts_on_a_damaged_frontier_rebuilds_the_index(
    lake: DiskLake, damage: Damage
) -> None:
    for file in data_files(lake):
        damage(file)
    report = sync_or_heal(index_of(lake, store=_fresh(lake)), lambda _: None)
    assert (report.action, report.embedded) == (Action.BUILD, 0)


def test_an_empty_manifest_is_damage(lake: DiskLake) -> None:
    for file in (lake.config.parent / "index").glob("*.lance/_versions/*.manifest"):
        empty(file)
    report = sync_or_heal(index_of(lake, store=_fresh(lake)), lambda _: None)
    assert (report.action, report.embedded) == (Action.BUILD, 0)


def test_a_foreign_dataset_is_not_damage(lake: DiskLake) -> None:
    import lance
    import pyarrow as pa

    location = next((lake.config.parent / "index").glob("*.lance"))
    lance.write_dataset(pa.table({"a": [1, 2]}), location, mode="overwrite")
    index = index_of(lake, store=_fresh(lake))
    assert damage_of(index) is None
    with pytest.raises(StoreError, match="not an index that this Lakewake reads"):
        sync_or_heal(index, lambda _: None)


def test_damage_is_an_error_if_reading_the_whole_table_was_ruled_out(lake: DiskLake) -> None:
    remove(data_files(lake)[0])
    with pytest.raises(IndexDamaged):
        sync_or_heal(index_of(lake), lambda _: None, reconcile=False)


def test_a_sound_index_is_followed_and_a_missing_one_is_built(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.table.upsert(WINES)
    index = index_of(lake)
    assert sync_or_heal(index, pytest.fail).action is Action.BUILD
    lake.table.upsert({rid("late"): values("a late vintage", 7)})
    assert sync_or_heal(index, pytest.fail).action is Action.FOLLOW


@pytest.mark.parametrize("error", [StoreUnreachable, IndexMissing, StoreError])
def test_an_error_that_may_not_be_damage_does_not_cause_a_rebuild(
    lake: DiskLake, error: type[StoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(lake)

    def fails() -> None:
        raise error("the store did not answer")

    monkeypatch.setattr(index, "probe", fails)
    assert damage_of(index) is None


def test_a_rebuild_needs_nothing_of_the_index_that_it_replaces(lake: DiskLake) -> None:
    opened = _fresh(lake)
    index = index_of(lake, store=opened)
    index.probe()  # a passed check is cached for a while
    spoil_the_middle(data_files(lake)[0])
    report = index.sync(rebuild=True)
    assert (report.embedded, report.reused) == (0, len(WINES) + 1)
    assert index.search("smoky red with leather", k=1).hits[0].key == "smoky"


def test_a_damaged_approximate_index_is_damage(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.store = LanceStore(str(tmp_path / "index"), "sample", ann_min_chunks=300)
    lake.parts = replace(lake.parts, store=lake.store)
    lake.write({rid(f"k{n}"): values(f"text number {n}", n) for n in range(400)})
    reader: Any = index_of(lake).parts.store.open()
    assert reader._coverage.partitions
    index_of(lake).probe()
    for file in (tmp_path / "index").glob("*.lance/_indices/*/*"):
        empty(file)
    with pytest.raises(StoreError):
        index_of(lake, store=_fresh(lake)).probe()


def _fresh(lake: DiskLake) -> LanceStore:
    """The store as another process opens it."""
    return LanceStore(str(lake.config.parent / "index"), "sample")
