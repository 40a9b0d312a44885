"""How a template is filled in with the values of a row. `view.py` lets Spark do the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakewake.model.recipe import TextField

Values = Mapping[str, Any]


def render(field: TextField, values: Values, rendering: int = 1) -> str | None:
    """The filled-in template; None if every column in it is null or blank."""
    found = {c: _value_at(values, c) for c in field.columns}
    if rendering == 1:
        texts = {c: "" if value is None else str(value) for c, value in found.items()}
    else:
        texts = {c: _joined(value) for c, value in found.items()}
    if not any(text.strip() for text in texts.values()):
        return None
    if rendering == 1:
        return "".join(literal + (texts[c] if c else "") for literal, c in field.parts())
    out = ""
    for one in field.values():
        if texts[one.column].strip():
            out += (one.before if out else one.first) + texts[one.column] + one.after
    return out


def _value_at(values: Values, path: str) -> Any:
    if path in values:
        return values[path]
    found: Any = values
    for name in path.split("."):
        found = None if found is None else found.get(name)
    return found


def _joined(value: Any) -> str:
    """A value as text: elements of lists and structs with commas between, without nulls."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return ", ".join(text for text in map(_joined, value) if text.strip())
    return str(value)
