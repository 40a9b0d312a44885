"""Turns what a store found into Python values."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

#: The calendar repeats every 400 years, which have this many days.
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
MILLENNIUM = datetime.date(2000, 1, 1)
EPOCH = datetime.date(1970, 1, 1)
#: Units per second, by Arrow's name of the unit.
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LISTS = (pa.ListScalar, pa.LargeListScalar, pa.FixedSizeListScalar)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows. A date or time outside Python's calendar (after 9999) becomes ISO 8601 text."""
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        columns = [[_value(scalar) for scalar in column] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _beyond(scalar)


def _beyond(scalar: pa.Scalar) -> Any:
    if isinstance(scalar, pa.MapScalar):
        return [(_value(entry["key"]), _value(entry["value"])) for entry in scalar.values]
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(scalar[name]) for name in scalar}
    if isinstance(scalar, LISTS):
        return [_value(inner) for inner in scalar.values]
    if isinstance(scalar, pa.Date32Scalar):
        return _day(scalar.value)
    return _moment(scalar.value, UNITS[scalar.type.unit], "+00:00" if scalar.type.tz else "")


def _moment(value: int, unit: int, zone: str) -> str:
    seconds, part = divmod(value, unit)
    days, seconds = divmod(seconds, 86_400)
    clock = datetime.timedelta(seconds=seconds, microseconds=part * 10**6 // unit)
    return f"{_day(days)}T{(datetime.datetime.min + clock).time().isoformat()}{zone}"


def _day(days: int) -> str:
    """The day with this number since 1970. Arrow's own text is wrong from the year 32768 on."""
    cycles, rest = divmod(days - (MILLENNIUM - EPOCH).days, CYCLE_DAYS)
    day = MILLENNIUM + datetime.timedelta(days=rest)
    year = day.year + CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > datetime.MAXYEAR else ""
    return f"{sign}{abs(year):04}-{day:%m-%d}"
