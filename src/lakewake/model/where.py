"""A filter as a value. Each store translates it; it is never passed on as text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from lakewake.errors import FilterError

Literal = str | int | float | bool | Decimal | datetime.date | datetime.datetime


@dataclass(frozen=True)
class Compare:
    """`column op literal`; op is one of = != < <= > >=."""

    column: str
    op: str
    value: Literal


@dataclass(frozen=True)
class In:
    """`column IN (…)`."""

    column: str
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Like:
    """`column LIKE pattern`; % and _ are wildcards, except after a backslash."""

    column: str
    pattern: str


@dataclass(frozen=True)
class IsNull:
    """`column IS NULL`."""

    column: str


@dataclass(frozen=True)
class Not:
    """`NOT filter`."""

    inner: Where


@dataclass(frozen=True)
class And:
    """All of them."""

    parts: tuple[Where, ...]


@dataclass(frozen=True)
class Or:
    """Any of them."""

    parts: tuple[Where, ...]


Where = Compare | In | Like | IsNull | Not | And | Or

Leaf = Compare | In | Like | IsNull

#: How a literal of each kind is written.
WRITTEN = {
    "text": "'Italy'",
    "number": "40",
    "boolean": "true",
    "date": "DATE '2024-01-31'",
    "timestamp": "TIMESTAMP '2024-01-31 12:00:00'",
}
#: Powers of ten beyond this fit no column, and make arithmetic slow.
_LARGEST = 400
_PATTERN = re.compile(r"(?:[^\\]|\\[%_\\])*")


def leaves(where: Where) -> Iterator[Leaf]:
    """The conditions on single columns, from left to right."""
    if isinstance(where, Not):
        yield from leaves(where.inner)
    elif isinstance(where, And | Or):
        for part in where.parts:
            yield from leaves(part)
    else:
        yield where


def literals(leaf: Leaf) -> tuple[Literal, ...]:
    """What a condition compares its column with."""
    if isinstance(leaf, Compare):
        return (leaf.value,)
    if isinstance(leaf, In):
        return leaf.values
    return (leaf.pattern,) if isinstance(leaf, Like) else ()


def column_kind(type: pa.DataType) -> str | None:
    """Which kind of literal a column compares with; None if it cannot be filtered."""
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return "text"
    numeric = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal)
    if any(is_one(type) for is_one in numeric):
        return "number"
    if pa.types.is_boolean(type):
        return "boolean"
    if pa.types.is_date32(type):
        return "date"
    return "timestamp" if pa.types.is_timestamp(type) else None


def literal_kind(value: Literal) -> str:
    """Which kind of literal it is."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    if isinstance(value, datetime.datetime):
        return "timestamp"
    return "date" if isinstance(value, datetime.date) else "text"


def check_types(where: Where, schema: pa.Schema) -> None:
    """Refuse a filter whose literals do not compare with the columns.

    Raises:
        FilterError: a column does not exist or cannot be filtered, or a literal is of another kind.
    """
    for leaf in leaves(where):
        if schema.get_field_index(leaf.column) < 0:
            raise FilterError(
                f"there is no column {leaf.column!r}", hint=f"use one of {', '.join(schema.names)}"
            )
        _check_leaf(leaf, schema.field(leaf.column).type)


def _check_leaf(leaf: Leaf, type: pa.DataType) -> None:
    kind = column_kind(type)
    if kind is None:
        raise FilterError(
            f"column {leaf.column!r} is a {type}, which cannot be filtered",
            hint="filter by a column of numbers, strings, booleans, dates or timestamps",
        )
    if isinstance(leaf, Like) and not _PATTERN.fullmatch(leaf.pattern):
        raise FilterError(
            f"in LIKE {leaf.pattern!r} a backslash is before something other than % _ \\",
            hint="write a backslash itself as \\\\",
        )
    for value in literals(leaf):
        _check_literal(leaf.column, f"{kind} ({type})", kind, value)


def _check_literal(column: str, holds: str, kind: str, value: Literal) -> None:
    given = literal_kind(value)
    if given != kind and (given, kind) != ("date", "timestamp"):
        fact = f"column {column!r} holds {holds}, {value!r} is a {given}"
        raise FilterError(fact, hint=f"write it as in: {column} = {WRITTEN[kind]}")
    if isinstance(value, int | float | Decimal):
        number = Decimal(value)
        if not number.is_finite() or abs(number.adjusted()) > _LARGEST:
            raise FilterError(
                f"the number compared with {column!r} is out of every range",
                hint="compare with a smaller number, or leave the condition out",
            )
