"""Decodes Java's escapes. Pure."""

from __future__ import annotations

import re

#: A character after a backslash that stands for another one.
_NAMED = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def unescaped(text: str) -> str:
    """A key or a value without escapes.

    Raises:
        ValueError: a `\\u` without four hexadecimal digits.
    """
    if "\\" not in text:
        return text
    decoded = _ESCAPE.sub(_character, text)
    # Java escapes a character beyond 16 bits as two halves, which are joined here.
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(found: re.Match[str]) -> str:
    digits, letter = found.groups()
    if digits is not None:
        return chr(int(digits, 16))
    if letter == "u":
        raise ValueError("malformed \\uxxxx encoding")
    return _NAMED.get(letter, letter)
