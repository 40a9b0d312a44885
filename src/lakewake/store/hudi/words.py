"""The words of an index in the lake, counted slice by slice.

    words/g1/3f0c….words    the words of one slice

A slice never changes, so its words are counted once. The files only save time.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from lakewake.model.query import Words
from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.table import IndexTable
from lakewake.store.location import Location
from lakewake.store.ranking import best_positions, first_rows
from lakewake.store.words import (
    Corpus,
    Counted,
    Part,
    best_first,
    count_words,
    from_bytes,
    language_of_parts,
)

ENDING = ".words"
#: Slices, how many rows each has, positions in all of them, columns → those rows.
Take = Callable[[Sequence[Slice], Sequence[int], np.ndarray, list[str]], pa.Table]


class KeptWords:
    """Counted words, and how much memory they take."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.nbytes = sum(part.nbytes for part in counted)


class SliceWords:
    """Searches the words of some slices.

    Args:
        folder: where the counted words are kept, in the folder of the index.
    """

    def __init__(self, table: IndexTable, slices: Sequence[Slice], folder: str) -> None:
        self._table, self._slices = table, slices
        counted = [counted_words(table, one, folder) for one in slices]
        self._sizes = [len(words.lengths) for words in counted]
        self._parts = [Part(words, words.lengths >= 0) for words in counted]
        self._corpora: dict[str, Corpus] = {}

    def search(
        self, words: Words, filtered: list[np.ndarray] | None, take: Take, shown: pa.Schema
    ) -> pa.Table:
        """The best chunks of at most `limit` rows, with these columns and `_relevance`."""
        corpus = self._corpus(words.language)
        passing = corpus.containing(words.text, filtered, self._read)
        limit = wanted = words.limit
        while True:
            positions, scores = self._best(corpus, words.text, wanted, passing)
            ranked = best_first(
                take(self._slices, self._sizes, positions, shown.names),
                self._ordered(positions, scores),
            )
            best, rows = first_rows(ranked, limit)
            if rows == limit or len(scores) < wanted:
                return best
            wanted *= 4

    def language(self, passing: list[np.ndarray] | None) -> str:
        """The language of the texts that pass a filter, which is given for each slice."""
        pairs = zip(self._parts, passing or [part.live for part in self._parts], strict=True)
        return language_of_parts([Part(part.counted, part.live & some) for part, some in pairs])

    def _corpus(self, language: str) -> Corpus:
        if language not in self._corpora:
            self._corpora[language] = Corpus(self._parts, language)
        return self._corpora[language]

    def _read(self, part: int, numbers: np.ndarray) -> list[str | None]:
        """The texts of a slice with these numbers."""
        texts = self._table.columns(self._slices[part], ["_text"])["_text"]
        return list(texts.take(pa.array(numbers)).to_pylist())

    def _best(
        self, corpus: Corpus, text: str, wanted: int, passing: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        if not self._slices:
            return np.empty(0, np.int64), np.empty(0)
        found = corpus.best(text, wanted, passing)
        starts = np.cumsum([0, *self._sizes[:-1]])
        every = np.concatenate([f.texts + start for f, start in zip(found, starts, strict=True)])
        scores = np.concatenate([f.scores for f in found])
        best = best_positions(scores, wanted)
        return every[best].astype(np.int64), scores[best]

    def _ordered(self, positions: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The scores in the order in which `take` returns rows: slice by slice."""
        of = np.searchsorted(np.cumsum(self._sizes), positions, side="right")
        out = [scores[of == n] for n in dict.fromkeys(of.tolist())]
        return np.concatenate(out) if out else scores


def file_name(one: Slice) -> str:
    """The name of the file with the words of a slice."""
    # Which characters make a word depends on Python's Unicode tables.
    content = "\n".join([unicodedata.unidata_version, one.base, *one.logs])
    return hashlib.sha256(content.encode()).hexdigest()[:32] + ENDING


def counted_words(table: IndexTable, one: Slice, folder: str) -> Counted:
    """The words of a slice; its rows are ordered by `_id`."""
    kept = table.derived(one, "words")
    if kept is None:
        file = f"{folder}/{file_name(one)}"
        kept = KeptWords(_from_file(table.location, file) or _counted(table, one))
        table.keep(one, "words", kept)
    counted: Counted = kept.counted
    return counted


def _from_file(location: Location, file: str) -> Counted | None:
    # A file that is missing or damaged only costs time.
    with suppress(OSError):
        content = location.read(file)
        return None if content is None else from_bytes(content)
    return None


def _counted(table: IndexTable, one: Slice) -> Counted:
    texts = table.columns(one, ["_text"])["_text"].to_pylist()
    return count_words(enumerate(texts), len(texts))
