"""Finds the words of some texts that a term of a question means. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.asked import Kind, Term
from lakewake.model.languages import NONE, stem_all

#: Up to this many words are looked up one by one; more are matched against all words at once.
LOOKED_UP = 64
_LAST = chr(0x10FFFF)
_NOWHERE = np.empty(0, np.int64)


class Stems(NamedTuple):
    """Words grouped by their stem.

    Attributes:
        names: each stem once, sorted.
        starts: where each stem begins in `words`, and where the last one ends.
        words: the positions of the words with each stem.
    """

    names: pa.StringArray
    starts: np.ndarray
    words: np.ndarray

    def having(self, position: int) -> np.ndarray:
        """The positions of the words with the stem at this position; -1: there is none."""
        if position < 0:
            return _NOWHERE
        found: np.ndarray = self.words[slice(*self.starts[position : position + 2])]
        return found


class Vocabulary:
    """All words of some texts, sorted, and their stems by language once these are asked for."""

    def __init__(self, words: pa.StringArray) -> None:
        self._words = words
        self._stems: dict[str, Stems] = {}

    def meant(self, terms: Sequence[Term], language: str) -> list[np.ndarray]:
        """For each term, the positions of the words that it means."""
        stems = [term.text for term in terms if term.kind is Kind.STEM]
        by_stem = iter(self._of_stems(stems, language))
        return [next(by_stem) if t.kind is Kind.STEM else self._like(t) for t in terms]

    def _of_stems(self, stems: Sequence[str], language: str) -> list[np.ndarray]:
        if language == NONE:
            found = positions(self._words, stems)
            return [np.array([n] if n >= 0 else [], np.int64) for n in found]
        groups = self.stems(language)
        return [groups.having(n) for n in positions(groups.names, stems)]

    def stems(self, language: str) -> Stems:
        """The words grouped by their stems in a language."""
        if language not in self._stems:
            self._stems[language] = grouped(stem_all(self._words.to_pylist(), language))
        return self._stems[language]

    def _like(self, term: Term) -> np.ndarray:
        if term.kind is Kind.PREFIX:
            begin, end = (_place(self._words, term.text + after) for after in ("", _LAST))
            return np.arange(begin, end)
        return similar(self._words, term.text, term.letters)


def grouped(stems: Sequence[str]) -> Stems:
    """Group the positions of stems by what they are."""
    column = pa.array(stems, pa.string())
    order = pc.sort_indices(column)
    encoded = column.take(order).dictionary_encode()
    names = encoded.dictionary
    starts = np.searchsorted(encoded.indices.to_numpy(), np.arange(len(names) + 1))
    return Stems(names, starts, order.to_numpy().astype(np.int64))


def positions(names: pa.StringArray, wanted: Sequence[str]) -> list[int]:
    """The position of each wanted name in sorted names; -1 if it is not there."""
    if len(wanted) <= LOOKED_UP:
        return [_position(names, name) for name in wanted]
    found = pc.index_in(pa.array(wanted, pa.string()), value_set=names)
    return list(pc.fill_null(found, -1).to_pylist())


def _position(names: pa.StringArray, name: str) -> int:
    n = _place(names, name)
    return n if n < len(names) and names[n].as_py() == name else -1


def _place(names: pa.StringArray, name: str) -> int:
    """How many names come before this one."""
    return bisect_left(range(len(names)), name, key=lambda i: names[i].as_py())


def similar(words: pa.StringArray, word: str, letters: int) -> np.ndarray:
    """The positions of the words that differ from a word in at most this many letters.

    A letter may be added, left out or replaced, or two neighbours exchanged.
    """
    lengths = pc.utf8_length(words).to_numpy()
    near = np.flatnonzero(np.abs(lengths - len(word)) <= letters)
    chosen = words.take(pa.array(near)).to_pylist()
    found: np.ndarray = near[_distances(chosen, lengths[near], word) <= letters]
    return found


def _distances(words: Sequence[str], lengths: np.ndarray, word: str) -> np.ndarray:
    """How many changes each word is away, column by column of the usual table for all at once."""
    if not words:
        return _NOWHERE
    letters = np.array(words).view(np.uint32).reshape(len(words), -1)
    longest = letters.shape[1]
    asked = [ord(letter) for letter in word]
    last = np.tile(np.arange(longest + 1), (len(words), 1))
    before = last
    for n, letter in enumerate(asked):
        now = np.empty_like(last)
        now[:, 0] = n + 1
        other = letters != letter
        for m in range(longest):
            now[:, m + 1] = np.minimum(
                np.minimum(last[:, m + 1], now[:, m]) + 1, last[:, m] + other[:, m]
            )
            if n and m:
                swapped = (letters[:, m - 1] == letter) & (letters[:, m] == asked[n - 1])
                now[:, m + 1] = np.where(
                    swapped, np.minimum(now[:, m + 1], before[:, m - 1] + 1), now[:, m + 1]
                )
        before, last = last, now
    out: np.ndarray = last[np.arange(len(words)), lengths]
    return out
