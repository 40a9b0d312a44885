"""Batches for an index, and processes that commit them. Tests run this module:

commit_for_ever STORE              one batch after another
create_until_killed STORE          one generation after another
commit_raced STORE WRITER RACES    each frontier in a race with another process
commit_on_a_full_disk STORE        one batch that does not fit

STORE is `lance:` and a folder, or Qdrant's folder or address.
"""

from __future__ import annotations

import resource
import signal
import sys
from contextlib import suppress
from itertools import count

import pyarrow as pa

from lakewake.errors import StaleFrontier, StoreError
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.store import Store, StoreReader
from lakewake.store.lance.store import LanceStore
from lakewake.store.qdrant.location import QdrantFolder, QdrantLocation, QdrantServer
from lakewake.store.qdrant.store import QdrantStore

RECIPE = Recipe(ModelIdentity("hashing", "test", 4))
SCHEMA = index_schema(RECIPE, pa.schema([("batch", pa.int64())]))


def frontier(n: int, writer: str = "") -> Frontier:
    return Frontier(TableIdentity("t", "k", "", "COPY_ON_WRITE"), {writer: "1"}, sync=n)


def row(key: str, batch: int) -> dict[str, object]:
    text = f"{key} {batch}"
    return {
        "_id": chunk_id(RowId("", key), "text", 0),
        "_key": key,
        "_partition": "",
        "_field": "text",
        "_chunk": 0,
        "_hash": text_hash(text),
        "_text": text,
        "_vector": [float(batch), 1.0, 2.0, 3.0],
        "batch": batch,
    }


def batch_number(n: int) -> Batch:
    """Rewrite four rows, add one, delete the one that the previous batch added."""
    rows = [*(row(f"k{i}", n) for i in range(4)), row(f"own{n}", n)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return Batch(SCHEMA, table.to_reader, (chunk_id(RowId("", f"own{n - 1}"), "text", 0),))


def expected(n: int) -> dict[str, int]:
    return {f"k{i}": n for i in range(4)} | {f"own{n}": n}


def opened(store: Store) -> StoreReader:
    """The newest version of the store."""
    reader = store.open()
    assert reader is not None
    return reader


def state(store: Store) -> tuple[int, dict[str, int]]:
    """The number of the last batch, and for each row the batch that wrote it."""
    reader = opened(store)
    rows = [r for b in reader.scan(["_key", "batch"]) for r in b.to_pylist()]
    held = {r["_key"]: r["batch"] for r in rows}
    assert len(held) == len(rows), "an id is there twice"
    return reader.frontier().sync, held


def commit_for_ever(store: Store) -> None:
    if store.open() is None:
        store.create(RECIPE, batch_number(0), frontier(0), after=0)
    while True:
        n = opened(store).frontier().sync
        with suppress(StaleFrontier):
            store.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
            print(n + 1, flush=True)
        if n % 5 == 0:
            store.maintain()


def create_until_killed(store: Store) -> None:
    print("ready", flush=True)
    for n in count():
        store.create(RECIPE, batch_number(n), frontier(n), after=n)
        print(n, flush=True)


def commit_raced(store: Store, writer: str, races: str) -> None:
    """Race another process to several frontiers; print how often this one won."""
    won, at = 0, frontier(0)
    store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    while at.sync < int(races):
        n = at.sync + 1
        mine = pa.Table.from_pylist([row(f"shared{n}", n), row(f"{writer}{n}", n)], schema=SCHEMA)
        with suppress(StaleFrontier):
            store.commit(Batch(SCHEMA, mine.to_reader), at, frontier(n, writer))
            won += 1
        if n % 5 == 0:
            store.maintain()
        at = opened(store).frontier()
    print(won, flush=True)


def commit_on_a_full_disk(store: Store) -> None:
    store.open()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    try:
        store.commit(batch_number(1), frontier(0), frontier(1))
    except StoreError as error:
        print(type(error).__name__, "|", error.landed, "|", error.hint)


def location_at(address: str) -> QdrantLocation:
    return QdrantServer(address) if address.startswith("http") else QdrantFolder(address)


def store_at(address: str) -> Store:
    """The store that an argument names."""
    if address.startswith("lance:"):
        return LanceStore(address.removeprefix("lance:"), "wines")
    return QdrantStore(location_at(address), "wines", "wines")


if __name__ == "__main__":
    task, address, *rest = sys.argv[1:]
    globals()[task](store_at(address), *rest)
