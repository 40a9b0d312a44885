"""The words of a text, in the form that searches compare."""

from __future__ import annotations

import re
import unicodedata

from lakewake.model.languages import NONE, stem_of, stop_words

_WORD = re.compile(r"\w+")
_MARKS = re.compile("[\u0300-\u036f]")
_ENDINGS = ("ing", "ies", "es", "ed", "s", "y", "e")


def plain(text: str) -> str:
    """The text without case and accents."""
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()


def words_of(text: str) -> list[str]:
    """Its words, without case and accents."""
    return _WORD.findall(plain(text))


#: Words that say little about what a question asks for.
_STOP = frozenset(
    words_of(
        "a an and any are as at be but by can do does for from has have how i if in is it its me "
        "my of on or our so some such that the their them there these this to want was we were "
        "what when where which who will with would you your"
    )
)


def stems(text: str, language: str = NONE) -> frozenset[str]:
    """The words that carry meaning, without their endings: leather for leathery.

    Without a language, the endings are those of English, roughly.
    """
    if language == NONE:
        return frozenset(_stem(word) for word in words_of(text) if word not in _STOP)
    stem, stop = stem_of(language), stop_words(language)
    return frozenset(stem(word) for word in words_of(text) if word not in stop)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word.removesuffix(ending)
    return word
