"""A recipe as Spark expressions: which parts of a row are read, and the Arrow batches they become.

Texts are rendered and hashed inside Spark, so that comparing a table with an index moves no text
through Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowBatch, RowId
from lakewake.model.weights import cuts, weights
from lakewake.source import arrow, columns
from lakewake.source.session import READ_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, MapType

#: Most rows and approximate bytes per batch: enough to sort by length and embed well, few enough to
#: keep memory flat. A row larger than that is a batch of its own.
BATCH_ROWS, BATCH_BYTES = 1000, 8 * 1024 * 1024
#: Explicit formats: the defaults drop microseconds and use the session's time zone.
JSON_OPTIONS = {
    "timeZone": "UTC",
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: How Spark lists files that are given by name: partition values may hold characters that it would
#: treat as a pattern.
LISTING = {"__globPaths__": "false"}
#: A setting of Hadoop's that hides files. The configured filter may be Hudi's, which hides all but
#: the newest base files. It cannot be unset, but replaced by one that hides none of them.
FILTER = "mapreduce.input.pathFilter.class"
HIDES_NOTHING = "org.apache.hadoop.mapred.OutputLogFilter"
#: From how many files on executors list them. That filter cannot be sent to executors.
LISTED_HERE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def quoted(column: str) -> str:
    """A column's name for Spark, whatever characters it has."""
    return "`" + column.replace("`", "``") + "`"


def hudi_reader(spark: SparkSession) -> DataFrameReader:
    """Hudi's reader, with the options that make it read correctly.

    No two readers are equal: Spark would answer the second from its cache.
    """
    options = {**READ_OPTIONS, "lakewake.read": uuid4().hex}
    return spark.read.format("hudi").options(**options)


def plain_reader(spark: SparkSession) -> DataFrameReader:
    """Spark's reader for files that are given by name; it must not leave out any of them.

    Args:
        spark: our own session for reads.
    """
    reader = spark.read.options(**LISTING)
    if spark._jsparkSession.sessionState().newHadoopConf().get(FILTER) is None:
        return reader
    spark.conf.set(LISTED_HERE, str(2**31 - 1))
    return reader.option(FILTER, HIDES_NOTHING)


def wide(recipe: Recipe) -> tuple[str, ...]:
    """The columns of `row_view` whose values may be large."""
    vector = (columns.VECTOR,) if recipe.vector else ()
    return (*_texts(recipe), *vector, *_payload_columns(recipe))


def _texts(recipe: Recipe) -> list[str]:
    return [columns.text(n) for n in range(len(recipe.fields))]


def _payload_columns(recipe: Recipe) -> list[str]:
    return [columns.payload(n) for n in range(len(recipe.payload))]


def row_weight(rows: DataFrame, recipe: Recipe) -> str:
    """The approximate bytes of a row of `row_view`, as an expression that reads no vector."""
    known = {columns.VECTOR: 4 * recipe.model.dimension} if recipe.vector else {}
    return arrow.weight(rows, wide(recipe), known)


def row_view(rows: DataFrame, recipe: Recipe) -> DataFrame:
    """One row each: identity, version, hashes, texts, vector and payload."""
    from pyspark.sql import functions as F  # noqa: N812

    types = {f.name: f.dataType for f in rows.schema.fields}
    raw = [_text(f, types) for f in recipe.fields]
    unread = reduce(operator.or_, (~_readable(t).eqNullSafe(t) for t in raw), F.lit(False))
    vector = [F.col(quoted(recipe.vector)).cast("array<float>")] if recipe.vector else []
    shown = rows.select(
        *_identity_and_version(),
        *(_readable(t).alias(columns.text(n)) for n, t in enumerate(raw)),
        unread.alias("unread"),
        *(v.alias(columns.VECTOR) for v in vector),
        *(_payload(c, types).alias(columns.payload(n)) for n, c in enumerate(recipe.payload)),
    )
    return shown.select(
        "*",
        _source_hash(shown, recipe).alias(columns.SOURCE_HASH),
        value_hash(shown, _payload_columns(recipe)).alias(columns.PAYLOAD_HASH),
    )


