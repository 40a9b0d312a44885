"""A recipe as Spark expressions: which parts of a row are read, and the Arrow batches they become.

Texts are rendered and hashed inside Spark, so that comparing a table with an index moves no text
through Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from lakewake.errors import ConfigError
from lakewake.model.recipe import Held, Recipe, TextField
from lakewake.model.rows import RowBatch, RowId
from lakewake.model.weights import cuts, weights
from lakewake.source import arrow, columns
from lakewake.source.session import READ_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, MapType, StructType

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


def quoted(column: str) -> str:
    """A column's name for Spark, whatever characters it has."""
    return "`" + column.replace("`", "``") + "`"


def hudi_reader(spark: SparkSession) -> DataFrameReader:
    """Hudi's reader, with the options that make it read correctly.

    No two readers are equal: Spark would answer the second from its cache.
    """
    options = {**READ_OPTIONS, "lakewake.read": uuid4().hex}
    return spark.read.format("hudi").options(**options)


def wide(recipe: Recipe) -> tuple[str, ...]:
    """The columns of `row_view` whose values may be large."""
    vector = (columns.VECTOR,) if recipe.vector else ()
    return (*_texts(recipe), *vector, *_payload_columns(recipe))


def _texts(recipe: Recipe) -> list[str]:
    return [columns.text(n) for n in range(len(recipe.fields))]


def _payload_columns(recipe: Recipe) -> list[str]:
    return [columns.payload(n) for n in range(len(recipe.held))]


def row_weight(rows: DataFrame, recipe: Recipe) -> str:
    """The approximate bytes of a row of `row_view`, as an expression that reads no vector."""
    known = {columns.VECTOR: 4 * recipe.model.dimension} if recipe.vector else {}
    return arrow.weight(rows, wide(recipe), known)


#: True, but not before a row is read: Hudi skips partitions only by conditions on their columns.
_IN_ANY_ROW = "(length(_hoodie_record_key) >= 0)"


def selected(rows: DataFrame, where: str, *, prunes: bool = False) -> DataFrame:
    """The rows of a table that a condition selects; null is not selected.

    Args:
        where: a condition that depends on the row alone; '': all are selected.
        prunes: Hudi may skip partitions by it. If it is wrong about one, rows are lost silently.

    Raises:
        ConfigError: Spark cannot evaluate it.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F  # noqa: N812

    if not where:
        return rows
    try:
        return rows.where(F.expr(f"({where})" if prunes else f"({where}) <=> {_IN_ANY_ROW}"))
    except (AnalysisException, ParseException) as error:
        why = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"Spark cannot select rows where {where}: {why}",
            hint="correct `where` of the index in lakewake.toml: it is a condition in Spark SQL",
        ) from error


def row_view(rows: DataFrame, recipe: Recipe, *, prunes: bool = False) -> DataFrame:
    """One row each: identity, version, hashes, texts, vector and payload.

    Args:
        recipe: on a day. The rows that it does not select are left out.
        prunes: Hudi may skip partitions because of what the recipe selects.
    """
    rows = selected(rows, recipe.where, prunes=prunes)
    types = {f.name: f.dataType for f in rows.schema.fields}
    raw = [filled_in(f, types, recipe.rendering) for f in recipe.fields]
    vector = [vector_value(recipe.vector)] if recipe.vector else []
    shown = rows.select(
        *identity_and_version(),
        *(readable(t).alias(columns.text(n)) for n, t in enumerate(raw)),
        any_unread(raw).alias("unread"),
        *(v.alias(columns.VECTOR) for v in vector),
        *(payload_value(h, types).alias(columns.payload(n)) for n, h in enumerate(recipe.held)),
    )
    made_from = [columns.VECTOR] if recipe.vector else _texts(recipe)
    return shown.select(
        "*",
        source_hash(shown, made_from, vector=bool(recipe.vector)).alias(columns.SOURCE_HASH),
        value_hash(shown, _payload_columns(recipe)).alias(columns.PAYLOAD_HASH),
    )


def vector_value(column: str) -> Column:
    """A vector column of the table, as floats."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(quoted(column)).cast("array<float>")


def any_unread(texts: Sequence[Column]) -> Column:
    """Whether one of these texts is not valid UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812

    return reduce(operator.or_, (~readable(t).eqNullSafe(t) for t in texts), F.lit(False))


def payload_value(held: Held, types: Mapping[str, DataType]) -> Column:
    """A column of the table as payload: its texts are valid UTF-8, at any depth.

    Of a struct, only the named fields. If all of these are null, so is the struct.
    """
    name, inside = held
    value, type_ = _found(name, types)
    if inside:
        value, type_ = _fields_of(value, type_, inside)
    return _within(value, type_, "string", readable)


def _found(path: str, types: Mapping[str, DataType]) -> tuple[Column, DataType | None]:
    """A column, or a field in structs, and its type."""
    from pyspark.sql import functions as F  # noqa: N812

    if path in types or "." not in path:
        return F.col(quoted(path)), types.get(path)
    name, *inside = path.split(".")
    value, type_ = F.col(quoted(name)), types[name]
    for step in inside:
        value, type_ = value.getField(step), type_[step].dataType
    return value, type_


def _fields_of(
    value: Column, type_: DataType | None, paths: Sequence[str]
) -> tuple[Column, StructType]:
    """A struct of some fields of a struct, in their order in `paths`; null if they all are."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructField, StructType

    assert isinstance(type_, StructType)
    chosen: dict[str, list[str]] = {}
    for path in paths:
        name, _, inside = path.partition(".")
        chosen.setdefault(name, []).extend([inside] if inside else [])
    values, fields = [], []
    for name, within in chosen.items():
        one, kind = value.getField(name), type_[name].dataType
        if within:
            one, kind = _fields_of(one, kind, within)
        values.append(one)
        fields.append(StructField(name, kind))
    there = reduce(operator.or_, (one.isNotNull() for one in values))
    made = F.struct(*(v.alias(f.name) for v, f in zip(values, fields, strict=True)))
    return F.when(there, made), StructType(fields)


