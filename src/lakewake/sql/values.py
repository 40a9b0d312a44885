"""Reads the values that a statement spells out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lakewake.sql.statements import Value
from lakewake.sql.tokens import Token

_WORDS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}


def read_value(tokens: Sequence[Token], at: int) -> tuple[Value, int | None]:
    """The value that begins at a token, and the number of the token after it.

    None instead of that number: there is no value, or it has to be computed.
    """
    token = tokens[at]
    if token.kind == "text":
        return _text(tokens, at)
    if token.key in ("-", "+") and at + 1 < len(tokens) and tokens[at + 1].kind == "number":
        number = _number(tokens[at + 1].text)
        return (-number if token.key == "-" else number), at + 2
    if token.kind == "number":
        return _number(token.text), at + 1
    if token.key in _WORDS:
        return _WORDS[token.key], at + 1
    if token.key == "ARRAY" and at + 1 < len(tokens) and tokens[at + 1].key == "(":
        return _list(tokens, at + 2)
    return None, None


def _text(tokens: Sequence[Token], at: int) -> tuple[Value, int | None]:
    """Texts beside one another are one text, as in Spark 3.5."""
    parts = []
    while at < len(tokens) and tokens[at].kind == "text":
        parts.append(tokens[at].value)
        at += 1
    return "".join(parts), at


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def _list(tokens: Sequence[Token], at: int) -> tuple[Value, int | None]:
    values: list[Value] = []
    while at < len(tokens) and tokens[at].key != ")":
        if values and tokens[at].key != ",":
            return None, None
        value, after = read_value(tokens, at + bool(values))
        if after is None:
            return None, None
        values.append(value)
        at = after
    return (tuple(values), at + 1) if at < len(tokens) else (None, None)