def _payload(column: str, types: Mapping[str, DataType]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return _within(F.col(quoted(column)), types.get(column), "string", _readable)


def version_view(rows: DataFrame) -> DataFrame:
    """Only the identity and version of each row: the first columns of `row_view`."""
    return rows.select(*_identity_and_version())


def partition_path() -> Column:
    """A row's partition as commits name it. Hudi replaces bytes that are not UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(_readable(F.col("_hoodie_partition_path")), F.lit(""))


def _identity_and_version() -> list[Column]:
    """A row's identity and version. Keys that differ only in undecodable bytes are one row."""
    from pyspark.sql import functions as F  # noqa: N812

    return [
        partition_path().alias(columns.PARTITION),
        _readable(F.col("_hoodie_record_key")).alias(columns.KEY),
        F.col("_hoodie_commit_time").alias(columns.INSTANT),
        F.col("_hoodie_commit_seqno").alias(columns.SEQNO),
    ]


def _text(field: TextField, types: Mapping[str, DataType]) -> Column:
    """The filled-in template; null if every column in it is null or blank."""
    from pyspark.sql import functions as F  # noqa: N812

    def plain(column: str) -> Column:
        value = _within(F.col(quoted(column)), types.get(column), "timestamp", _in_utc)
        return F.coalesce(value.cast("string"), F.lit(""))

    parts: list[Column] = []
    for literal, column in field.parts():
        parts += [F.lit(literal)] if literal else []
        parts += [plain(column)] if column is not None else []
    filled = [plain(c).rlike(r"\S") for c in field.columns]
    return F.when(reduce(operator.or_, filled), F.concat(*parts))


def _in_utc(value: Column) -> Column:
    """A timestamp's wall clock in UTC; a cast would use the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812

    seconds = F.unix_micros(value).cast("decimal(20, 0)") / F.lit(1000000)
    none = F.lit(0)
    return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + F.make_dt_interval(
        none, none, none, seconds
    )


def _within(
    value: Column, type_: DataType | None, name: str, change: Callable[[Column], Column]
) -> Column:
    """The value, with everything of the named type in it changed, at any depth.

    Maps are sorted by their keys: Hudi may show them in another order after a rewrite.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    if type_ is None or not _holds(type_, name):
        return value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda x: _within(x, type_.elementType, name, change))
    if isinstance(type_, MapType):
        return _within_map(value, type_, name, change)
    if not isinstance(type_, StructType):
        return change(value)
    made = [_within(value.getField(f.name), f.dataType, name, change).alias(f.name) for f in type_]
    return F.when(value.isNotNull(), F.struct(*made))


def _within_map(
    value: Column, type_: MapType, name: str, change: Callable[[Column], Column]
) -> Column:
    """`_within` of a map. If two keys become equal, the first one and its value are kept."""
    from pyspark.sql import functions as F  # noqa: N812

    def key(x: Column) -> Column:
        return _within(x, type_.keyType, name, change)

    def held(x: Column) -> Column:
        found = F.filter(F.map_entries(value), lambda e: key(e["key"]) == x)
        return _within(F.element_at(found, 1)["value"], type_.valueType, name, change)

    keys = F.array_sort(F.array_distinct(F.transform(F.map_keys(value), key)))
    return F.map_from_arrays(keys, F.transform(keys, held))


def _holds(type_: DataType, name: str) -> bool:
    """Whether a value of this type can contain the named type, or a map."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, ArrayType):
        return _holds(type_.elementType, name)
    if isinstance(type_, StructType):
        return any(_holds(f.dataType, name) for f in type_)
    return isinstance(type_, MapType) or bool(type_.typeName() == name)


def _readable(value: Column) -> Column:
    """The string as valid UTF-8: other bytes become replacement characters, as in Java."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.decode(value.cast("binary"), "UTF-8")


def _source_hash(shown: DataFrame, recipe: Recipe) -> Column:
    """A hash of what a row's chunks are made from."""
    from pyspark.sql import functions as F  # noqa: N812

    if recipe.vector:
        return F.sha2(F.coalesce(F.to_json(F.col(columns.VECTOR)), F.lit("")), 256)
    return value_hash(shown, _texts(recipe))


def value_hash(rows: DataFrame, names: list[str]) -> Column:
    """A 128-bit hash of the values in order, independent of the columns' names.

    A cheap hash. It only has to detect change, so nothing outside Spark ever recomputes it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not names:
        return F.lit("")
    types = {f.name: f.dataType.typeName() for f in rows.schema.fields}
    values = [v for c in names for v in _hashed(F.col(quoted(c)), types[c])]
    halves = (F.xxhash64(*values), F.xxhash64(F.lit("the other half"), *values))
    return F.concat_ws("-", *(F.hex(half) for half in halves))


def _hashed(value: Column, type_: str) -> list[Column]:
    """What to hash of a value: Spark's hash ignores nulls and the sign of a zero."""
    from pyspark.sql import functions as F  # noqa: N812

    if type_ in ("array", "struct", "map"):
        # The name is part of the hashes in existing indexes.
        return [F.to_json(F.struct(value.alias("c")), JSON_OPTIONS)]
    if type_ in ("float", "double"):
        return [value.isNull(), value, (value == 0) & value.cast("string").startswith("-")]
    return [value.isNull(), value]