def version_view(rows: DataFrame) -> DataFrame:
    """Only the identity and version of each row: the first columns of `row_view`."""
    return rows.select(*identity_and_version())


def partition_path() -> Column:
    """A row's partition as commits name it. Hudi replaces bytes that are not UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(readable(F.col("_hoodie_partition_path")), F.lit(""))


def identity_and_version() -> list[Column]:
    """A row's identity and version. Keys that differ only in undecodable bytes are one row."""
    from pyspark.sql import functions as F  # noqa: N812

    return [
        partition_path().alias(columns.PARTITION),
        readable(F.col("_hoodie_record_key")).alias(columns.KEY),
        F.col("_hoodie_commit_time").alias(columns.INSTANT),
        F.col("_hoodie_commit_seqno").alias(columns.SEQNO),
    ]


def filled_in(field: TextField, types: Mapping[str, DataType], rendering: int) -> Column:
    """The filled-in template; null if every column in it is null or blank."""
    from pyspark.sql import functions as F  # noqa: N812

    if rendering == 1:
        return _filled_in_first(field, types)
    texts = {c: _joined(*_in_clock(c, types)) for c in field.columns}
    filled = {c: F.coalesce(t.rlike(r"\S"), F.lit(False)) for c, t in texts.items()}
    parts: list[Column] = []
    earlier = F.lit(False)
    for one in field.values():
        before = F.when(earlier, F.lit(one.before)).otherwise(F.lit(one.first))
        written = F.concat(before, texts[one.column], F.lit(one.after))
        parts.append(F.when(filled[one.column], written).otherwise(F.lit("")))
        earlier = earlier | filled[one.column]
    return F.when(earlier, F.concat(*parts))


def _in_clock(column: str, types: Mapping[str, DataType]) -> tuple[Column, DataType | None]:
    """A column with its timestamps as wall clocks in UTC, and its type before that."""
    value, type_ = _found(column, types)
    return _within(value, type_, "timestamp", _in_utc), type_


def _joined(value: Column, type_: DataType | None) -> Column:
    """A value as text: elements of lists and structs with commas between, without nulls."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    def listed(texts: Column) -> Column:
        return F.array_join(F.filter(texts, lambda text: text.rlike(r"\S")), ", ")

    if isinstance(type_, ArrayType):
        return listed(F.transform(value, lambda x: _joined(x, type_.elementType)))
    if isinstance(type_, StructType):
        return listed(F.array(*(_joined(value.getField(f.name), f.dataType) for f in type_)))
    if isinstance(type_, MapType):

        def entry(x: Column) -> Column:
            held = _joined(x["value"], type_.valueType)
            pair = F.concat(_joined(x["key"], type_.keyType), F.lit(": "), held)
            return F.when(held.rlike(r"\S"), pair)

        return listed(F.transform(F.map_entries(value), entry))
    return value.cast("string")


def _filled_in_first(field: TextField, types: Mapping[str, DataType]) -> Column:
    """Rendering 1. Existing indexes have its texts: it stays as it is."""
    from pyspark.sql import functions as F  # noqa: N812

    def plain(column: str) -> Column:
        return F.coalesce(_in_clock(column, types)[0].cast("string"), F.lit(""))

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


def readable(value: Column) -> Column:
    """The string as valid UTF-8: other bytes become replacement characters, as in Java."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.decode(value.cast("binary"), "UTF-8")


def source_hash(shown: DataFrame, made_from: list[str], *, vector: bool) -> Column:
    """A hash of what a row's chunks are made from: a vector, or texts."""
    from pyspark.sql import functions as F  # noqa: N812

    if vector:
        return F.sha2(F.coalesce(F.to_json(F.col(*made_from)), F.lit("")), 256)
    return value_hash(shown, made_from)


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
        [pa.field(name, v.type) for name, v in zip(recipe.payload_columns, values, strict=True)]
    )
    return pa.RecordBatch.from_arrays(values, schema=schema)


def payload_schema(rows: DataFrame, recipe: Recipe) -> pa.Schema:
    """Names and types of the payload columns of `row_view`."""
    from pyspark.sql.pandas.types import to_arrow_type

    types = {f.name: to_arrow_type(f.dataType) for f in rows.schema.fields}
    empty = [steady(pa.array([], types[name])) for name in _payload_columns(recipe)]
    names = zip(recipe.payload_columns, empty, strict=True)
    return pa.schema([pa.field(c, e.type) for c, e in names])


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
