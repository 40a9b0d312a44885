"""Translates a filter: to SQL for Lance, and to a plain function for the memory store. Pure.

Lance compares a column only with a literal of exactly its own type, and allows little nesting. So a
filter is first fitted to the columns: `points < 89.5` on whole numbers becomes `points <= 89`, a
condition that no value of the type can meet becomes an empty IN, and NOT moves down to the single
conditions.
"""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakewake.errors import FilterError
from lakewake.model.where import (
    MOMENTS,
    And,
    Compare,
    Contains,
    In,
    IsNull,
    Leaf,
    Like,
    Literal,
    Not,
    Or,
    Where,
    check_types,
    column_kind,
    element_type,
    found,
    moment_of,
)

#: Levels of ANDs within ORs within ANDs; Lance's SQL parser gives up a little above this.
MAX_NESTING = 20

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_WIDE = Context(prec=80)


def fitted(where: Where, schema: pa.Schema) -> Where:
    """The same filter with literals of the columns' own types, NOT only around single conditions.

    A condition on a field of a struct has the path to it in `inside`.

    Raises:
        FilterError: a column is missing or cannot be filtered, a literal does not compare with
            it, or the filter nests too deep.
    """
    check_types(where, schema)
    fit = _fit(where, schema, negated=False)
    if _depth(fit) > MAX_NESTING:
        raise FilterError(
            f"the filter nests AND and OR more than {MAX_NESTING} deep",
            hint="use fewer parentheses, or IN (…) for many values of one column",
        )
    return fit


def to_sql(where: Where, schema: pa.Schema) -> str:
    """The filter as Lance reads it.

    Raises:
        FilterError: as `fitted`; or a column's name cannot be written in Lance's SQL.
    """
    return _sql(fitted(where, schema), schema)


def matches(where: Where, values: Mapping[str, object]) -> bool:
    """Whether a row with these values passes, by SQL's three-valued logic.

    NaN is above all numbers. A filter on a float32 column has to be `fitted` first: its values have
    other decimals than the literal that a person writes.
    """
    return _truth(where, values) is True


def _fit(where: Where, schema: pa.Schema, negated: bool) -> Where:
    if isinstance(where, Not):
        return _fit(where.inner, schema, not negated)
    if isinstance(where, And | Or):
        kind = And if isinstance(where, And) != negated else Or
        return _joined(kind, [_fit(part, schema, negated) for part in where.parts])
    fit = _fit_leaf(*found(where, schema))
    if isinstance(fit, Compare) and negated:
        return replace(fit, op=_OPPOSITE[fit.op])
    if isinstance(fit, Not) and negated:
        return fit.inner
    return Not(fit) if negated else fit


def _joined(kind: type[And] | type[Or], parts: list[Where]) -> Where:
    flat: list[Where] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _depth(where: Where) -> int:
    if isinstance(where, And | Or):
        return 1 + max(map(_depth, where.parts), default=0)
    return 0


def _fit_leaf(leaf: Leaf, type: pa.DataType) -> Where:
    if isinstance(leaf, Compare):
        return _fit_compare(leaf, type)
    if isinstance(leaf, In):
        return replace(leaf, values=_fit_values(leaf, type))
    if isinstance(leaf, Contains):
        return replace(leaf, values=_fit_values(leaf, element_type(type)))
    return leaf


def _fit_values(leaf: In | Contains, type: pa.DataType) -> tuple[Literal, ...]:
    equal = (_fit_compare(Compare(leaf.column, "=", v), type) for v in leaf.values)
    return tuple(e.value for e in equal if isinstance(e, Compare))


def _fit_compare(leaf: Compare, type: pa.DataType) -> Where:
    kind = column_kind(type) or ""
    if isinstance(leaf.value, str) and kind in MOMENTS:
        leaf = replace(leaf, value=moment_of(leaf.column, kind, leaf.value))
    if pa.types.is_floating(type):
        return replace(leaf, value=_as_float(leaf, type))
    if pa.types.is_integer(type):
        low, high = _int_range(type)
        return _on_grid(leaf, Fraction(_number(leaf)), (low, high), int)
    if pa.types.is_decimal(type):
        limit = 10**type.precision - 1
        scaled = Fraction(_number(leaf)) * 10**type.scale
        return _on_grid(
            leaf, scaled, (-limit, limit), lambda n: Decimal(n).scaleb(-type.scale, _WIDE)
        )
    if pa.types.is_timestamp(type):
        return _fit_timestamp(leaf, type)
    return leaf


