"""Compares an index with a table inside Spark, by row id, source hash and payload hash.

There are two passes. The first reduces every row to a few numbers and finds those that may differ;
it is the main cost for a whole table. The second compares just these rows in full.
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
from lakewake.progress import Stage
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
from lakewake.source.view import row_ids, row_weight, value_hash

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Up to this many rows are selected for the second pass; if there are more, comparing all rows is
#: cheaper.
FEW = 10_000
#: Files that an index is exported to, and the approximate chunks and bytes in each of their row
#: groups: a group costs Spark about a millisecond.
FILES = 4
GROUP_ROWS, GROUP_BYTES = 8192, 16 * 1024 * 1024
#: A row of the table counts this much, a chunk of the index 1: one sum holds both counts.
ROW = 2**40
#: Columns of the first pass: 64 bits each for a row's id and its payload, and how often the row was
#: seen, as a row and as chunks. Each field has its own count (`seen_0`), and the xor of its chunks'
#: numbers and its source (`mixed_0`).
ROW_BITS, PAYLOAD_BITS, SEEN = "row_bits", "payload_bits", "seen"
#: Expressions for the first two, and for 64 bits of what a row's chunks are made from.
_ROW, _PAYLOAD = f"xxhash64({PARTITION}, {KEY})", f"xxhash64({PAYLOAD_HASH})"
_SOURCE = f"xxhash64({SOURCE_HASH}, 'source')"
#: White space as Python defines it: a text that holds nothing else has no chunk.
BLANK = (
    "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def checked(index: ScanParts, recipe: Recipe) -> ScanParts:
    """An index without its texts; `_sound` is whether a chunk's id and text are correct.

    This is checked here because Spark writes JSON differently and would need the texts. `_number`
    is the position of a chunk's field in the recipe; -1 if the recipe has no such field.
    """
    dropped = {"_id", "_field", "_text", *(() if recipe.vector else ("_hash",))}
    kept = [f for f in index.schema if f.name not in dropped]
    added = [pa.field("_number", pa.int32()), pa.field("_sound", pa.bool_())]
    names = tuple(f.name for f in kept)
    fields = (VECTOR_FIELD,) if recipe.vector else tuple(f.name for f in recipe.fields)
    parts = tuple(_Checked(part, names, fields) for part in index.parts)
    return ScanParts(pa.schema([*kept, *added]), parts, index.chunks)


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
    """For each chunk, whether its id belongs to its row and its hash to its text."""
    sound = pc.fill_null(pc.equal(batch["_id"], chunk_ids(batch)), False)
    if "_text" not in batch.schema.names:
        return sound
    # As bytes: strings would have to be encoded again for the hash.
    texts = zip(
        batch["_text"].cast(pa.binary()).to_pylist(), batch["_hash"].to_pylist(), strict=True
    )
    matching = [text is not None and sha256(text).hexdigest() == own for text, own in texts]
    return pc.and_(sound, pa.array(matching, pa.bool_()))


def export(index: ScanParts, folder: Path, stage: Stage) -> list[str]:
    """Write the index to files that a Spark on this machine reads in parallel.

    Args:
        stage: counts the chunks.
    """
    import pyarrow.parquet as pq

    paths = [str(folder / f"{n}.parquet") for n in range(FILES)]
    with ExitStack() as opened:
        writers = [
            opened.enter_context(pq.ParquetWriter(path, index.schema, compression="none"))
            for path in paths
        ]
        for group, writer in zip(_groups(index), cycle(writers), strict=False):
            writer.write_table(group)
            stage.advance(group.num_rows)
    return paths


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches, joined into row groups."""
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
    """One line per chunk of a `checked` index, with the payload hash of what it actually holds."""
    from pyspark.sql import functions as F  # noqa: N812

    payload = value_hash(chunks, list(recipe.payload_columns))
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
    """The first pass: the numbers of all rows that may differ, for `only`; None if there are many.

    Every value is a number of fixed width, so that Spark groups without sorting, and before it
    shuffles. There are few of them, since each adds to the cost. A row is identified by 64 bits of
    its id. Rows that collide on this number are checked in the second pass too. A real difference
    is missed with probability about 2⁻⁶⁴.
    """
    from pyspark.sql import functions as F  # noqa: N812

    fields = range(max(len(recipe.fields), 1))
    seen, mixed = [f"{SEEN}_{f}" for f in fields], [f"mixed_{f}" for f in fields]
    table = rows.selectExpr(
        *(f"{_ROW} {ROW_BITS}", f"{_PAYLOAD} {PAYLOAD_BITS}", f"{ROW}L {SEEN}"),
        *(f"IF({filled}, {ROW}L, 0L) {seen[f]}" for f, filled in enumerate(_filled(recipe))),
        *(f"IF({filled}, {_SOURCE}, 0L) {mixed[f]}" for f, filled in enumerate(_filled(recipe))),
    )
    number = f"xxhash64({CHUNK}) ^ IF({CHUNK} = 0, {_SOURCE}, 0L)"
    index = stored.selectExpr(
        f"{_ROW} {ROW_BITS}",
        # An unsound chunk gets a hash that differs from its row's.
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
    # Chunks must be numbered 0, 1, 2 and so on: the xor of their numbers shows whether they are.
    # The source of the first one and that of the row cancel each other out.
    whole = " AND ".join(
        f"{mix} = CASE {n} WHEN 0 THEN 0L WHEN 1 THEN xxhash64(0)"
        f" ELSE aggregate(sequence(0, int({n}) - 1), 0L, (mix, n) -> mix ^ xxhash64(n)) END"
        for mix, n in zip(mixed, chunks, strict=True)
    )
    there = " AND ".join(
        f"({count} >= {ROW}L) = ({n} > 0)" for count, n in zip(seen, chunks, strict=True)
    )
    filled = " OR ".join(f"{count} >= {ROW}L" for count in seen)
    alike = f"IF({filled}, {PAYLOAD_BITS} AND {whole} AND {there}, {SEEN} = {ROW}L)"
    return f"{SEEN} DIV {ROW}L != 1 OR NOT {alike}"


def only(frame: DataFrame, few: Sequence[int]) -> DataFrame:
    """The rows, or chunks, whose number `suspects` returned."""
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
        # Only the first chunk of a field holds it.
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


def _filled(recipe: Recipe) -> list[str]:
    """For each field, an expression: does a row have anything to index there? Null means no."""
    if recipe.vector:
        return [f"{VECTOR} IS NOT NULL"]
    return [f"{text(n)} RLIKE '[^{BLANK}]'" for n in range(len(recipe.fields))]


def _fields(recipe: Recipe) -> str:
    """The numbers of the fields in which a row has anything to index, in order."""
    numbers = ", ".join(f"IF({filled}, {f}, NULL)" for f, filled in enumerate(_filled(recipe)))
    return f"filter(array({numbers}), f -> f IS NOT NULL)"


def faults(stored: DataFrame, rows: DataFrame, recipe: Recipe) -> DataFrame:
    """Ids of the rows that are wrong in an index, with `fault`: missing, orphaned or stale.

    Rows that the table holds more than once are included; `copies` is how often it holds them.
    `size` is the approximate bytes of the table's row.
    """
    from pyspark.sql import functions as F  # noqa: N812

    # The newest version is the largest struct: structs are ordered by their first fields.
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
    found = both.select(
        *(*ID, fault.alias("fault"), F.coalesce("copies", F.lit(0)).alias("copies")),
        F.col("now.size").alias("size"),
    )
    return found.where("fault is not null or copies > 1")


def difference(faulty: Iterable[pa.RecordBatch]) -> Difference:
    """Which rows are missing from the index, orphaned or stale in it, or twice in the table."""
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
    """How many rows to write, how many to remove, and the bytes of those to write."""
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
