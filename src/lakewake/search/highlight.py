"""The sentence of a text that answers a question best. Pure."""

from __future__ import annotations

import re

from lakewake.model.words import words_of

#: A sentence ends at . ! ? … with a blank behind it, or with its line.
_SENTENCE = re.compile(r"[^\n]+?(?:(?<![.!?…])[.!?…]++(?=[\s\"'”’)\]]|$)[\"'”’)\]]*|(?=\n)|$)")
#: Words that tell little of what a question asks for.
_SMALL = frozenset(
    words_of(
        "a an and are as at be by for from has have i in is it its of on or that the this to was "
        "were which with"
    )
)
#: Words alike so far are taken for forms of one: leather, leathery.
_STEM = 5


def sentences(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends."""
    found = (m.span() for m in _SENTENCE.finditer(text))
    return [trimmed for span in found if (trimmed := _trimmed(text, *span))]


def highlight(text: str, question: str) -> tuple[int, int] | None:
    """The first sentence with the most of the question's words; None where none has any."""
    asked = _stems(question)
    best, most = None, 0
    for start, end in sentences(text):
        common = len(asked & _stems(text[start:end]))
        if common > most:
            best, most = (start, end), common
    return best


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def _stems(text: str) -> set[str]:
    return {w[:_STEM] for w in words_of(text) if w not in _SMALL}
