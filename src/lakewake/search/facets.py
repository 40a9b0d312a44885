"""Summarises the payload columns of an index: the values or the range to filter by."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakewake.model.facets import Facet
from lakewake.model.where import IsNull, column_kind, element_type, fields_of, found

if TYPE_CHECKING:
    from lakewake.model.frontier import Frontier
    from lakewake.model.recipe import Recipe
    from lakewake.store import StoreReader

#: A column with more distinct values than this is not a list to choose from.
MAX_DISTINCT = 1000
LISTED = 20


class Countable(Protocol):
    """What facets are made of: a version of an index, or some rows of it."""

    def schema(self) -> pa.Schema: ...

    def recipe(self) -> Recipe: ...

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


class _Summary(Protocol):
    """Summarises the values of one column."""

    def add(self, values: pa.Array) -> None:
        """Take in more values."""

    def facet(self) -> Facet:
        """The facet of all values so far."""


class FacetCache:
    """Keeps the facets of the last version that was asked for."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._kept: tuple[tuple[int, Frontier], tuple[Facet, ...]] | None = None

    def of(self, reader: StoreReader) -> tuple[Facet, ...]:
        """The facets of this version, computed once."""
        version = reader.generation, reader.frontier()
        # Concurrent callers wait for the result instead of counting too.
        with self._counting:
            if self._kept is None or self._kept[0] != version:
                self._kept = version, compute_facets(reader)
            return self._kept[1]


def compute_facets(reader: Countable) -> tuple[Facet, ...]:
    """One facet per payload column, or field in one, that can be filtered by, in their order.

    Each row counts once, however many chunks it has, and each element of a list once for a row.
    Memory does not grow with the values. If rows have several texts, it takes one number per row.
    """
    schema, recipe = reader.schema(), reader.recipe()
    held = pa.schema([schema.field(c) for c in recipe.payload_columns if c in schema.names])
    types = {path: type_ for path, type_ in fields_of(held).items() if _facet_kind(type_)}
    summaries = {path: _summary(path, _facet_kind(type_)) for path, type_ in types.items()}
    places = {path: found(IsNull(path), held)[0] for path in types}
    columns = dict.fromkeys(place.column for place in places.values())
    rows = _Rows(several=len(recipe.fields) > 1)
    for batch in reader.scan([*rows.columns, *columns]) if columns else ():
        first = batch.filter(rows.first_chunks(batch))
        for path, summary in summaries.items():
            values = first[places[path].column]
            for name in places[path].inside:
                values = pc.struct_field(values, name)
            lists = element_type(types[path]) is not None
            summary.add((_distinct_elements(values) if lists else values).drop_null())
    facets = {path: summary.facet() for path, summary in summaries.items()}
    return tuple(
        replace(facet, of_list=element_type(types[path]) is not None)
        for path, facet in facets.items()
    )


def _distinct_elements(lists: pa.Array) -> pa.Array:
    """The elements of the lists, each once for a list."""
    columns = {"row": pc.list_parent_indices(lists), "value": pc.list_flatten(lists)}
    return pa.table(columns).group_by(["row", "value"]).aggregate([])["value"].combine_chunks()


class _Rows:
    """Picks one chunk of each row."""

    def __init__(self, *, several: bool) -> None:
        self.columns = ("_chunk", "_partition", "_key") if several else ("_chunk",)
        self._several = several
        self._seen: set[int] = set()

    def first_chunks(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask that is True for one chunk of each row, over all batches."""
        first = pc.equal(batch["_chunk"], 0)
        if not self._several:
            return first
        # Each text of a row has a first chunk, and a row may lack any of its texts.
        ids = zip(batch["_partition"].to_pylist(), batch["_key"].to_pylist(), strict=True)
        chunks = zip(first.to_pylist(), ids, strict=True)
        return pa.array([starts and self._is_new(row) for starts, row in chunks], pa.bool_())

    def _is_new(self, row: tuple[str, str]) -> bool:
        before = len(self._seen)
        self._seen.add(hash(row))
        return len(self._seen) > before


class _Values:
    """Counts distinct values, unless there are too many."""

    def __init__(self, column: str, kind: str) -> None:
        self._column, self._kind = column, kind
        self._counts: Counter[Any] | None = Counter()

    def add(self, values: pa.Array) -> None:
        if self._counts is None:
            return
        counted = pc.value_counts(values)
        if len(counted) <= MAX_DISTINCT:
            distinct, counts = counted.flatten()
            more = zip(distinct.to_pylist(), counts.to_pylist(), strict=True)
            self._counts.update(dict(more))
        if max(len(counted), len(self._counts)) > MAX_DISTINCT:
            self._counts = None

    def facet(self) -> Facet:
        # The most frequent first, then in alphabetical order. A column of unique values identifies
        # rows, so there is nothing to choose from.
        if self._counts is None or (len(self._counts) > LISTED and max(self._counts.values()) == 1):
            return Facet(self._column, self._kind)
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        more = max(len(ranked) - LISTED, 0)
        return Facet(self._column, self._kind, values=dict(ranked[:LISTED]), more=more)


class _Range:
    """Keeps the smallest and the largest value."""

    def __init__(self, column: str, kind: str) -> None:
        self._column, self._kind = column, kind
        self._ends: pa.Array | None = None

    def add(self, values: pa.Array) -> None:
        if types.is_floating(values.type):
            values = values.filter(pc.is_finite(values))
        if types.is_timestamp(values.type):
            # Python's datetime has no finer unit.
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        if len(values):
            known = values if self._ends is None else pa.concat_arrays([values, self._ends])
            ends = pc.min_max(known)
            self._ends = pa.array([ends["min"], ends["max"]], known.type)

    def facet(self) -> Facet:
        ends = (None, None) if self._ends is None else self._ends
        least, greatest = map(_plain, ends)
        return Facet(self._column, self._kind, min=least, max=greatest)


def _summary(column: str, kind: str) -> _Summary:
    return (_Range if kind in ("number", "time") else _Values)(column, kind)


def _facet_kind(type_: pa.DataType) -> str:
    """As `_kind`. A list has one if single elements can be chosen: texts and booleans."""
    element = element_type(type_)
    if element is None:
        return _kind(type_)
    return kind if (kind := _kind(element)) in ("text", "boolean") else ""


def _kind(type_: pa.DataType) -> str:
    """The kind of filter for a column; '' if it cannot be filtered by."""
    kind = column_kind(type_) or ""
    return "time" if kind in ("date", "timestamp") else kind


def _plain(end: pa.Scalar | None) -> int | float | str | None:
    """The value as JSON; None for a time outside Python's calendar."""
    try:
        value = end.as_py() if end is not None else None
    except (ValueError, OverflowError):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    plain: int | float | None = value
    return plain
