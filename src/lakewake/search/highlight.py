"""Finds the sentence of a text that answers a question best. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lakewake.model.sentences import sentences
from lakewake.model.words import stems

#: The most characters of a highlight.
LONGEST = 400


def highlight(text: str, question: str) -> tuple[int, int] | None:
    """The sentence with the most words of the question, the first of several; None if none has any.

    A sentence longer than `LONGEST` is split, and its best part counts.
    """
    asked = stems(question)
    # Most sentences of a long text have none of the words. This skips them quickly.
    lower = text.lower() if text.isascii() else ""
    best, most = None, 0
    for start, end in _passages(text):
        if lower and not any(lower.find(stem, start, end) >= 0 for stem in asked):
            continue
        common = len(asked & stems(text[start:end]))
        if common > most:
            best, most = (start, end), common
    return best


def _passages(text: str) -> Iterator[tuple[int, int]]:
    """The sentences. A very long one comes in parts that end between two words."""
    for start, end in sentences(text):
        while end - start > LONGEST:
            blank = max(text.rfind(mark, start, start + LONGEST) for mark in " \n\t")
            cut = blank if blank > start else start + LONGEST
            yield start, cut
            start = cut + (blank > start)
        yield start, end
