"""Chunks as points of Qdrant, and back, exactly. Pure.

A payload holds every value in a form for Qdrant and for people: numbers, texts, RFC 3339 times.
Values that are not exact in that form (decimals, times, binary and nested values) are stored a
second time in `_exact`, as an Arrow record batch of one row. Vectors are scaled to length one, so
that their dot product with a query is the cosine; `_raw` has the original if that changes it.
"""

from __future__ import annotations

import base64
import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
from qdrant_client import models

from lakewake.errors import StoreError
from lakewake.model.recipe import RESERVED
from lakewake.model.where import column_kind, element_type
from lakewake.store.qdrant.points import MOST_BYTES, WRITE_BYTES, WRITE_POINTS

#: Later than every version; exact as a double, as which Qdrant compares ranges.
FOREVER = 2**53 - 1
#: A vector whose length differs from one by less than this is stored unchanged.
UNIT = 1e-6
#: Ids of deleted chunks in one point.
GONE_IDS = 500
_SPACE = UUID("6b1d3a52-90a5-4a0c-9f0b-6d0c6b2f5e11")
_SIMPLE = re.compile(r"[A-Za-z0-9_-]+")
_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INDEXES = {
    "text": "keyword",
    "boolean": "bool",
    "date": "datetime",
    "timestamp": "datetime",
}
#: The fields that points are looked up by, besides payload columns.
_OWN_INDEXES = {
    **dict.fromkeys(("_id", "_key", "_hash", "_part", "_odd"), "keyword"),
    **dict.fromkeys(("_chunk", "_base", "_from", "_to"), "integer"),
}


def indexes(schema: pa.Schema) -> dict[str, str]:
    """The payload fields that Qdrant indexes, each with Qdrant's name for its type."""
    columns = {f.name: f.type for f in schema if not f.name.startswith(RESERVED)}
    kinds = {field_key(name): _index_kind(type) for name, type in columns.items()}
    return _OWN_INDEXES | {key: kind for key, kind in kinds.items() if kind}


def _index_kind(type: pa.DataType) -> str | None:
    # The index of a list is that of its elements.
    type = element_type(type) or type
    kind = column_kind(type)
    if kind == "number":
        return "integer" if is_whole(type) else "float"
    return None if kind is None else _INDEXES[kind]


def is_whole(type: pa.DataType) -> bool:
    """Whether values are whole numbers that Qdrant stores as such."""
    return bool(pa.types.is_integer(type)) and not pa.types.is_uint64(type)


def field_key(column: str) -> str:
    """The payload field of a column, without characters that are special in Qdrant's paths."""
    return column if _SIMPLE.fullmatch(column) else f"_x_{column.encode().hex()}"


def path_key(column: str, inside: Sequence[str]) -> str | None:
    """The payload field of a column, or of a field in it; None if Qdrant cannot name it."""
    if not all(map(_SIMPLE.fullmatch, inside)):
        return None
    return ".".join([field_key(column), *inside])


def dimension(schema: pa.Schema) -> int:
    """The dimension of the vectors of an index."""
    return int(schema.field("_vector").type.list_size)


def to_points(
    rows: Iterable[pa.RecordBatch], part: str, base: int
) -> Iterator[list[models.PointStruct]]:
    """Chunks as points of a part that no version contains yet, one list for each call."""
    some: list[models.PointStruct] = []
    size = 0
    for batch in rows:
        for point in _batch_points(batch, part, base):
            own = _weight(point)
            _refuse_huge(point, own)
            if some and (len(some) == WRITE_POINTS or size + own > WRITE_BYTES):
                yield some
                some, size = [], 0
            some.append(point)
            size += own
    if some:
        yield some


def gone_points(
    deletes: Iterable[str], part: str, base: int, length: int
) -> Iterator[list[models.PointStruct]]:
    """The ids of the chunks that a part deletes, in points that are not chunks."""
    ids, start = iter(deletes), -GONE_IDS
    while some := list(islice(ids, GONE_IDS)):
        start += GONE_IDS
        payload = {**_unborn(part, base), "_to": 0, "_gone": some}
        id = str(uuid5(_SPACE, f"{part} gone {start}"))
        yield [models.PointStruct(id=id, vector=[0.0] * length, payload=payload)]


def _unborn(part: str, base: int) -> dict[str, Any]:
    return {"_part": part, "_base": base, "_from": FOREVER, "_to": FOREVER}


def _weight(point: models.PointStruct) -> int:
    return 12 * len(point.vector) + 500 + _json_size(point.payload)


def _json_size(value: Any) -> int:
    """The approximate size of a value in JSON."""
    if isinstance(value, str):
        return 2 * len(value)
    if isinstance(value, Mapping):
        return sum(2 * len(k) + _json_size(v) for k, v in value.items())
    return sum(map(_json_size, value)) if isinstance(value, list) else 8


def _refuse_huge(point: models.PointStruct, size: int) -> None:
    if size > MOST_BYTES:
        row = (point.payload["_partition"], point.payload["_key"])
        raise StoreError(
            f"a chunk of row {row} has about {size:,} bytes with its payload; "
            f"Qdrant takes at most {MOST_BYTES:,} in one request",
            hint="leave the large column out of `payload`, or use a Lance store",
        )


def _batch_points(batch: pa.RecordBatch, part: str, base: int) -> Iterator[models.PointStruct]:
    fields = [f for f in batch.schema if f.name not in ("_vector", "_checkpoint")]
    plain = {field_key(f.name): [plain_value(v) for v in _values(batch[f.name])] for f in fields}
    types = {field_key(f.name): f.type for f in fields}
    length, exact = dimension(batch.schema), _exact_texts(batch)
    for n, vector in enumerate(batch["_vector"].to_pylist()):
        payload = {key: column[n] for key, column in plain.items() if column[n] is not None}
        stored, raw = _stored(vector, length)
        odd = [key for key, value in payload.items() if _is_odd(types[key], value)] or None
        more = {"_odd": odd, "_exact": exact[n], "_raw": raw}
        payload |= {key: value for key, value in more.items() if value is not None}
        id = str(uuid5(_SPACE, f"{part} {payload['_id']}"))
        yield models.PointStruct(id=id, vector=stored, payload=payload | _unborn(part, base))


