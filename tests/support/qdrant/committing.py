"""Batches for an index in Qdrant, and processes that commit them. Tests run this module:

commit_for_ever ADDRESS       one batch after the other
commit_raced ADDRESS WRITER   each frontier in a race with another process
"""

from __future__ import annotations

import sys
from contextlib import suppress

import pyarrow as pa

from lakewake.errors import StaleFrontier
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.store.qdrant.location import QdrantFolder, QdrantLocation, QdrantServer
from lakewake.store.qdrant.store import QdrantStore

RECIPE = Recipe(ModelIdentity("hashing", "test", 4))
SCHEMA = index_schema(RECIPE, pa.schema([("batch", pa.int64())]))
RACES = 15


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
    """Rewrites four rows, adds one of its own, deletes that of the batch before."""
    rows = [*(row(f"k{i}", n) for i in range(4)), row(f"own{n}", n)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return Batch(SCHEMA, table.to_reader, (chunk_id(RowId("", f"own{n - 1}"), "text", 0),))


def expected(n: int) -> dict[str, int]:
    return {f"k{i}": n for i in range(4)} | {f"own{n}": n}


def commit_for_ever(location: QdrantLocation) -> None:
    store = QdrantStore(location, "wines", "wines")
    if store.open() is None:
        store.create(RECIPE, batch_number(0), frontier(0), after=0)
    while True:
        n = store.open().frontier().sync
        with suppress(StaleFrontier):
            store.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
            print(n + 1, flush=True)
        if n % 5 == 0:
            store.maintain()


def commit_raced(location: QdrantLocation, writer: str) -> None:
    """Race another process to each of some frontiers; says how often it won."""
    store, won, at = QdrantStore(location, "wines", "wines"), 0, frontier(0)
    store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    while at.sync < RACES:
        n = at.sync + 1
        mine = pa.Table.from_pylist([row(f"shared{n}", n), row(f"{writer}{n}", n)], schema=SCHEMA)
        with suppress(StaleFrontier):
            store.commit(Batch(SCHEMA, mine.to_reader), at, frontier(n, writer))
            won += 1
        if n % 5 == 0:
            store.maintain()
        at = store.open().frontier()
    print(won, flush=True)


def location_at(address: str) -> QdrantLocation:
    return QdrantServer(address) if address.startswith("http") else QdrantFolder(address)


if __name__ == "__main__":
    task, address, *rest = sys.argv[1:]
    globals()[task](location_at(address), *rest)