def _fit_timestamp(leaf: Compare, type: pa.TimestampType) -> Where:
    per_second = _PER_SECOND[type.unit]
    micros = (_utc(leaf.value) - _EPOCH) // datetime.timedelta(microseconds=1)

    def moment(n: int) -> datetime.datetime:
        return _EPOCH + datetime.timedelta(microseconds=n * 1_000_000 // per_second)

    return _on_grid(leaf, Fraction(micros * per_second, 1_000_000), (-(2**63), 2**63 - 1), moment)


def _on_grid(
    leaf: Compare, value: Fraction, limits: tuple[int, int], literal: Callable[[int], Literal]
) -> Where:
    """Compare a column that holds whole steps with a value that may be between two steps."""
    never = In(leaf.column, (), leaf.inside)
    n, op = math.floor(value), leaf.op
    if n != value:
        if op in ("=", "!="):
            return never if op == "=" else Not(never)
        op = "<=" if op in ("<", "<=") else ">"
    if limits[0] <= n <= limits[1]:
        return replace(leaf, op=op, value=literal(n))
    always = ("!=", "<", "<=") if n > limits[1] else ("!=", ">", ">=")
    return Not(never) if op in always else never


def _int_range(type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(type):
        return 0, 2**type.bit_width - 1
    return -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1


def _number(leaf: Compare) -> int | float | Decimal:
    assert isinstance(leaf.value, int | float | Decimal)
    return leaf.value


def _as_float(leaf: Compare, type: pa.DataType) -> float:
    wanted = np.float32 if pa.types.is_float32(type) else np.float64
    try:
        with np.errstate(over="raise"):
            value = float(wanted(float(_number(leaf))))
    except (OverflowError, FloatingPointError):
        value = math.inf
    if math.isinf(value):
        raise FilterError(
            f"{leaf.value} is out of the range of column {leaf.column!r} ({type})",
            hint="compare with a number that the column can hold",
        )
    return value


def _utc(value: object) -> datetime.datetime:
    """The time in UTC; a value without a time zone is in UTC already."""
    if not isinstance(value, datetime.datetime):
        assert isinstance(value, datetime.date)
        value = datetime.datetime.combine(value, datetime.time())
    if value.tzinfo is None:
        return value.replace(tzinfo=_UTC)
    try:
        return value.astimezone(_UTC)
    except OverflowError as error:
        raise FilterError(
            f"{value} is before or after all timestamps",
            hint="compare with a time in the years 1 to 9999, in UTC",
        ) from error


def _sql(where: Where, schema: pa.Schema) -> str:
    if isinstance(where, And | Or):
        if not where.parts:
            return str(isinstance(where, And))
        word = " AND " if isinstance(where, And) else " OR "
        return "(" + word.join(_sql(part, schema) for part in where.parts) + ")"
    negated = isinstance(where, Not)
    leaf = where.inner if isinstance(where, Not) else where
    assert isinstance(leaf, Leaf)
    return _leaf_sql(*found(leaf, schema), "NOT " if negated else "")


def _leaf_sql(leaf: Leaf, type: pa.DataType, no: str) -> str:
    column = ".".join(map(_name_sql, (leaf.column, *leaf.inside)))
    if isinstance(leaf, IsNull):
        return f"{column} IS {no}NULL"
    if isinstance(leaf, Like) and leaf.any_case:
        return f"{no}regexp_like({column}, {_text_sql(_regex_sql(leaf.pattern))})"
    if isinstance(leaf, Like):
        return f"{column} {no}LIKE {_text_sql(leaf.pattern)}"
    if isinstance(leaf, Compare):
        return f"{column} {leaf.op} {_literal_sql(leaf.value, type)}"
    if isinstance(leaf, Contains):
        element = element_type(type)
        return _contains_sql(column, [_literal_sql(v, element) for v in leaf.values], no)
    return _in_sql(column, [_literal_sql(v, type) for v in leaf.values], no)


def _in_sql(column: str, values: list[str], no: str) -> str:
    # There is no NOT above a condition, so null may as well be false. Lance returns nulls for
    # `a NOT IN (1) OR a NOT IN (2)`, hence the second condition.
    has_value = f"{column} IS NOT NULL"
    if not values:
        return has_value if no else "FALSE"
    listed = f"{column} {no}IN ({', '.join(values)})"
    return f"({listed} AND {has_value})" if no else listed


def _contains_sql(column: str, values: list[str], no: str) -> str:
    if not values:
        return f"{column} IS NOT NULL" if no else "FALSE"
    found = f"array_has_any({column}, [{', '.join(values)}])"
    return f"(NOT {found} AND {column} IS NOT NULL)" if no else found


def _name_sql(name: str) -> str:
    if "`" in name:
        raise FilterError(
            f"column {name!r} has a backtick in its name, so Lance cannot filter by it",
            hint="rename the column in the table, or filter by another",
        )
    return f"`{name}`"


def _text_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal_sql(value: Literal, type: pa.DataType) -> str:
    if isinstance(value, str):
        return _text_sql(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return _timestamp_sql(value, type)
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL({type.precision}, {type.scale}))"
    if isinstance(value, float):
        return repr(value)
    # Lance reads the smallest BIGINT as minus a number that is too large.
    return f"CAST('{value}' AS BIGINT)" if value == -(2**63) else str(value)


def _timestamp_sql(value: datetime.datetime, type: pa.TimestampType) -> str:
    # A count of the column's own units: Lance drops the offset of a literal if the column has a
    # time zone other than UTC.
    micros = (value - _EPOCH) // datetime.timedelta(microseconds=1)
    zone = "None" if type.tz is None else f'Some("{type.tz}")'
    count = micros * _PER_SECOND[type.unit] // 1_000_000
    return f"arrow_cast({count}, {_text_sql(f'Timestamp({_UNITS[type.unit]}, {zone})')})"


def _truth(where: Where, values: Mapping[str, object]) -> bool | None:
    if isinstance(where, Not):
        inner = _truth(where.inner, values)
        return None if inner is None else not inner
    if isinstance(where, And | Or):
        return _joined_truth(where, [_truth(part, values) for part in where.parts])
    value: Any = values[where.column]
    for name in where.inside:
        value = None if value is None else value[name]
    if isinstance(where, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(where, Contains):
        assert isinstance(value, list)
        equal = In(where.column, where.values)
        return any(element is not None and _holds(equal, element) for element in value)
    return _holds(where, value)


def _joined_truth(where: And | Or, parts: list[bool | None]) -> bool | None:
    decisive = isinstance(where, Or)
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _holds(leaf: Compare | In | Like, value: object) -> bool:
    if isinstance(leaf, Like):
        return like_pattern(leaf.pattern, leaf.any_case).fullmatch(str(value)) is not None
    if isinstance(leaf, In):
        return any(operator.eq(*_comparable(value, v)) for v in leaf.values)
    return _COMPARISONS[leaf.op](*_comparable(value, leaf.value))


def _comparable(value: object, literal: Literal) -> tuple[Any, Any]:
    if isinstance(value, datetime.datetime):
        return _utc(value), _utc(literal)
    if isinstance(value, float):
        return (math.isnan(value), 0 if math.isnan(value) else value), (False, float(literal))  # type: ignore[arg-type]
    return value, literal


@lru_cache(maxsize=64)
def like_pattern(like: str, any_case: bool = False) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression; matching takes at most len(text) x len(pattern)."""
    pieces = [""]
    for token in _like_tokens(like):
        if token == "%":
            pieces.append("")
        elif token == "_":
            pieces[-1] += "."
        else:
            cases = _cases(token[-1]) if any_case else (token[-1],)
            pieces[-1] += (
                f"[{''.join(map(re.escape, cases))}]" if len(cases) > 1 else re.escape(*cases)
            )
    first, *rest = pieces
    # Each piece between two % matches where it is first found; backtracking would find no more.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile(first + middle + (f".*{rest[-1]}" if rest else ""), re.DOTALL)


def _like_tokens(like: str) -> list[str]:
    """The characters of a LIKE pattern, each with the backslash before it."""
    return re.findall(r"\\?.", like, re.DOTALL)


def _cases(character: str) -> tuple[str, ...]:
    """A character with its lower and its upper case, if these are single characters."""
    forms = (character, character.lower(), character.upper())
    return tuple(dict.fromkeys(form for form in forms if len(form) == 1))


def _regex_sql(like: str) -> str:
    """An ILIKE pattern as Lance's regular expression. Its own ILIKE folds more than two cases."""
    one = {"%": ".*", "_": "."}
    parts = (
        one.get(token) or "[" + "".join(f"\\x{{{ord(c):x}}}" for c in _cases(token[-1])) + "]"
        for token in _like_tokens(like)
    )
    return f"(?s)\\A{''.join(parts)}\\z"