def _is_odd(type: pa.DataType, plain: Any) -> bool:
    """Whether a number or time is stored as a text, which Qdrant cannot compare with others."""
    if not isinstance(plain, str):
        return False
    is_time = pa.types.is_date(type) or pa.types.is_timestamp(type)
    return bool(pa.types.is_floating(type) or (is_time and plain.lstrip("-").isdigit()))


def _stored(vector: Sequence[float] | None, length: int) -> tuple[list[float], str | None]:
    """A vector as Qdrant stores it, and its original bytes if they differ; '' means no vector."""
    if vector is None:
        return [0.0] * length, ""
    own = np.asarray(vector, np.float32)
    norm = float(np.linalg.norm(own.astype(np.float64)))
    if norm == 0 or abs(norm - 1) < UNIT:
        return own.tolist(), None
    unit = (own.astype(np.float64) / norm).astype(np.float32)
    return unit.tolist(), base64.b64encode(own.astype("<f4").tobytes()).decode()


def _values(column: pa.Array) -> list[Any]:
    """A column's values; times that Python cannot represent are given as their integer count."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        count = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
        return [None if v is None else f"{v}" for v in column.cast(count).to_pylist()]


def plain_value(value: Any) -> Any:
    """A value in JSON form, which need not be exact."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        return float(value)
    if isinstance(value, datetime.datetime):
        return moment_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(k): plain_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(v) for v in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def moment_text(value: datetime.datetime) -> str:
    """A time as text in UTC; a value without a time zone is in UTC already."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    moment = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _is_exact(type: pa.DataType) -> bool:
    """Whether the plain values of a type are exact."""
    is_float = pa.types.is_float32(type) or pa.types.is_float64(type)
    return bool(column_kind(type) in ("text", "boolean") or is_float or is_whole(type))


def _inexact(schema: pa.Schema) -> pa.Schema:
    """The payload columns whose values are in `_exact`."""
    inexact = (f for f in schema if not f.name.startswith(RESERVED) and not _is_exact(f.type))
    return pa.schema([pa.field(f.name, f.type) for f in inexact])


def _exact_texts(batch: pa.RecordBatch) -> list[str | None]:
    schema = _inexact(batch.schema)
    if not len(schema):
        return [None] * batch.num_rows
    chosen = pa.RecordBatch.from_arrays([batch[n] for n in schema.names], schema=schema)
    return [_exact_text(chosen.slice(n, 1)) for n in range(batch.num_rows)]


def _exact_text(row: pa.RecordBatch) -> str | None:
    if all(column.null_count for column in row.columns):
        return None
    # Copied, so that the message holds only this row's values and not the whole column.
    own = row.take(pa.array([0], pa.int64()))
    return base64.b64encode(own.serialize()).decode()


class Decoder:
    """Reads some columns of an index from points."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.schema = pa.schema([schema.field(name) for name in columns])
        self._inexact = _inexact(schema)
        self._length = dimension(schema)
        self.vectors = "_vector" in columns

    @property
    def fields(self) -> list[str]:
        """The payload fields that it needs."""
        names = [n for n in self.schema.names if n not in ("_vector", "_checkpoint")]
        fields = [field_key(n) for n in names if n not in self._inexact.names]
        exact = ["_exact"] if len(fields) < len(names) else []
        return [*fields, *exact, *(["_raw"] if self.vectors else [])]

    def batch(self, points: Sequence[Any]) -> pa.RecordBatch:
        """The chunks that points hold."""
        exact = self._exact(points) if "_exact" in self.fields else None
        arrays = [self._column(field, points, exact) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, field: pa.Field, points: Sequence[Any], exact: pa.Table | None) -> pa.Array:
        if field.name == "_vector":
            return pa.array([self._vector(p) for p in points], field.type)
        if field.name in self._inexact.names:
            assert exact is not None
            return exact[field.name].combine_chunks()
        key, restore = field_key(field.name), _restoring(field.type)
        return pa.array([restore((p.payload or {}).get(key)) for p in points], field.type)

    def _vector(self, point: Any) -> Sequence[float] | np.ndarray | None:
        raw = (point.payload or {}).get("_raw")
        if raw is None:
            return np.asarray(point.vector, np.float32)
        return np.frombuffer(base64.b64decode(raw), "<f4") if raw else None

    def _exact(self, points: Sequence[Any]) -> pa.Table:
        nulls = pa.RecordBatch.from_pylist([{}], schema=self._inexact)
        rows = [self._exact_row((p.payload or {}).get("_exact"), nulls) for p in points]
        return pa.Table.from_batches(rows, schema=self._inexact)

    def _exact_row(self, text: str | None, nulls: pa.RecordBatch) -> pa.RecordBatch:
        if text is None:
            return nulls
        message = pa.py_buffer(base64.b64decode(text))
        return pa.ipc.read_record_batch(message, self._inexact)


def _restoring(type: pa.DataType) -> Callable[[Any], Any]:
    """A function that turns a plain value back into the original."""
    if pa.types.is_float16(type):
        # Arrow before 21 takes no other number for one.
        return lambda value: None if value is None else np.float16(_ODD.get(value, value))
    if pa.types.is_floating(type):
        return lambda value: _ODD[value] if isinstance(value, str) else value
    return lambda value: value
