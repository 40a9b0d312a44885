"""Parses a filter in JSON into the same value as `search.where` parses text into."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from lakewake.errors import FilterError
from lakewake.model.where import And, Compare, Contains, In, IsNull, Like, Literal, Not, Or, Where
from lakewake.search.where import MAX_LENGTH, MAX_NESTING, parse_where

SHAPE = (
    'write {"column": value} or {"column": {"<": 40, ">=": 10}}; = != < <= > >= with a text, a '
    'number, true, {"date": "2024-01-31"} or {"timestamp": "2024-01-31 12:00:00"} (UTC unless it '
    'ends in an offset); {"in": [...]}, {"between": [low, high]}, {"like": "a%"}, {"ilike": "a%"}, '
    '{"is_null": true}; for lists {"contains": "a"}, {"contains_any": [...]}; '
    '{"and": [...]}, {"or": [...]}, {"not": {...}}; all columns of one object must hold'
)
#: An integer with more bits is out of range for every column, and slow to compute with.
MAX_BITS = 1400

_OPS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MOMENTS = {"date": datetime.date, "timestamp": datetime.datetime}
#: Operations as other filter languages write them.
_ELSEWHERE = {"==": "=", "eq": "=", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def read_where(given: str | Mapping[str, Any]) -> Where:
    """Parse a filter in text or JSON.

    Raises:
        FilterError: it does not parse, or does more than compare columns with literals.
    """
    return parse_where(given) if isinstance(given, str) else parse_where_json(given)


def parse_where_json(given: Mapping[str, Any]) -> Where:
    """Parse a filter in JSON, such as `{"country": "Italy", "price": {"<": 40}}`.

    In Python, values may also be dates, timestamps and decimals.

    Raises:
        FilterError: it is not a valid filter, or too large or too deep.
    """
    return _Reader().filter(given)


class _Reader:
    """Recursive descent, a method per rule, with a limit on the characters read."""

    def __init__(self) -> None:
        self._left = MAX_LENGTH

    def filter(self, given: object, depth: int = 0) -> Where:
        if depth > MAX_NESTING:
            raise _refusal(f"the filter nests more than {MAX_NESTING} deep")
        if not isinstance(given, Mapping):
            raise _refusal(f"a filter is an object with a column, not {_shown(given)}")
        if not given:
            raise _refusal("the filter is empty")
        return _all([self._entry(key, value, depth) for key, value in given.items()])

    def _entry(self, key: object, value: object, depth: int) -> Where:
        name = self._name(key)
        if (word := name.lower()) == "not":
            return Not(self.filter(value, depth + 1))
        if word in ("and", "or"):
            parts = [self.filter(part, depth + 1) for part in self._list(word, value)]
            return _all(parts) if word == "and" else _any(parts)
        if isinstance(value, Mapping) and not _is_moment(value):
            return self._conditions(name, value)
        return Compare(name, "=", self._literal(value))

    def _conditions(self, column: str, given: Mapping[Any, Any]) -> Where:
        if not given:
            raise _refusal(f"column {_shown(column)} has no condition")
        return _all([self._condition(column, self._name(op), v) for op, v in given.items()])

    def _condition(self, column: str, op: str, value: object) -> Where:
        if op in _OPS:
            return Compare(column, _OPS[op], self._literal(value))
        tests: dict[str, Callable[[str, object], Where]] = {
            "in": self._in,
            "between": self._between,
            "like": self._like,
            "ilike": lambda name, pattern: replace(self._like(name, pattern), any_case=True),
            "is_null": self._is_null,
            "contains": lambda name, one: Contains(name, (self._literal(one),)),
            "contains_any": self._contains_any,
        }
        if op.lower() not in tests:
            known = _ELSEWHERE.get(op.lower().lstrip("$"))
            meant = f"; did you mean {known!r}?" if known else ""
            raise _refusal(f"a filter has no operation {_shown(op)}{meant}")
        return tests[op.lower()](column, value)

    def _in(self, column: str, value: object) -> Where:
        return In(column, tuple(self._literal(v) for v in self._list("in", value)))

    def _contains_any(self, column: str, value: object) -> Where:
        return Contains(column, tuple(self._literal(v) for v in self._list("contains_any", value)))

    def _between(self, column: str, value: object) -> Where:
        ends = self._list("between", value)
        if len(ends) != 2:
            raise _refusal(f"between takes [low, high], not {len(ends)} values")
        low, high = (self._literal(end) for end in ends)
        return And((Compare(column, ">=", low), Compare(column, "<=", high)))

    def _like(self, column: str, value: object) -> Like:
        if not isinstance(value, str):
            raise _refusal(f"like takes a text, not {_shown(value)}")
        return Like(column, self._text(value))

    def _is_null(self, column: str, value: object) -> Where:
        if not isinstance(value, bool):
            raise _refusal(f"is_null takes true or false, not {_shown(value)}")
        return IsNull(column) if value else Not(IsNull(column))

    def _list(self, word: str, value: object) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _refusal(f"{word} takes a list, not {_shown(value)}")
        if not value:
            raise _refusal(f"{word} has an empty list")
        self._spend(len(value))
        return list(value)

    def _literal(self, value: object) -> Literal:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bool | datetime.date):
            return value
        if isinstance(value, int | float | Decimal):
            return _number(value)
        if isinstance(value, Mapping) and _is_moment(value):
            ((kind, text),) = value.items()
            return _moment(kind, self._text(text))
        if value is None:
            raise _refusal('null cannot be compared; use {"is_null": true}')
        in_list = isinstance(value, list | tuple)
        meant = '; did you mean {"in": [...]}?' if in_list else ""
        raise _refusal(f"expected a literal, not {_shown(value)}{meant}")

    def _name(self, key: object) -> str:
        if not isinstance(key, str):
            raise _refusal(f"expected a column or an operation, not {_shown(key)}")
        return self._text(key)

    def _text(self, text: str) -> str:
        self._spend(len(text) + 1)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _refusal("the filter holds bytes that are not text")
        return text

    def _spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise _refusal(f"the filter has more than {MAX_LENGTH} characters")


def _all(parts: list[Where]) -> Where:
    return And(tuple(parts)) if len(parts) > 1 else parts[0]


def _any(parts: list[Where]) -> Where:
    return Or(tuple(parts)) if len(parts) > 1 else parts[0]


def _is_moment(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and all(k in _MOMENTS and isinstance(v, str) for k, v in value.items())


def _moment(kind: str, text: str) -> datetime.date | datetime.datetime:
    try:
        return _MOMENTS[kind].fromisoformat(text)
    except ValueError as error:
        raise _refusal(f"{_shown(text)} is not a valid {kind}") from error


def _number(value: int | float | Decimal) -> int | Decimal:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise _refusal("a number in the filter is out of range")
        return value
    # In its shortest form: 0.1 is the number that the text grammar reads from `0.1`.
    number = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    if not number.is_finite():
        raise _refusal("a number in the filter is out of range")
    return number


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list | tuple):
        return "an object" if isinstance(value, Mapping) else "a list"
    text = repr(value) if isinstance(value, str | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"


def _refusal(fact: str) -> FilterError:
    return FilterError(fact, hint=SHAPE)
