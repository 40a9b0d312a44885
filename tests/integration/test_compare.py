"""The first pass of a comparison leaves out only equal rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.chunks import ScanParts, chunk_id, text_hash
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.source import arrow, columns, compare
from support.oracle import HASHING, TEXT

pytestmark = pytest.mark.spark

RECIPE = Recipe(HashingEmbedder(HASHING).identity, TEXT)
TWO_FIELDS = Recipe(RECIPE.model, (*TEXT, TextField("other", "{other}")))
ROWS = ", ".join(
    f"{name} string"
    for name in (*columns.ID, *columns.VERSION, columns.text(0), columns.text(1), *columns.HASHES)
)
STORED = (
    f"{columns.PARTITION} string, {columns.KEY} string, {columns.FIELD} int, {columns.CHUNK} int, "
    f"{columns.SOURCE_HASH} string, {columns.PAYLOAD_HASH} string, sound boolean"
)


Texts = tuple[str | None, str | None]


def two_texts(chance: random.Random, n: int) -> Texts:
    """The texts of a row; either may be missing, and the second may be blank."""
    text = f"text {n}"
    first = None if chance.random() < 0.1 else text
    return first, chance.choice([None, "\u00a0", text]) if first else None


def table_rows(chance: random.Random, n: int, texts: Texts) -> list[tuple[object, ...]]:
    """A row of the table, or two versions of it."""
    row = ("p", f"k{n}", "1", "1", *texts, f"sh{n}" if any(texts) else "", "ph")
    again = ("p", f"k{n}", "2", "1", *texts, f"sh{n}", "ph")
    return [row, again] if chance.random() < 0.05 else [row]


def stored_chunks(chance: random.Random, n: int, texts: Texts) -> list[list[object]]:
    """Its chunks, in two fields. Only the first of each must have the row's source hash."""
    counts = [chance.choice([1, 1, 2, 3]) if (text or "").strip() else 0 for text in texts]

    def source(c: int) -> str:
        return f"sh{n}" if c == 0 else chance.choice(["", f"sh{n}", "of an earlier version"])

    return [["p", f"k{n}", f, c, source(c), "ph", True] for f in (0, 1) for c in range(counts[f])]


def damaged(chance: random.Random, chunks: list[list[object]]) -> list[list[object]]:
    """The same chunks with one error."""
    spoilt = [list(c) for c in chunks]
    one = chance.choice(spoilt)
    kind = chance.randrange(6)
    if kind == 0:
        del spoilt[0]
    elif kind == 1:
        spoilt.append(list(one))
    else:
        column = [2, 3, 4, 5][kind - 2]
        if column == 4:
            one = chance.choice([c for c in spoilt if c[3] == 0])
        one[column] = {2: -1, 3: 7, 4: "other", 5: "other"}[column]
    return spoilt


def history(seed: int) -> tuple[list[tuple[object, ...]], list[list[object]], set[str]]:
    """A table, an index of it, and the keys of rows that differ in the index."""
    chance = random.Random(seed)
    rows: list[tuple[object, ...]] = []
    stored: list[list[object]] = []
    spoilt: set[str] = set()
    for n in range(60):
        texts = two_texts(chance, n)
        here = table_rows(chance, n, texts) if chance.random() < 0.95 else []
        chunks = stored_chunks(chance, n, texts)
        if chunks and chance.random() < 0.2:
            chunks = damaged(chance, chunks)
            spoilt.add(f"k{n}")
        spoilt |= {f"k{n}"} if chunks and not here else set()
        rows += here
        stored += chunks
    # One row of the index is never in the table, whatever the seed.
    stored.append(["p", "gone", 0, 0, "sh", "ph", True])
    return rows, stored, {*spoilt, "gone"}


@pytest.mark.parametrize("seed", range(4))
def test_the_first_pass_misses_no_difference_that_the_second_finds(spark, seed):
    table, index, spoilt = history(seed)
    rows = spark.createDataFrame(table, ROWS)
    stored = spark.createDataFrame(index, STORED)
    whole = compare.difference(arrow.collect(compare.faults(stored, rows, TWO_FIELDS)))
    few = compare.suspects(stored, rows, TWO_FIELDS)
    assert few is not None
    narrow = compare.faults(compare.only(stored, few), compare.only(rows, few), TWO_FIELDS)
    assert compare.difference(arrow.collect(narrow)) == whole
    assert spoilt == {row.key for row in (*whole.missing, *whole.orphaned, *whole.stale)}
    assert whole.missing or whole.stale
    assert whole.orphaned
    named = {*whole.missing, *whole.orphaned, *whole.stale, *whole.duplicated}
    assert len(few) == len(named)


def test_many_differences_are_left_to_the_second_pass(spark, monkeypatch):
    monkeypatch.setattr(compare, "FEW", 5)
    rows = spark.createDataFrame([r for n in range(9) for r in alike(n)], ROWS)
    assert compare.suspects(spark.createDataFrame([], STORED), rows, TWO_FIELDS) is None


def alike(n: int) -> list[tuple[object, ...]]:
    return [("p", f"k{n}", "1", "1", "text", None, f"sh{n}", "ph")]


def checked(recipe: Recipe, **wrong: object) -> list[bool]:
    """The check of two chunks, one with an error."""
    row = RowId("p", 'a "quoted" key')
    right = {
        "_id": chunk_id(row, "text", 0),
        "_partition": row.partition,
        "_key": row.key,
        "_field": "text",
        "_chunk": 0,
        "_hash": text_hash("ü"),
        "_text": "ü",
    }
    batch = pa.RecordBatch.from_pylist([right, {**right, **wrong}])
    batches = compare.checked(ScanParts(batch.schema, ([batch],)), recipe)
    return [sound for batch in batches for sound in batch["_sound"].to_pylist()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"_id": "another"},
        {"_key": "another"},
        {"_partition": None},
        {"_chunk": 1},
        {"_text": "another"},
        {"_text": None},
        {"_hash": None},
    ],
    ids=lambda wrong: "".join(wrong),
)
def test_a_chunk_that_contradicts_itself_is_not_sound(wrong):
    assert checked(RECIPE, **wrong) == [True, False]
