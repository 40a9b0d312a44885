"""Filters as Qdrant takes them: which points a version holds, and what a person asks for. Pure.

Qdrant compares numbers as doubles and times as microseconds. It cannot order texts and has no LIKE.
So a filter is translated to one that uses payload indexes and finds at least what it should; what
is found is then checked against the filter itself, by `store.passing.passing`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from qdrant_client import models
from qdrant_client.models import Filter

from lakewake.model.where import (
    And,
    Compare,
    Contains,
    In,
    IsNull,
    Leaf,
    Literal,
    Not,
    Or,
    Where,
    column_kind,
    element_type,
    found,
)
from lakewake.store.qdrant.points import NOTHING
from lakewake.store.qdrant.rows import FOREVER, is_whole, moment_text, path_key

#: Whole numbers below this are exact as doubles.
_EXACT_BELOW = 2**53


def among(key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
    """The field has one of the values."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def has_id(ids: Sequence[str]) -> models.HasIdCondition:
    """The point has one of these ids."""
    return models.HasIdCondition(has_id=list(ids))


def at_most(key: str, value: int) -> models.FieldCondition:
    """The field's number is not above the value."""
    return models.FieldCondition(key=key, range=models.Range(lte=value))


def exactly(key: str, value: int) -> models.FieldCondition:
    """The field's number is the value."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def every(*conditions: Any) -> Filter:
    """All conditions hold."""
    return Filter(must=list(conditions))


def valid_at(version: int, since: int | None = None) -> Filter:
    """The chunks of one version; with `since`, only those that this earlier version has too."""
    later = models.FieldCondition(key="_to", range=models.Range(gt=version))
    return every(at_most("_from", version if since is None else since), later)


def undecided(parts: Sequence[str]) -> Filter:
    """The points of these parts that no version contains."""
    return every(among("_part", parts), exactly("_from", FOREVER))


def unborn(parts: Sequence[str]) -> Filter:
    """The chunks of these parts that no version contains yet."""
    return every(undecided(parts), exactly("_to", FOREVER))


def deletions(parts: Sequence[str]) -> Filter:
    """The points of these parts that list deleted chunks."""
    return every(among("_part", parts), exactly("_to", 0))


def abandoned(version: int) -> Filter:
    """Points of parts that were begun at an earlier version, so can never be decided on."""
    return every(
        exactly("_from", FOREVER),
        models.FieldCondition(key="_base", range=models.Range(lt=version)),
    )


def superseded(ids: Sequence[str], version: int) -> Filter:
    """The chunks with these ids that are valid at a version and have no end yet."""
    return every(among("_id", ids), at_most("_from", version), exactly("_to", FOREVER))


def ended(version: int) -> Filter:
    """The chunks that no reader at this version or a later one sees."""
    return every(models.FieldCondition(key="_to", range=models.Range(gte=1, lte=version)))


def to_filter(where: Where, schema: pa.Schema) -> Filter:
    """A filter that finds at least what a fitted `where` does."""
    if isinstance(where, And | Or):
        parts = [to_filter(part, schema) for part in where.parts]
        if not parts:
            return Filter() if isinstance(where, And) else NOTHING
        return Filter(must=parts) if isinstance(where, And) else Filter(should=parts)
    leaf = where.inner if isinstance(where, Not) else where
    assert isinstance(leaf, Leaf)
    leaf, type = found(leaf, schema)
    return _leaf(leaf, type, negated=isinstance(where, Not))


def _leaf(leaf: Leaf, type: pa.DataType, negated: bool) -> Filter:
    key = path_key(leaf.column, leaf.inside)
    if key is None or (leaf.inside and not _is_plain(element_type(type) or type)):
        return Filter()
    if isinstance(leaf, Contains):
        return _contains(key, element_type(type), leaf, negated)
    is_null = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
    if isinstance(leaf, IsNull):
        # To Qdrant, an empty list is the same as null.
        unclear = negated and column_kind(type) is None
        return Filter() if unclear else Filter(must_not=[is_null]) if negated else every(is_null)
    if isinstance(leaf, Compare) and leaf.op == "!=" and isinstance(leaf.value, bool):
        leaf = Compare(leaf.column, "=", not leaf.value)
    if isinstance(leaf, Compare) and not negated and leaf.op != "!=":
        return _compare(key, type, leaf) or Filter(must_not=[is_null])
    if isinstance(leaf, In) and not negated:
        equal = [_compare(key, type, Compare(leaf.column, "=", v)) for v in leaf.values]
        return Filter(should=equal) if equal else NOTHING
    # The rest are negations: any value may pass, except an equal one.
    same = _equal(key, type, leaf.value) if isinstance(leaf, Compare) else None
    return Filter(must_not=[is_null, *([same] if same else [])])


def _is_plain(type: pa.DataType) -> bool:
    """Whether Qdrant holds values in structs in a form that it compares exactly.

    Points record only for whole columns which of their numbers and times it cannot compare.
    """
    return column_kind(type) in ("text", "boolean", None) or is_whole(type)


def _contains(key: str, element: pa.DataType, leaf: Contains, negated: bool) -> Filter:
    """A condition on a list in Qdrant holds if it holds for any of the elements."""
    if negated:
        # To Qdrant, an empty list is the same as null; a negation holds for the empty list only.
        same = [_equal(key, element, value) for value in leaf.values]
        return Filter(must_not=[one for one in same if one])
    equal = [_compare(key, element, Compare(leaf.column, "=", v)) for v in leaf.values]
    if None in equal:
        return Filter()
    return Filter(should=equal) if equal else NOTHING


def _compare(key: str, type: pa.DataType, leaf: Compare) -> Filter | None:
    """A filter for at least the values that pass; None if Qdrant cannot express one."""
    kind = column_kind(type)
    if kind in ("text", "boolean") or is_whole(type):
        if leaf.op == "=" and (same := _equal(key, type, leaf.value)):
            return every(same)
        if not is_whole(type) or abs(float(_number(leaf.value))) >= _EXACT_BELOW:
            return None
    if is_whole(type):
        return every(models.FieldCondition(key=key, range=_range(leaf)))
    # Both ends are included: two decimals may be one double, two nanoseconds one microsecond.
    low = _bound(leaf.value) if leaf.op in ("=", ">", ">=") else None
    high = _bound(leaf.value) if leaf.op in ("=", "<", "<=") else None
    range_type = models.Range if kind == "number" else models.DatetimeRange
    inside = models.FieldCondition(key=key, range=range_type(gte=low, lte=high))
    return Filter(should=[inside, among("_odd", [key])])


def _range(leaf: Compare) -> models.Range:
    end = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}[leaf.op]
    return models.Range(**{end: _bound(leaf.value)})


def _equal(key: str, type: pa.DataType, value: Literal) -> models.FieldCondition | None:
    """Only the equal values; None if Qdrant does not compare them exactly."""
    whole = is_whole(type) and isinstance(value, int)
    if not whole and not isinstance(value, str | bool):
        return None
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _number(value: Literal) -> float | int | Decimal:
    assert isinstance(value, int | float | Decimal)
    return value


def _bound(value: Literal) -> float | str:
    if isinstance(value, datetime.datetime):
        return moment_text(value)
    if isinstance(value, datetime.date):
        return moment_text(datetime.datetime.combine(value, datetime.time()))
    return float(_number(value))
