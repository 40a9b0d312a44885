"""The words of a text, in the form that searches compare."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+")
_MARKS = re.compile("[\u0300-\u036f]")


def words_of(text: str) -> list[str]:
    """Its words, without case and accents."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return _WORD.findall(plain.casefold())
