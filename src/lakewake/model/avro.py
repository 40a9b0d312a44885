"""Column types from commit metadata, reduced to what a reader sees. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: What a reader sees of a type with this logical name, whichever writer made it.
_SHOWN: dict[str, Any] = {
    "timestamp-millis": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp-micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local-timestamp-millis": {"type": "long", "logicalType": "local-timestamp-micros"},
    "local-timestamp-micros": {"type": "long", "logicalType": "local-timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "time-millis": "int",
    "time-micros": "long",
    "uuid": "string",
}
#: Keys that say nothing about the values: names, documentation, an engine's own notes.
_ASIDE = frozenset({"name", "namespace", "aliases", "doc", "default", "order", "avro.java.string"})


def type_text(avro: Any) -> str:
    """A column's type as JSON, without names, nullability and an engine's own notes.

    Types that a reader sees as equal have equal texts: milliseconds are written as microseconds.
    """
    return json.dumps(_shown(avro), sort_keys=True)


def type_at(schema: Mapping[str, str], path: str) -> str | None:
    """The type of a column, or of a field in structs, such as `customer.country`; None: none."""
    if path in schema:
        return schema[path]
    name, *inside = path.split(".")
    avro = json.loads(schema[name]) if name in schema else None
    for step in inside:
        avro = _record_field(avro, step)
    return None if avro is None else json.dumps(avro, sort_keys=True)


def _record_field(avro: Any, name: str) -> Any:
    avro = _shown(avro)
    fields = avro.get("fields", ()) if isinstance(avro, dict) else ()
    return next((field["type"] for field in fields if field["name"] == name), None)


def same_type(one: str | None, other: str | None) -> bool:
    """Whether two texts mean the same type; an index may hold a text of an earlier version."""
    return one == other or _reduced(one) == _reduced(other)


def same_types(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether all columns have the same types."""
    return one.keys() == other.keys() and all(same_type(one[c], other[c]) for c in one)


def _reduced(text: str | None) -> str | None:
    return None if text is None else type_text(json.loads(text))


def _shown(avro: Any) -> Any:
    if isinstance(avro, list):
        kinds = [_shown(t) for t in avro if t != "null"]
        return kinds[0] if len(kinds) == 1 else kinds
    return _shown_object(avro) if isinstance(avro, dict) else avro


def _shown_object(avro: dict[str, Any]) -> Any:
    kind, logical = avro.get("type"), avro.get("logicalType")
    if not isinstance(kind, str):
        return _shown(kind)
    if logical in _SHOWN:
        return _SHOWN[logical]
    if logical == "decimal":
        digits = {"precision": avro.get("precision"), "scale": avro.get("scale", 0)}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if kind == "record" and not logical:
        return {"type": "record", "fields": [_field(f) for f in avro["fields"]]}
    if kind in ("array", "map") and not logical:
        inner = "items" if kind == "array" else "values"
        return {"type": kind, inner: _shown(avro[inner])}
    return _other(kind, logical, avro)


def _other(kind: str, logical: str | None, avro: dict[str, Any]) -> Any:
    """A plain type with notes beside it, or one that Hudi has a logical name for (VECTOR)."""
    if not logical:
        return {"enum": "string", "fixed": "bytes"}.get(kind, kind)
    return {k: _shown(v) for k, v in avro.items() if k not in _ASIDE}


def _field(field: dict[str, Any]) -> dict[str, Any]:
    return {"name": field["name"], "type": _shown(field["type"])}
