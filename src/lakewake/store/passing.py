"""Applies a filter to whole columns. Pure; `store.filters.matches` defines what it means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.where import And, Compare, Contains, In, IsNull, Like, Not, Or, Where
from lakewake.store.filters import like_pattern

_COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def columns_of(where: Where) -> set[str]:
    """The columns that a filter looks at. It has to be `fitted` if it names fields of structs."""
    if isinstance(where, And | Or):
        return {column for part in where.parts for column in columns_of(part)}
    return columns_of(where.inner) if isinstance(where, Not) else {where.column}


def passing(where: Where, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Which rows pass a filter that was `fitted` to the columns' types."""
    return pc.fill_null(_truth(where, columns, rows), False)


def _truth(where: Where, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """True, false or null for each row, by SQL's three-valued logic."""
    if isinstance(where, Not):
        return pc.invert(_truth(where.inner, columns, rows))
    if isinstance(where, And | Or):
        join = pc.and_kleene if isinstance(where, And) else pc.or_kleene
        nothing = pa.array([isinstance(where, And)] * rows, pa.bool_())
        return reduce(join, (_truth(part, columns, rows) for part in where.parts), nothing)
    column = columns[where.column]
    for name in where.inside:
        column = pc.struct_field(column, name)
    if isinstance(where, IsNull):
        return pc.is_null(column)
    if isinstance(where, Contains):
        return _contains(where, column)
    return _holds(where, column)


def _contains(leaf: Contains, column: pa.Array) -> pa.Array:
    elements, of = pc.list_flatten(column), pc.list_parent_indices(column)
    equal = pc.fill_null(_holds(In(leaf.column, leaf.values), elements), False)
    found = np.zeros(len(column), bool)
    found[of.filter(equal).to_numpy(zero_copy_only=False)] = True
    return pa.array(found, mask=np.asarray(pc.is_null(column)))


def _holds(leaf: Compare | In | Like, column: pa.Array) -> pa.Array:
    if isinstance(leaf, Like):
        pattern = like_pattern(leaf.pattern, leaf.any_case)
        texts = column.to_pylist()
        return pa.array(
            [None if t is None else bool(pattern.fullmatch(t)) for t in texts], pa.bool_()
        )
    if isinstance(leaf, In) and pa.types.is_floating(column.type):
        # `is_in` takes 0.0 and -0.0 for different numbers.
        nothing = pc.if_else(pc.is_valid(column), False, pa.scalar(None, pa.bool_()))
        equal = (_holds(Compare(leaf.column, "=", v), column) for v in leaf.values)
        return reduce(pc.or_kleene, equal, nothing)
    if isinstance(leaf, In):
        wanted = pa.array([_literal(v, column.type) for v in leaf.values], column.type)
        found = pc.is_in(column, value_set=wanted)
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    found = _COMPARISONS[leaf.op](column, pa.scalar(_literal(leaf.value, column.type), column.type))
    if pa.types.is_floating(column.type) and leaf.op in (">", ">="):
        # NaN is above all numbers; Arrow says that it is not.
        found = pc.or_kleene(found, pc.is_nan(column))
    return found


def _literal(value: Any, type: pa.DataType) -> Any:
    if pa.types.is_timestamp(type) and type.tz is None:
        return value.replace(tzinfo=None)
    return value
