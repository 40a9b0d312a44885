"""Sums up the payload columns of an index: the values or the range that a filter may name."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakewake.model.facets import Facet
from lakewake.model.where import column_kind

if TYPE_CHECKING:
    from lakewake.model.frontier import Frontier
    from lakewake.store import StoreReader

#: More different values than these are nothing to choose from.
MAX_DISTINCT = 1000
LISTED = 20


class _Summary(Protocol):
    """What is known of a column so far."""

    def add(self, values: pa.Array) -> None:
        """See some more values."""

    def facet(self) -> Facet:
        """What all of them are like."""


class FacetCache:
    """The facets of the version of an index that was asked about last."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._kept: tuple[tuple[int, Frontier], tuple[Facet, ...]] | None = None

    def of(self, reader: StoreReader) -> tuple[Facet, ...]:
        """The facets of this version, computed once."""
        version = reader.generation, reader.frontier()
        # Callers that come while they are counted wait for the result instead of counting too.
        with self._counting:
            if self._kept is None or self._kept[0] != version:
                self._kept = version, compute_facets(reader)
            return self._kept[1]


def compute_facets(reader: StoreReader) -> tuple[Facet, ...]:
    """One facet for each payload column that can be filtered by, in the recipe's order.

    Each row counts once, however many chunks it has. Memory does not grow with the values; where
    rows have several texts, it takes a number for each row to tell them apart.
    """
    schema, recipe = reader.schema(), reader.recipe()
    columns = [c for c in recipe.payload if c in schema.names and _kind(schema.field(c).type)]
    summaries = {c: _summary(c, _kind(schema.field(c).type)) for c in columns}
    rows = _Rows(several=len(recipe.fields) > 1)
    for batch in reader.scan([*rows.columns, *columns]) if columns else ():
        first = batch.filter(rows.first_chunks(batch))
        for column, summary in summaries.items():
            summary.add(first[column].drop_null())
    return tuple(summary.facet() for summary in summaries.values())


class _Rows:
    """Tells which chunk of each row comes first."""

    def __init__(self, *, several: bool) -> None:
        self.columns = ("_chunk", "_partition", "_key") if several else ("_chunk",)
        self._several = several
        self._seen: set[int] = set()

    def first_chunks(self, batch: pa.RecordBatch) -> pa.Array:
        """True for one chunk of each row, in whichever batch that is."""
        first = pc.equal(batch["_chunk"], 0)
        if not self._several:
            return first
        # Each text of a row has a first chunk, and a row may lack any of its texts.
        ids = zip(batch["_partition"].to_pylist(), batch["_key"].to_pylist(), strict=True)
        told = zip(first.to_pylist(), ids, strict=True)
        return pa.array([starts and self._is_new(row) for starts, row in told], pa.bool_())

    def _is_new(self, row: tuple[str, str]) -> bool:
        before = len(self._seen)
        self._seen.add(hash(row))
        return len(self._seen) > before


class _Values:
    """Counts different values, until they are too many."""

    def __init__(self, column: str, kind: str) -> None:
        self._column, self._kind = column, kind
        self._counts: Counter[Any] | None = Counter()

    def add(self, values: pa.Array) -> None:
        """Count some more."""
        if self._counts is None:
            return
        found = pc.value_counts(values)
        if len(found) <= MAX_DISTINCT:
            distinct, counts = found.flatten()
            more = zip(distinct.to_pylist(), counts.to_pylist(), strict=True)
            self._counts.update(dict(more))
        if max(len(found), len(self._counts)) > MAX_DISTINCT:
            self._counts = None

    def facet(self) -> Facet:
        """The most frequent, equally frequent ones by the alphabet."""
        # Where no value is there twice it names a row, and filters nothing.
        if self._counts is None or (len(self._counts) > LISTED and max(self._counts.values()) == 1):
            return Facet(self._column, self._kind)
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        more = max(len(ranked) - LISTED, 0)
        return Facet(self._column, self._kind, values=dict(ranked[:LISTED]), more=more)


class _Range:
    """Keeps the least and the greatest value."""

    def __init__(self, column: str, kind: str) -> None:
        self._column, self._kind = column, kind
        self._ends: pa.Array | None = None

    def add(self, values: pa.Array) -> None:
        """Widen the range by some more."""
        if types.is_floating(values.type):
            values = values.filter(pc.is_finite(values))
        if types.is_timestamp(values.type):
            # Python's clock is no finer.
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        if len(values):
            known = values if self._ends is None else pa.concat_arrays([values, self._ends])
            ends = pc.min_max(known)
            self._ends = pa.array([ends["min"], ends["max"]], known.type)

    def facet(self) -> Facet:
        """The range."""
        ends = (None, None) if self._ends is None else self._ends
        least, greatest = map(_plain, ends)
        return Facet(self._column, self._kind, min=least, max=greatest)


def _summary(column: str, kind: str) -> _Summary:
    return (_Range if kind in ("number", "time") else _Values)(column, kind)


def _kind(type_: pa.DataType) -> str:
    """How a column is filtered by; '' when it cannot be."""
    kind = column_kind(type_) or ""
    return "time" if kind in ("date", "timestamp") else kind


def _plain(end: pa.Scalar | None) -> int | float | str | None:
    """The value in JSON's own types; None for a time that Python's calendar has not."""
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
