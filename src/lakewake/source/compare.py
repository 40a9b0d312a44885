"""Compares an index with a table inside Spark, by row id, source hash and payload hash.

In two passes. The first boils every row down to a few numbers and finds those that may differ:
this is what a whole table costs. The second looks closely, at those only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.chunks import VECTOR_FIELD, ScanParts, chunk_ids
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Difference, RowId
from lakewake.source import arrow
from lakewake.source.columns import (
    CHUNK,
    FIELD,
    HASHES,
    ID,
    KEY,
    PARTITION,
    PAYLOAD_HASH,
    SOURCE_HASH,
    VECTOR,
    VERSION,
    text,
)
from lakewake.source.view import boiled_down, row_ids, row_weight

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Up to so many rows are picked out for the second pass; more cost less as a whole.
FEW = 10_000
#: As many files as an index is exported to, and about how many chunks and bytes are in each of
#: their row groups: a group costs Spark about a millisecond.
FILES = 4
GROUP_ROWS, GROUP_BYTES = 8192, 16 * 1024 * 1024
#: A row of the table counts so much more than a chunk: one sum tells how many there are of both.
ROW = 2**40
#: Columns of the first pass. 64 bits for a row's id and for its payload; how often it was seen,
#: as a row and as chunks; per field the same, and a mixture of its chunks' numbers and its source.
ROW_BITS, PAYLOAD_BITS, SEEN = "row_bits", "payload_bits", "seen"
#: How the first two are computed, and a number for what a row's chunks were made from.
_ROW, _PAYLOAD = f"xxhash64({PARTITION}, {KEY})", f"xxhash64({PAYLOAD_HASH})"
_SOURCE = f"xxhash64({SOURCE_HASH}, 'source')"
#: What Python takes for white space: a text of nothing else has no chunk.
BLANK = (
    "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def checked(index: ScanParts, recipe: Recipe) -> ScanParts:
    """An index without its texts, told by `_sound` whether ids and texts are what they should be.

    Here and not in Spark, which writes JSON otherwise and would have to be sent the texts. Fields
    are numbered as the recipe has them; -1 is one that it does not know.
    """
    spared = {"_id", "_field", "_text", *(() if recipe.vector else ("_hash",))}
    kept = [f for f in index.schema if f.name not in spared]
    told = [pa.field("_number", pa.int32()), pa.field("_sound", pa.bool_())]
    names = tuple(f.name for f in kept)
    fields = (VECTOR_FIELD,) if recipe.vector else tuple(f.name for f in recipe.fields)
    parts = tuple(_Checked(part, names, fields) for part in index.parts)
    return ScanParts(pa.schema([*kept, *told]), parts)


@dataclass(frozen=True)
class _Checked:
    part: Iterable[pa.RecordBatch]
    kept: tuple[str, ...]
    fields: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        known = pa.array(self.fields, pa.string())
        for batch in self.part:
            number = pc.fill_null(pc.index_in(batch["_field"], known), -1)
            bare = batch.select(list(self.kept))
            yield bare.append_column("_number", number).append_column("_sound", _sound(batch))


def _sound(batch: pa.RecordBatch) -> pa.Array:
    """For each chunk whether its id tells its row, and its hash its text."""
    sound = pc.fill_null(pc.equal(batch["_id"], chunk_ids(batch)), False)
    if "_text" not in batch.schema.names:
        return sound
    # Not as strings: they would only be encoded again.
    texts = zip(
        batch["_text"].cast(pa.binary()).to_pylist(), batch["_hash"].to_pylist(), strict=True
    )
    told = [text is not None and sha256(text).hexdigest() == own for text, own in texts]
    return pc.and_(sound, pa.array(told, pa.bool_()))


def export(index: ScanParts, folder: Path) -> list[str]:
    """The index in files that a Spark on this machine reads at once."""
    import pyarrow.parquet as pq

    paths = [str(folder / f"{n}.parquet") for n in range(FILES)]
    with ExitStack() as opened:
        writers = [
            opened.enter_context(pq.ParquetWriter(path, index.schema, compression="none"))
            for path in paths
        ]
        for group, writer in zip(_groups(index), cycle(writers), strict=False):
            writer.write_table(group)
    return paths


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to what is written as one row group."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(some)
            some, rows, size = [], 0, 0
    if some:
        yield pa.Table.from_batches(some)


def held(chunks: DataFrame, recipe: Recipe) -> DataFrame:
    """One line per chunk of a `checked` index, its payload hash made of what it really holds."""
    from pyspark.sql import functions as F  # noqa: N812

    payload = boiled_down(chunks, list(recipe.payload))
    sound = F.col("_sound") & (F.col(PAYLOAD_HASH) == F.col("_payload_hash"))
    if recipe.vector:
        vector = F.sha2(F.to_json(F.col("_vector").cast("array<float>")), 256)
        sound = sound & (vector == F.col("_hash"))
    return chunks.withColumn(PAYLOAD_HASH, payload).select(
        F.col("_partition").alias(PARTITION),
        F.col("_key").alias(KEY),
        F.col("_number").alias(FIELD),
        F.col("_chunk").alias(CHUNK),
        F.coalesce("_source_hash", F.lit("")).alias(SOURCE_HASH),
        PAYLOAD_HASH,
        F.coalesce(sound, F.lit(False)).alias("sound"),
    )


def suspects(stored: DataFrame, rows: DataFrame, recipe: Recipe) -> list[int] | None:
    """The first pass: numbers of all rows that may differ, for `only`; None where they are many.

    Every value is a number of fixed width, so that Spark groups without sorting, and before it
    shuffles; few of them, since each costs. A row goes by 64 bits of its id: two of the same number
    are looked at more closely like one that differs, and that is not noticed once in 2^64.
    """
    from pyspark.sql import functions as F  # noqa: N812

    fields = range(max(len(recipe.fields), 1))
    seen, mixed = [f"{SEEN}_{f}" for f in fields], [f"mixed_{f}" for f in fields]
    table = rows.selectExpr(
        *(f"{_ROW} {ROW_BITS}", f"{_PAYLOAD} {PAYLOAD_BITS}", f"{ROW}L {SEEN}"),
        *(f"IF({says}, {ROW}L, 0L) {seen[f]}" for f, says in enumerate(_says(recipe))),
        *(f"IF({says}, {_SOURCE}, 0L) {mixed[f]}" for f, says in enumerate(_says(recipe))),
    )
    number = f"xxhash64({CHUNK}) ^ IF({CHUNK} = 0, {_SOURCE}, 0L)"
    index = stored.selectExpr(
        f"{_ROW} {ROW_BITS}",
        # What is wrong by itself has another hash than any row.
        f"IF(sound AND {FIELD} >= 0, {_PAYLOAD}, ~{_PAYLOAD}) {PAYLOAD_BITS}",
        f"1L {SEEN}",
        *(f"IF({FIELD} <=> {f}, 1L, 0L) {seen[f]}" for f in fields),
        *(f"IF({FIELD} <=> {f}, {number}, 0L) {mixed[f]}" for f in fields),
    )
    both = [
        f"min({PAYLOAD_BITS}) = max({PAYLOAD_BITS}) {PAYLOAD_BITS}",
        *(f"sum({count}) {count}" for count in (SEEN, *seen)),
        *(f"bit_xor({mix}) {mix}" for mix in mixed),
    ]
    one = table.union(index).groupBy(ROW_BITS).agg(*map(F.expr, both))
    differing = one.where(_differs(seen, mixed)).select(ROW_BITS).limit(FEW + 1)
    found = [n for batch in arrow.collect(differing) for n in batch.column(ROW_BITS).to_pylist()]
    return None if len(found) > FEW else found


def _differs(seen: Sequence[str], mixed: Sequence[str]) -> str:
    """The condition of the first pass, given the columns of each field."""
    chunks = [f"({count} & {ROW - 1}L)" for count in seen]
    # Chunks are numbered 0, 1, 2 and so on: the mixture of their numbers tells it. The source of
    # the first one and that of the row cancel each other out.
    whole = " AND ".join(
        f"{mix} = CASE {n} WHEN 0 THEN 0L WHEN 1 THEN xxhash64(0)"
        f" ELSE aggregate(sequence(0, int({n}) - 1), 0L, (mix, n) -> mix ^ xxhash64(n)) END"
        for mix, n in zip(mixed, chunks, strict=True)
    )
    there = " AND ".join(
        f"({count} >= {ROW}L) = ({n} > 0)" for count, n in zip(seen, chunks, strict=True)
    )
    says = " OR ".join(f"{count} >= {ROW}L" for count in seen)
    alike = f"IF({says}, {PAYLOAD_BITS} AND {whole} AND {there}, {SEEN} = {ROW}L)"
    return f"{SEEN} DIV {ROW}L != 1 OR NOT {alike}"


def only(frame: DataFrame, few: Sequence[int]) -> DataFrame:
    """Those of the rows, or chunks, that have one of the numbers of `suspects`."""
    numbers = ", ".join(f"{n}L" for n in few)
    return frame.where(f"{_ROW} IN ({numbers})")


def by_row(stored: DataFrame) -> DataFrame:
    """One line per indexed row: its hashes, whether it holds each chunk once, and its fields."""
    from pyspark.sql import functions as F  # noqa: N812

    count = F.count("*")
    once = F.size(F.collect_set(CHUNK)) == count
    fields = stored.groupBy(*ID, FIELD).agg(
        (F.min("sound") & (F.col(FIELD) >= 0) & once & (F.max(CHUNK) + 1 == count)).alias("whole"),
        *(side(PAYLOAD_HASH).alias(f"payload_hash_{side.__name__}") for side in (F.min, F.max)),
        # Only the first chunk of a field tells it.
        F.coalesce(F.max(F.when(F.col(CHUNK) == 0, F.col(SOURCE_HASH))), F.lit("")).alias(
            SOURCE_HASH
        ),
    )
    return fields.groupBy(*ID).agg(
        F.min(SOURCE_HASH).alias("index_source_hash"),
        F.min("payload_hash_min").alias("index_payload_hash"),
        F.sort_array(F.collect_list(FIELD)).alias("fields"),
        F.coalesce(
            F.min("whole")
            & (F.min(SOURCE_HASH) == F.max(SOURCE_HASH))
            & (F.min("payload_hash_min") == F.max("payload_hash_max")),
            F.lit(False),
        ).alias("sound"),
    )


def _says(recipe: Recipe) -> list[str]:
    """For each field whether a row of the table has anything to index; null: it has not."""
    if recipe.vector:
        return [f"{VECTOR} IS NOT NULL"]
    return [f"{text(n)} RLIKE '[^{BLANK}]'" for n in range(len(recipe.fields))]


def _fields(recipe: Recipe) -> str:
    """The numbers of the fields of which a row has anything to index, in order."""
    made = ", ".join(f"IF({says}, {f}, NULL)" for f, says in enumerate(_says(recipe)))
    return f"filter(array({made}), f -> f IS NOT NULL)"


def faults(stored: DataFrame, rows: DataFrame, recipe: Recipe) -> DataFrame:
    """Ids of the rows that an index holds wrongly, with `fault`: missing, orphaned or stale.

    Rows that the table holds more than once are among them; `copies` tells how often. `size` is
    how many bytes the table's row has, about.
    """
    from pyspark.sql import functions as F  # noqa: N812

    # The newest version is the largest: structs are ordered by their first fields.
    weight = F.expr(row_weight(rows, recipe)).alias("size")
    version = F.struct(*VERSION, *HASHES, F.expr(_fields(recipe)).alias("fields"), weight)
    table = (
        rows.select(*ID, version.alias("now"))
        .groupBy(*ID)
        .agg(F.max("now").alias("now"), F.count("*").alias("copies"))
    )
    fault = (
        F.when(F.col("index_source_hash").isNull() & (F.size("now.fields") > 0), "missing")
        .when(F.col("now").isNull(), "orphaned")
        .when(F.col("index_source_hash").isNotNull() & ~_equal(), "stale")
    )
    both = table.join(by_row(stored), [*ID], "full_outer")
    told = both.select(
        *(*ID, fault.alias("fault"), F.coalesce("copies", F.lit(0)).alias("copies")),
        F.col("now.size").alias("size"),
    )
    return told.where("fault is not null or copies > 1")


def difference(faulty: Iterable[pa.RecordBatch]) -> Difference:
    """Which rows are missing from the index, orphaned in it, or stale; which are stored twice."""
    found: dict[str | None, list[RowId]] = {}
    twice: list[RowId] = []
    for batch in faulty:
        kinds, copies = batch.column("fault").to_pylist(), batch.column("copies").to_pylist()
        for row, fault, n in zip(row_ids(batch), kinds, copies, strict=True):
            found.setdefault(fault, []).append(row)
            twice += [row] if n > 1 else []
    return Difference(
        missing=tuple(sorted(found.get("missing", ()))),
        orphaned=tuple(sorted(found.get("orphaned", ()))),
        stale=tuple(sorted(found.get("stale", ()))),
        duplicated=tuple(sorted(twice)),
    )


def amounts(faulty: DataFrame) -> tuple[int, int, int]:
    """How many rows are to be written and removed, and the bytes of those to be written."""
    found = faulty.selectExpr(
        "count_if(fault IN ('missing', 'stale'))",
        "count_if(fault = 'orphaned')",
        "sum(IF(fault IN ('missing', 'stale'), size, 0L))",
    ).first()
    assert found is not None
    return found[0], found[1], found[2] or 0


def _equal() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.col("sound")
        & (F.col("now.fields") == F.col("fields"))
        & (F.col(f"now.{SOURCE_HASH}") == F.col("index_source_hash"))
        & (F.col(f"now.{PAYLOAD_HASH}") == F.col("index_payload_hash"))
    )
