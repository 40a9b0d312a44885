"""Finds the sentence of a text that answers a question best. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from lakewake.model.asked import Kind, parse
from lakewake.model.languages import NONE
from lakewake.model.sentences import sentences
from lakewake.model.vocabulary import Vocabulary
from lakewake.model.words import stems, words_of

#: The most characters of a highlight.
LONGEST = 400


def highlight(text: str, question: str, language: str = NONE) -> tuple[int, int] | None:
    """The sentence with the most words of the question, the first of several; None if none has any.

    A sentence longer than `LONGEST` is split, and its best part counts.
    """
    asked, patterned = stems(question, language), _patterned(text, question, language)
    # Most sentences of a long text have none of the words. This skips them quickly.
    parts = None if patterned else _parts(asked, language)
    lower = text.lower() if text.isascii() and parts is not None else ""
    best, most = None, 0
    for start, end in _passages(text):
        if lower and not any(lower.find(part, start, end) >= 0 for part in parts or ()):
            continue
        common = len(asked & stems(text[start:end], language))
        if patterned:
            said = words_of(text[start:end])
            common += sum(not means.isdisjoint(said) for means in patterned)
        if common > most:
            best, most = (start, end), common
    return best


def _patterned(text: str, question: str, language: str) -> list[set[str]]:
    """For each beginning* and similar word~ of a question, the words of the text that it means."""
    terms = [t for t in parse(question, language).terms if t.kind is not Kind.STEM]
    if not terms:
        return []
    words = sorted(set(words_of(text)))
    found = Vocabulary(pa.array(words, pa.string())).meant(terms, language)
    return [means for at in found if (means := {words[n] for n in at})]


def _parts(stems: Collection[str], language: str) -> set[str] | None:
    """What the words with these stems contain; None if that is not known."""
    if language == NONE:
        return set(stems)
    # Only the last letter of an English stem may differ from the word (happi, hope), except in
    # words such as dying (die). Other languages also take something off the beginning.
    return {s[:-1] if len(s) > 3 else s[:1] for s in stems} if language == "english" else None


def _passages(text: str) -> Iterator[tuple[int, int]]:
    """The sentences. A very long one comes in parts that end between two words."""
    for start, end in sentences(text):
        while end - start > LONGEST:
            blank = max(text.rfind(mark, start, start + LONGEST) for mark in " \n\t")
            cut = blank if blank > start else start + LONGEST
            yield start, cut
            start = cut + (blank > start)
        yield start, end