def row_batches(
    batches: Iterator[pa.RecordBatch], recipe: Recipe, appeared: bool = False
) -> Iterator[RowBatch]:
    """Arrow batches of `row_view` as row batches of bounded size."""
    for batch in batches:
        for start, rows in cuts(weights(batch), BATCH_ROWS, BATCH_BYTES):
            yield _row_batch(batch.slice(start, rows), recipe, appeared)


def _row_batch(batch: pa.RecordBatch, recipe: Recipe, appeared: bool) -> RowBatch:
    ids = row_ids(batch)
    fresh = batch.column("fresh").to_pylist() if appeared else [False] * len(ids)
    unread = batch.column("unread").to_pylist()
    return RowBatch(
        ids=ids,
        instants=tuple(batch.column(columns.INSTANT).to_pylist()),
        source_hashes=tuple(batch.column(columns.SOURCE_HASH).to_pylist()),
        payload_hashes=tuple(batch.column(columns.PAYLOAD_HASH).to_pylist()),
        texts={
            field.name: tuple(batch.column(text).to_pylist())
            for field, text in zip(recipe.fields, _texts(recipe), strict=True)
        },
        payload=payload_batch(batch, recipe),
        vectors=batch.column(columns.VECTOR) if recipe.vector else None,
        appeared=frozenset(row for row, new in zip(ids, fresh, strict=True) if new),
        undecodable=frozenset(row for row, bad in zip(ids, unread, strict=True) if bad),
    )


def newest_each(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The newest version of each row, if a row may occur more than once."""
    newest: dict[RowId, tuple[str, str, int, int]] = {}
    for n, batch in enumerate(batches):
        versions = zip(
            batch.column(columns.INSTANT).to_pylist(),
            batch.column(columns.SEQNO).to_pylist(),
            strict=True,
        )
        for at, (row, (i, s)) in enumerate(zip(row_ids(batch), versions, strict=True)):
            newest[row] = max(newest.get(row, ("", "", 0, 0)), (i or "", s or "", n, at))
    if len(newest) == sum(batch.num_rows for batch in batches):
        return batches
    kept = [[at for _, _, m, at in newest.values() if m == n] for n in range(len(batches))]
    return [b.take(pa.array(sorted(k), pa.int64())) for b, k in zip(batches, kept, strict=True)]


def row_ids(batch: pa.RecordBatch) -> tuple[RowId, ...]:
    """The identities in a batch of `row_view`."""
    parts = (batch.column(name).to_pylist() for name in columns.ID)
    return tuple(RowId(partition, key) for partition, key in zip(*parts, strict=True))


def payload_batch(batch: pa.RecordBatch, recipe: Recipe) -> pa.RecordBatch:
    """The payload columns under their own names and session-independent types."""
    values = [steady(batch.column(name)) for name in _payload_columns(recipe)]
    if not values:
        # A batch without columns would lose its number of rows.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    schema = pa.schema(
        [pa.field(name, v.type) for name, v in zip(recipe.payload, values, strict=True)]
    )
    return pa.RecordBatch.from_arrays(values, schema=schema)


def payload_schema(rows: DataFrame, recipe: Recipe) -> pa.Schema:
    """Names and types of the payload columns of `row_view`."""
    from pyspark.sql.pandas.types import to_arrow_type

    types = {f.name: to_arrow_type(f.dataType) for f in rows.schema.fields}
    empty = [steady(pa.array([], types[name])) for name in _payload_columns(recipe)]
    return pa.schema([pa.field(c, e.type) for c, e in zip(recipe.payload, empty, strict=True)])


def steady(column: pa.Array) -> pa.Array:
    """The column in a type that does not depend on the session or on the files."""
    wanted = _steady_type(column.type)
    return column if column.type == wanted else column.cast(wanted)


def _steady_type(type_: pa.DataType) -> pa.DataType:
    """The type with timestamps in UTC and every field nullable: files do not record what can be."""

    def field(inner: pa.Field) -> pa.Field:
        return pa.field(inner.name, _steady_type(inner.type))

    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(type_):
        return pa.list_(field(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_steady_type(type_.key_type), field(type_.item_field))
    if pa.types.is_struct(type_):
        return pa.struct([field(inner) for inner in type_])
    return type_
