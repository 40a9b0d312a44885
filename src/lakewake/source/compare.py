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
from lakewake.source.view import boiled_down, row_ids, row_weight

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Up to so many rows are picked out for the second pass; more cost less as a whole.
FEW = 10_000
#: As many files as an index is exported to.
FILES = 4
#: A row of the table counts so much more than a chunk: one sum tells how many there are of both.
ROW = 2**40
#: A number for what a row's chunks were made from.
SOURCE = "xxhash64(sh, 'source')"
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
        for batch, writer in zip(index, cycle(writers), strict=False):
            writer.write_batch(batch)
    return paths


def held(chunks: DataFrame, recipe: Recipe) -> DataFrame:
    """One line per chunk of a `checked` index, its payload hash made of what it really holds."""
    from pyspark.sql import functions as F  # noqa: N812

    payload = boiled_down(chunks, list(recipe.payload))
    sound = F.col("_sound") & (F.col("ph") == F.col("_payload_hash"))
    if recipe.vector:
        vector = F.sha2(F.to_json(F.col("_vector").cast("array<float>")), 256)
        sound = sound & (vector == F.col("_hash"))
    return chunks.withColumn("ph", payload).select(
        F.col("_partition").alias("p"),
        F.col("_key").alias("k"),
        F.col("_number").alias("f"),
        F.col("_chunk").alias("c"),
        F.coalesce("_source_hash", F.lit("")).alias("sh"),
        "ph",
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
    table = rows.selectExpr(
        *("xxhash64(p, k) a", "xxhash64(ph) d", f"{ROW}L m"),
        *(f"IF({says}, {ROW}L, 0L) m{f}" for f, says in enumerate(_says(recipe))),
        *(f"IF({says}, {SOURCE}, 0L) x{f}" for f, says in enumerate(_says(recipe))),
    )
    index = stored.selectExpr(
        "xxhash64(p, k) a",
        # What is wrong by itself has another hash than any row.
        *("IF(sound AND f >= 0, xxhash64(ph), ~xxhash64(ph)) d", "1L m"),
        *(f"IF(f <=> {f}, 1L, 0L) m{f}" for f in fields),
        *(f"IF(f <=> {f}, xxhash64(c) ^ IF(c = 0, {SOURCE}, 0L), 0L) x{f}" for f in fields),
    )
    both = [
        *("min(d) = max(d) d", "sum(m) m"),
        *(f"sum(m{f}) m{f}" for f in fields),
        *(f"bit_xor(x{f}) x{f}" for f in fields),
    ]
    chunks = [f"(m{f} & {ROW - 1}L)" for f in fields]
    # Chunks are numbered 0, 1, 2 and so on: the mixture of their numbers tells it. The source of
    # the first one and that of the row cancel each other out.
    whole = " AND ".join(
        f"x{f} = CASE {n} WHEN 0 THEN 0L WHEN 1 THEN xxhash64(0)"
        f" ELSE aggregate(sequence(0, int({n}) - 1), 0L, (m, n) -> m ^ xxhash64(n)) END"
        for f, n in enumerate(chunks)
    )
    there = " AND ".join(f"(m{f} >= {ROW}L) = ({n} > 0)" for f, n in enumerate(chunks))
    says = " OR ".join(f"m{f} >= {ROW}L" for f in fields)
    alike = f"IF({says}, d AND {whole} AND {there}, m = {ROW}L)"
    one = table.union(index).groupBy("a").agg(*map(F.expr, both))
    differing = one.where(f"m DIV {ROW}L != 1 OR NOT {alike}").select("a").limit(FEW + 1)
    found = [n for batch in arrow.collect(differing) for n in batch.column("a").to_pylist()]
    return None if len(found) > FEW else found


def only(frame: DataFrame, few: Sequence[int]) -> DataFrame:
    """Those of the rows, or chunks, that have one of the numbers of `suspects`."""
    numbers = ", ".join(f"{n}L" for n in few)
    return frame.where(f"xxhash64(p, k) IN ({numbers})")


def by_row(stored: DataFrame) -> DataFrame:
    """One line per indexed row: its hashes, whether it holds each chunk once, and its fields."""
    from pyspark.sql import functions as F  # noqa: N812

    count = F.count("*")
    once = F.size(F.collect_set("c")) == count
    fields = stored.groupBy("p", "k", "f").agg(
        (F.min("sound") & (F.col("f") >= 0) & once & (F.max("c") + 1 == count)).alias("whole"),
        *(side("ph").alias(f"ph_{side.__name__}") for side in (F.min, F.max)),
        # Only the first chunk of a field tells it.
        F.coalesce(F.max(F.when(F.col("c") == 0, F.col("sh"))), F.lit("")).alias("sh"),
    )
    return fields.groupBy("p", "k").agg(
        F.min("sh").alias("ish"),
        F.min("ph_min").alias("iph"),
        F.sort_array(F.collect_list("f")).alias("fields"),
        F.coalesce(
            F.min("whole") & (F.min("sh") == F.max("sh")) & (F.min("ph_min") == F.max("ph_max")),
            F.lit(False),
        ).alias("sound"),
    )


def _says(recipe: Recipe) -> list[str]:
    """For each field whether a row of the table has anything to index; null: it has not."""
    if recipe.vector:
        return ["v IS NOT NULL"]
    return [f"t{n} RLIKE '[^{BLANK}]'" for n in range(len(recipe.fields))]


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
    version = F.struct("i", "s", "sh", "ph", F.expr(_fields(recipe)).alias("fields"), weight)
    table = (
        rows.select("p", "k", version.alias("now"))
        .groupBy("p", "k")
        .agg(F.max("now").alias("now"), F.count("*").alias("copies"))
    )
    fault = (
        F.when(F.col("ish").isNull() & (F.size("now.fields") > 0), "missing")
        .when(F.col("now").isNull(), "orphaned")
        .when(F.col("ish").isNotNull() & ~_equal(), "stale")
    )
    both = table.join(by_row(stored), ["p", "k"], "full_outer")
    told = both.select(
        *("p", "k", fault.alias("fault"), F.coalesce("copies", F.lit(0)).alias("copies")),
        F.col("now.size").alias("size"),
    )
    return told.where("fault is not null or copies > 1")


def difference(faulty: DataFrame) -> Difference:
    """Which rows are missing from the index, orphaned in it, or stale; which are stored twice."""
    found: dict[str | None, list[RowId]] = {}
    twice: list[RowId] = []
    for batch in arrow.collect(faulty):
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
        & (F.col("now.sh") == F.col("ish"))
        & (F.col("now.ph") == F.col("iph"))
    )
