"""What a question asks of the words of a text: words, "phrases", beginnings* and similar words~."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakewake.model.languages import stem_all, stop_words
from lakewake.model.words import plain, words_of

_PHRASE = re.compile(r'"([^"]*)"')
_TERM = re.compile(r"(\w+)(?:([*~])(?!\w))?")
#: A shorter beginning would match a large part of all words.
SHORTEST_PREFIX = 2
#: How many beginnings and similar words one question may have; each is compared with every word of
#: the index. Further ones are looked for as they are written.
MOST_PATTERNS = 10
#: Words from this length on may differ in one letter, and in two.
ONE_LETTER, TWO_LETTERS = 4, 8


class Kind(StrEnum):
    """How a term is compared with the words of a text."""

    STEM = ""
    PREFIX = "*"
    SIMILAR = "~"


@dataclass(frozen=True, order=True)
class Term:
    """A word of a question: its stem, or the word itself if it is a beginning or a similar word."""

    text: str
    kind: Kind = Kind.STEM

    @property
    def letters(self) -> int:
        """In how many letters a similar word may differ."""
        return (len(self.text) >= ONE_LETTER) + (len(self.text) >= TWO_LETTERS)


@dataclass(frozen=True)
class Asked:
    """A question by words.

    Attributes:
        terms: what adds to the score of a text; each once, sorted.
        phrases: stems that a text must contain one after the other.
    """

    terms: tuple[Term, ...]
    phrases: tuple[tuple[str, ...], ...]
    language: str

    def all_in(self, text: str) -> bool:
        """Whether a text contains every phrase."""
        stems = stem_all(words_of(text), self.language)
        return all(_within(phrase, stems) for phrase in self.phrases)


def parse(question: str, language: str) -> Asked:
    """Read a question. Stop words count only in phrases, or if there are no other words."""
    quoted = [words_of(found) for found in _PHRASE.findall(question)]
    phrases = tuple(tuple(stem_all(words, language)) for words in quoted if words)
    found = [_term(m) for m in _TERM.finditer(plain(_PHRASE.sub(" ", question)))]
    patterns = {term: None for term in found if term.kind is not Kind.STEM}
    kept_patterns = set(list(patterns)[:MOST_PATTERNS])
    found = [t if t in kept_patterns else Term(t.text) for t in found]
    words = [t.text for t in found if t.kind is Kind.STEM] + [w for some in quoted for w in some]
    others = [term for term in found if term.kind is not Kind.STEM]
    stop = stop_words(language)
    kept = [word for word in words if word not in stop]
    if not kept and not others:
        kept = words
    stems = stem_all(kept, language)
    return Asked(tuple(sorted({*map(Term, stems), *others})), phrases, language)


def _term(match: re.Match[str]) -> Term:
    word, mark = match.groups()
    kind = Kind(mark or "")
    if kind is Kind.PREFIX and len(word) < SHORTEST_PREFIX:
        kind = Kind.STEM
    return Term(word, kind)


def _within(phrase: Sequence[str], stems: Sequence[str]) -> bool:
    starts = (n for n, stem in enumerate(stems) if stem == phrase[0])
    return any(tuple(stems[n : n + len(phrase)]) == phrase for n in starts)
