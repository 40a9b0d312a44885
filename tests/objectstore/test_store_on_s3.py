"""The store's contract in a bucket, and how generations are named, switched and removed there."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import lance
import pytest
from pyarrow.fs import FileSelector

from lakewake.errors import StaleFrontier, StoreError
from lakewake.store import Store
from lakewake.store.lance.store import LanceStore
from lakewake.store.lance.upkeep import KEEP_VERSIONS
from lakewake.store.registry import open_store
from lakewake.testing.samples import as_stored, batch, chunk, contents, frontier, recipe
from lakewake.testing.stores import StoreContract

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1800)]
FOLDER = "my index %20 #1 ü"


class TestLanceOnS3(StoreContract):
    @pytest.fixture
    def store(self, bucket: str) -> Store:
        return open_store(f"lance+s3://{bucket}/{FOLDER}", "wines")


@pytest.fixture
def address(bucket: str) -> str:
    return f"s3://{bucket}/index"


@pytest.fixture
def built(address: str) -> LanceStore:
    store = LanceStore(address, "wines")
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    return store


def names(files, bucket: str, folder: str = "index") -> list[str]:
    found = files.get_file_info(FileSelector(f"{bucket}/{folder}", allow_not_found=True))
    return sorted(f.base_name for f in found)


def put(files, path: str, content: bytes) -> None:
    with files.open_output_stream(path) as stream:
        stream.write(content)


def rebuilt(store: LanceStore) -> None:
    store.create(recipe("dot"), batch(chunk("z")), frontier(2), after=1)


def test_a_small_object_names_the_active_generation(built, files, bucket):
    rebuilt(built)
    with files.open_input_stream(f"{bucket}/index/wines.json") as stream:
        said = json.loads(stream.read())
    assert said == {"format": 1, "generation": 2, "dataset": "wines.g2.lance"}
    assert names(files, bucket) == ["wines.g1.lance", "wines.g2.lance", "wines.json"]


@pytest.mark.parametrize("folder", ["index", FOLDER])
def test_upkeep_removes_older_generations_with_all_their_objects(folder, files, bucket):
    store = LanceStore(f"s3://{bucket}/{folder}", "wines")
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    for n in range(1, 4):
        store.commit(batch(chunk(f"k{n}")), frontier(n), frontier(n + 1))
    rebuilt(store)
    assert store.maintain() == {"generations_removed": 1}
    assert names(files, bucket, folder) == ["wines.g2.lance", "wines.json"]
    assert store.maintain() == {}
    assert contents(store.open()) == as_stored(chunk("z"))


def test_leftovers_of_a_killed_deletion_are_removed_by_the_next(built, files, bucket):
    rebuilt(built)
    versions = FileSelector(f"{bucket}/index/wines.g1.lance/_versions")
    for manifest in files.get_file_info(versions):
        files.delete_file(manifest.path)
    assert built.maintain() == {"generations_removed": 1}
    assert contents(built.open()) == as_stored(chunk("z"))


def test_two_indexes_in_one_folder_leave_each_other_alone(built, address):
    beers = LanceStore(address, "beers")
    beers.create(recipe(), batch(chunk("b")), frontier(1), after=0)
    rebuilt(built)
    built.maintain()
    assert contents(beers.open()) == as_stored(chunk("b"))


def test_a_build_without_a_written_pointer_is_active(built, address, files, bucket):
    files.delete_file(f"{bucket}/index/wines.json")
    fresh = LanceStore(address, "wines")
    assert contents(fresh.open()) == as_stored(chunk("a"))
    assert fresh.maintain() == {"pointer_written": 1}
    assert fresh.maintain() == {}


def test_a_killed_build_without_a_manifest_does_not_block(address, files, bucket):
    put(files, f"{bucket}/index/wines.g1.lance/data/half.lance", b"half")
    store = LanceStore(address, "wines")
    assert store.open() is None
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    assert contents(store.open()) == as_stored(chunk("a"))


def test_a_damaged_pointer_is_an_error_and_a_rebuild_repairs_it(built, files, bucket):
    put(files, f"{bucket}/index/wines.json", b"{")
    with pytest.raises(StoreError, match=r"wines\.json"):
        built.open()
    rebuilt(built)
    assert contents(built.open()) == as_stored(chunk("z"))


def test_an_old_batch_does_not_land_in_a_newer_generation(built, address):
    built.open()
    rebuilt(LanceStore(address, "wines"))
    with pytest.raises(StaleFrontier, match="generation 2"):
        built.commit(batch(chunk("d")), frontier(1), frontier(2))


def test_one_of_many_writers_from_the_same_frontier_lands(built, address):
    def commit(writer: int) -> int | None:
        try:
            store = LanceStore(address, "wines")
            store.commit(batch(chunk(f"w{writer}")), frontier(1), frontier(2, str(writer)))
        except StaleFrontier:
            return None
        return writer

    with ThreadPoolExecutor(6) as pool:
        landed = [w for w in pool.map(commit, range(6)) if w is not None]
    assert len(landed) == 1
    assert contents(built.open()) == as_stored(chunk("a"), chunk(f"w{landed[0]}"))


def test_upkeep_drops_old_versions_by_the_age_of_their_objects(built, address, monkeypatch):
    for n in range(1, KEEP_VERSIONS + 5):
        built.commit(batch(), frontier(n), frontier(n + 1))
    assert built.maintain() == {}
    monkeypatch.setattr("lakewake.store.lance.upkeep.KEEP_FOR", timedelta(microseconds=1))
    monkeypatch.setattr("lakewake.store.lance.upkeep.MAX_OLD_VERSIONS", 5)
    assert built.maintain() == {"versions_removed": 5}
    options = {"allow_http": "true"}
    left = lance.dataset(f"{address}/wines.g1.lance", storage_options=options).versions()
    assert len(left) == KEEP_VERSIONS
