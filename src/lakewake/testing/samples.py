"""Rows, batches, frontiers and questions for the tests of stores."""

from __future__ import annotations

import datetime
import pickle
import random
import threading
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.query import Query
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.model.where import Compare
from lakewake.store import Staging, Store, StoreReader
from lakewake.testing.answers import Answering, ByText

DIMENSION = 8
TABLE = TableIdentity("wines", "wine_id", "country", "COPY_ON_WRITE")
CUSTOMER = pa.struct(
    {
        "country": pa.string(),
        "since": pa.date32(),
        "rating": pa.float64(),
        "orders": pa.int64(),
        "groups": pa.list_(pa.string()),
        "home": pa.struct({"city": pa.string()}),
    }
)
PAYLOAD = pa.schema(
    [
        ("country", pa.string()),
        ("points", pa.int32()),
        ("stock", pa.int64()),
        ("price", pa.float64()),
        ("weight", pa.float32()),
        ("organic", pa.bool_()),
        ("tax", pa.decimal128(10, 2)),
        ("bottled", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("customer", CUSTOMER),
    ]
)
FULL = {
    "country": "Italy",
    "points": 90,
    "stock": 2**40,
    "price": 12.5,
    "weight": 0.75,
    "organic": True,
    "tax": Decimal("1.50"),
    "bottled": datetime.date(2020, 2, 29),
    "seen": datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
    "tags": ["red", None, "o'ak"],
    "customer": {
        "country": "DE",
        "since": datetime.date(2020, 2, 29),
        "rating": 4.5,
        "orders": 2**53 + 1,
        "groups": ["trade", None],
        "home": {"city": "Köln"},
    },
}
#: Filters, and the keys of the rows that pass them in the test of structs, nulls, cases and dates.
FILTERED = {
    "customer.country = 'DE'": "a",
    "customer.country != 'DE'": "b",
    "NOT customer.country IN ('FR', 'IT')": "a",
    "customer.country IS NULL": "cde",
    "customer IS NULL": "e",
    "customer IS NOT NULL": "abcd",
    "customer.home IS NULL": "bcde",
    "customer.home.city ILIKE 'KÖ%'": "a",
    "customer.home.city LIKE 'kö%'": "",
    "customer.since >= '2024-01-01'": "b",
    "customer.rating > 4": "ac",
    "NOT customer.orders = 9007199254740993": "b",
    "customer.groups CONTAINS 'trade'": "a",
    "customer.groups IS NULL": "bde",
    "tags IS NULL": "bde",
    "tags IS NOT NULL": "ac",
    "NOT tags IS NULL AND customer.country IS NULL": "c",
    "country ILIKE 'it_ly' OR country ILIKE '%FR%'": "ac",
    "bottled = '2020-02-29'": "a",
    "bottled IN ('2021-01-01', '2020-02-29')": "ab",
    "seen BETWEEN '2024-01-01' AND '2024-01-01T13:00:00+01:00'": "a",
}
STRANGE = ("o'brien", 'say "hi"', "two\nlines", "nul\x00byte", "𝄞 🍷", "back\\slash", "", "%_;--")


def recipe(metric: str = "cosine", dimension: int = DIMENSION) -> Recipe:
    model = ModelIdentity("hashing", "test", dimension)
    return Recipe(
        model, (TextField("text", "{text}"),), payload=tuple(PAYLOAD.names), metric=metric
    )


SCHEMA = index_schema(recipe(), PAYLOAD)


def frontier(sync: int, writer: str = "") -> Frontier:
    return Frontier(TABLE, {f"2025010100000{sync}{writer}": "1"}, sync=sync)


def vector_of(text: str, dimension: int = DIMENSION) -> list[float]:
    seed = int(text_hash(text)[:8], 16)
    return np.random.default_rng(seed).normal(size=dimension).astype(np.float32).tolist()


def chunk(key: str, text: str = "red", n: int = 0, **values: Any) -> dict[str, Any]:
    """A chunk as an index stores it; `values` sets payload columns or ours by name."""
    row = RowId(values.pop("_partition", "p"), key)
    return {
        "_id": chunk_id(row, "text", n),
        "_key": row.key,
        "_partition": row.partition,
        "_field": "text",
        "_chunk": n,
        "_hash": text_hash(text),
        "_source_hash": f"s-{key}",
        "_payload_hash": f"p-{key}",
        "_instant": "20250101000000000",
        "_text": text,
        "_vector": vector_of(text),
        **values,
    }


def batch(
    *rows: dict[str, Any], deletes: tuple[str, ...] = (), schema: pa.Schema = SCHEMA
) -> Batch:
    some = [list(rows[n : n + 100]) for n in range(0, len(rows), 100)]
    # As a sync makes them, no batch is a slice of another: Lance panics on slices of some structs.
    batches = [pa.RecordBatch.from_pylist(one, schema=schema) for one in some]
    return Batch(schema, lambda: pa.RecordBatchReader.from_batches(schema, batches), deletes)


def contents(reader: StoreReader | None) -> dict[str, dict[str, Any]]:
    """Every chunk by id, with all its columns."""
    assert reader is not None
    rows = [r for b in reader.scan(reader.schema().names) for r in b.to_pylist()]
    by_id = {r["_id"]: r for r in rows}
    assert len(by_id) == len(rows), "an id is there twice"
    return by_id


def fetched(
    reader: StoreReader, rows: Collection[RowId], columns: Sequence[str]
) -> list[dict[str, Any]]:
    return [found for some in reader.chunks(rows, columns) for found in some.to_pylist()]


def opened(store: Store) -> StoreReader:
    reader = store.open()
    assert reader is not None
    return reader


def named(count: int) -> frozenset[RowId]:
    """Rows that a frontier names; more than its text holds."""
    return frozenset(RowId("p", f"twice {n}") for n in range(count))


def staged(staging: Staging, *rows: dict[str, Any] | str) -> bytes:
    """A staged write of a task; a key alone stands for its chunk."""
    chunks = [chunk(row) if isinstance(row, str) else row for row in rows]
    sent = pickle.loads(pickle.dumps(staging))
    return sent.write(SCHEMA, iter(batch(*chunks).rows()))


def as_stored(*rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {r["_id"]: r for r in pa.Table.from_pylist(list(rows), schema=SCHEMA).to_pylist()}


def query(text: str, limit: int = 3, **more: Any) -> Query:
    return Query(np.array(vector_of(text), np.float32), limit, **more)


def keys(found: pa.Table) -> list[str]:
    return found["_key"].to_pylist()


def some_rows(dice: random.Random, n: int) -> dict[str, dict[str, Any]]:
    """Chunks of up to twenty rows; texts are often equal, and words rare or common."""
    rows = {}
    for key in dice.sample([f"k{n}" for n in range(20)], n):
        for number in range(dice.choice((1, 1, 3))):
            words = dice.choices(WORDS, range(len(WORDS), 0, -1), k=dice.choice((1, 2, 2, 9)))
            one = chunk(key, " ".join(words), number, points=dice.randrange(3))
            rows[one["_id"]] = one
    return rows


WORDS = ("the", "red", "Plum", "plums", "fig", "crème", "smoke_taint", "straße", "42", "葡萄酒")
ASKED = Answering(
    ByText(recipe().model, vector_of),
    (
        "the red",
        "plum FIG creme the",
        "42 strasse smoke_taint 葡萄酒",
        '"the red" plu* smoke_tant~',
    ),
    limits=(3, 50),
    wheres=((None, None), (Compare("points", "=", 1), "points = 1")),
)


def race(*calls: Any) -> list[BaseException | None]:
    """Run the calls at the same time; return what each raised."""
    gate = threading.Barrier(len(calls))
    outcomes: list[BaseException | None] = [None] * len(calls)

    def run(n: int) -> None:
        gate.wait()
        try:
            calls[n]()
        except Exception as error:
            outcomes[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
