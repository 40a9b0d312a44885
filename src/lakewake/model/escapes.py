"""What Java's escapes mean. Pure."""

from __future__ import annotations

import re

#: A character after a backslash that stands for another one.
_NAMED = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def unescaped(text: str) -> str:
    """What a key or a value says.

    Raises:
        ValueError: a `\\u` without four hexadecimal digits.
    """
    if "\\" not in text:
        return text
    said = _ESCAPE.sub(_meant, text)
    # Java escapes a character beyond 16 bits as two halves, which belong together.
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _meant(found: re.Match[str]) -> str:
    digits, letter = found.groups()
    if digits is not None:
        return chr(int(digits, 16))
    if letter == "u":
        raise ValueError("malformed \\uxxxx encoding")
    return _NAMED.get(letter, letter)
