"""Values as TOML writes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def quote(text: str) -> str:
    """A TOML string in which every character is visible."""
    return f'"{"".join(map(_character, text))}"'


def _character(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    if c.isprintable():
        return c
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"


def as_toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)} = {as_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return quote(value) if isinstance(value, str) else repr(value)


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else quote(name)


def as_lines(values: Mapping[str, Any]) -> list[str]:
    """One `key = value` per line."""
    return [f"{_key(key)} = {as_toml(value)}" for key, value in values.items()]
