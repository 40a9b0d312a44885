"""A filter as a value. Each store translates it; it is never passed on as text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NoReturn

import pyarrow as pa

from lakewake.errors import FilterError

Literal = str | int | float | bool | Decimal | datetime.date | datetime.datetime


@dataclass(frozen=True)
class Compare:
    """`column op literal`; op is one of = != < <= > >=.

    The column of a condition is a name, or the path of a field in structs: `customer.country`. A
    filter that is fitted to columns has the name alone, and the rest of the path in `inside`.
    """

    column: str
    op: str
    value: Literal
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class In:
    """`column IN (…)`."""

    column: str
    values: tuple[Literal, ...]
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Like:
    """`column LIKE pattern`; % and _ are wildcards, except after a backslash.

    With `any_case`, ILIKE: a letter also stands for its lower and upper case.
    """

    column: str
    pattern: str
    any_case: bool = False
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class IsNull:
    """`column IS NULL`."""

    column: str
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contains:
    """`column CONTAINS ANY (…)`: one of the values is an element of the list in the column."""

    column: str
    values: tuple[Literal, ...]
    inside: tuple[str, ...] = ()


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


Leaf = Compare | In | Like | IsNull | Contains

Where = Leaf | Not | And | Or

#: No row passes it.
NO_ROW = Or(())

#: How a literal of each kind is written.
WRITTEN = {
    "text": "'Italy'",
    "number": "40",
    "boolean": "true",
    "date": "DATE '2024-01-31'",
    "timestamp": "TIMESTAMP '2024-01-31 12:00:00'",
}
MOMENTS: dict[str, type[datetime.date]] = {
    "date": datetime.date,
    "timestamp": datetime.datetime,
}
#: Powers of ten beyond this fit no column, and make arithmetic slow.
_LARGEST = 400
_FILTERED_BY = (
    "filter by a column of numbers, strings, booleans, dates or timestamps, or lists of these; "
    "by a field of a struct, as in customer.country = 'DE'; or with IS NULL"
)
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
    if isinstance(leaf, In | Contains):
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


def element_type(type: pa.DataType) -> pa.DataType | None:
    """The type of a list's elements, if they can be filtered; None if it is not such a list."""
    if not (pa.types.is_list(type) or pa.types.is_large_list(type)):
        return None
    return type.value_type if column_kind(type.value_type) else None


def found(leaf: Leaf, schema: pa.Schema) -> tuple[Leaf, pa.DataType]:
    """A condition with its column found, and the type of what it looks at.

    A column of that name comes before a field of that path.

    Raises:
        FilterError: there is no such column or field.
    """
    if leaf.inside:
        return leaf, _type_inside(schema.field(leaf.column).type, leaf.inside)
    path = _path(leaf.column, tuple(schema))
    if path is None:
        raise FilterError(
            f"there is no column {leaf.column!r}", hint=f"use one of {', '.join(schema.names)}"
        )
    name, *inside = path
    at_column = replace(leaf, column=name, inside=tuple(inside))
    return at_column, _type_inside(schema.field(name).type, inside)


def has_field(leaf: Leaf, schema: pa.Schema) -> bool:
    """Whether there is a column, or a field in a struct, that a condition looks at."""
    return _path(leaf.column, tuple(schema)) is not None


def fields_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The columns, and for a struct each of its fields by its path: `customer.country`."""
    return {name: type for field in schema for name, type in _fields(field.name, field.type)}


def _fields(name: str, type: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if not pa.types.is_struct(type):
        yield name, type
        return
    for field in type:
        yield from _fields(f"{name}.{field.name}", field.type)


def _path(path: str, fields: tuple[pa.Field, ...]) -> tuple[str, ...] | None:
    """The names from a column to the field of a path; None if there is no such field."""
    for field in fields:
        if field.name == path:
            return (path,)
    for field in fields:
        if pa.types.is_struct(field.type) and path.startswith(f"{field.name}."):
            rest = _path(path[len(field.name) + 1 :], tuple(field.type))
            if rest is not None:
                return (field.name, *rest)
    return None


def _type_inside(type: pa.DataType, inside: Sequence[str]) -> pa.DataType:
    for name in inside:
        type = type.field(name).type
    return type


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
        _check_leaf(leaf, found(leaf, schema)[1])


def _check_leaf(leaf: Leaf, type: pa.DataType) -> None:
    if isinstance(leaf, IsNull):
        return
    element = element_type(type)
    if isinstance(leaf, Contains) != (element is not None):
        _refuse_list(leaf, type, element)
    type = type if element is None else element
    kind = column_kind(type)
    if kind is None:
        raise FilterError(
            f"column {leaf.column!r} is a {type}, which cannot be filtered",
            hint=_FILTERED_BY,
        )
    if isinstance(leaf, Like) and not _PATTERN.fullmatch(leaf.pattern):
        raise FilterError(
            f"in LIKE {leaf.pattern!r} a backslash is before something other than % _ \\",
            hint="write a backslash itself as \\\\",
        )
    for value in literals(leaf):
        _check_literal(leaf.column, f"{kind} ({type})", kind, value)


def _refuse_list(leaf: Leaf, type: pa.DataType, element: pa.DataType | None) -> NoReturn:
    if element is None:
        raise FilterError(
            f"column {leaf.column!r} is a {type}, not a list whose elements can be compared",
            hint="use CONTAINS with a column of lists; for other columns write = or IN (…)",
        )
    raise FilterError(
        f"column {leaf.column!r} is a {type}: only CONTAINS compares a list",
        hint=f"write it as in: {leaf.column} CONTAINS {WRITTEN[column_kind(element) or 'text']}",
    )


def moment_of(column: str, kind: str, text: str) -> datetime.date | datetime.datetime:
    """The date or timestamp that a text spells.

    Raises:
        FilterError: it spells none.
    """
    try:
        return MOMENTS[kind].fromisoformat(text)
    except ValueError as error:
        raise FilterError(
            f"column {column!r} holds a {kind}, and {text!r} is not a valid one",
            hint=f"write it as in: {column} = {WRITTEN[kind].partition(' ')[2]}",
        ) from error


def _check_literal(column: str, holds: str, kind: str, value: Literal) -> None:
    if isinstance(value, str) and kind in MOMENTS:
        moment_of(column, kind, value)
        return
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
