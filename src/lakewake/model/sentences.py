"""Where the sentences of a text begin and end. Pure.

A sentence ends at `. ! ? …` before a blank, at the full stops of Chinese and Japanese, with its
paragraph, and with a line that was ended on purpose. It does not end after an initial or an
abbreviation, nor where a line was only too full for the next word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_END = re.compile(
    r"(?<![.!?…])([.!?…]++)[\"'”’»)\]]*+(?=\s|$)|[。！？]++[\"'”’)」』]*+", re.MULTILINE
)
_WORD = re.compile(r"\S+")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘«]*$")
_NEXT_WORD = re.compile(r"\s*+[(\[\"'“‘«]*+([^\s.,;:!?)\]\"'”’]*)")
_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
#: What begins a line that is not the rest of the one above.
_NUMBER_OF_ITEM = re.compile(r"(?:^|\n)[ \t]*\d{1,3}$")
_ITEM = re.compile(r"\s*(?:[-*•–—#>|]|\d{1,3}[.)]\s)")

#: Lines shorter than this are not filled up: each was ended on purpose.
_FILLED = 30
#: How many characters back an abbreviation may begin.
_LOOKED_BACK = 16
#: A name or a clause follows these, never a new sentence.
_TITLES = frozenset(
    _WORD.findall(
        "mr mrs ms mx dr prof st mt ft gen col sgt capt lt maj adm rev hon gov sen rep pres messrs "
        "mme mlle sr sra srta hr fr frl dipl ing vs cf viz resp approx ca bzw e.g i.e z.b d.h u.a"
    )
)
#: These are abbreviations only before a number.
_NUMBERED = frozenset(
    _WORD.findall(
        "no nos nr nrs vol vols fig figs eq eqs art sec sect ch chap pt ver p pp par abs bd ed eds "
        "lot jan feb mar apr jun jul aug sep sept oct nov dec"
    )
)
#: These may end a sentence: they do if the next word begins like one.
_BOTH = frozenset(_WORD.findall("etc inc ltd co corp llc bros jr esq al a.m p.m ph.d usw"))
_ABBREVIATIONS = _TITLES | _NUMBERED | _BOTH
#: Words that begin a sentence far more often than they follow an initial.
_BEGINNERS = frozenset(
    _WORD.findall(
        "a an and as at but by for he her his how i if in it its my no not of on or our she so "
        "that the their then there these they this those to we what when where who why you your"
    )
)


def sentences(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends, without the blanks around it."""
    borders = sorted({0, len(text), *_line_ends(text), *_full_stops(text)})
    found = (_trimmed(text, start, end) for start, end in pairwise(borders))
    return [span for span in found if span]


def _full_stops(text: str) -> Iterator[int]:
    for end in _END.finditer(text):
        if (
            end[1] is None
            or end[1][-1] in "!?"
            or _plainly_ends(text, end.start(1), end.end())
            or not _goes_on(text, end.start(1), end)
        ):
            yield end.end()


def _plainly_ends(text: str, stop: int, end: int) -> bool:
    """The common case, decided quickly: a word that is not an abbreviation, a blank, a capital."""
    follow = text[end : end + 2]
    word = text[max(stop - _LOOKED_BACK, 0) : stop].rpartition(" ")[2]
    known = follow[:1] == " " and follow[1:].isupper() and len(word) > 1 and word.isalpha()
    return known and word.casefold() not in _ABBREVIATIONS


def _goes_on(text: str, stop: int, end: re.Match[str]) -> bool:
    """Whether a sentence goes on after a dot: after an initial, an abbreviation or a number."""
    follows = _NEXT_WORD.match(text, end.end())
    after = follows[1] if follows else ""
    if after[:1].islower():
        return True
    if end[1] != ".":
        return False
    if not after or not follows:
        return False
    before = text[max(stop - _LOOKED_BACK, 0) : stop]
    if _NUMBER_OF_ITEM.search(before):
        return True
    # Another initial is not the word that it looks like: J. A. Smith.
    begins = after.casefold() in _BEGINNERS and text[follows.end() : follows.end() + 1] != "."
    word = _LAST_WORD.search(before)
    return _is_short_for(word[0] if word else "", after, begins=begins)


def _is_short_for(word: str, after: str, *, begins: bool) -> bool:
    """Whether a word before a dot is an abbreviation, given the word that follows."""
    plain = word.casefold()
    if plain in _TITLES:
        return True
    if plain in _NUMBERED:
        return after[0].isdigit()
    if plain in _BOTH:
        return False
    return bool(_INITIAL.fullmatch(word)) and word[0].isupper() and not begins


def _line_ends(text: str) -> Iterator[int]:
    """Where a line was ended on purpose."""
    if "\n" not in text:
        return
    for lines in _paragraphs(text):
        yield lines[-1][1]
        words = [(text[start:end].strip(), end) for start, end in lines]
        full = _full(words)
        # One full line says nothing: any list of lines has a longest.
        wrapped = sum(full) >= 2 and 3 * sum(full) >= 2 * len(full)
        for is_full, ((line, end), (follow, _)) in zip(full, pairwise(words), strict=True):
            if not (wrapped and is_full) and not _continues(line, follow):
                yield end


def _paragraphs(text: str) -> Iterator[list[tuple[int, int]]]:
    """The lines of each paragraph; an item of a list begins one too."""
    lines: list[tuple[int, int]] = []
    start = 0
    for line in text.split("\n"):
        blank = not line.strip()
        if lines and (blank or _ITEM.match(line)):
            yield lines
            lines = []
        if not blank:
            lines.append((start, start + len(line)))
        start += len(line) + 1
    if lines:
        yield lines


def _full(words: list[tuple[str, int]]) -> list[bool]:
    """For each line but the last: whether the next word had no room in it."""
    width = max(len(line) for line, _ in words)
    return [
        width >= _FILLED and len(line) + 1 + len(follow.split(maxsplit=1)[0]) > width
        for (line, _), (follow, _) in pairwise(words)
    ]


def _continues(line: str, follow: str) -> bool:
    """Whether a line goes on in the next: people who wrap by hand leave some room."""
    return len(line) >= _FILLED and follow[0].islower() and line[-1] not in ".!?…:;"


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None
