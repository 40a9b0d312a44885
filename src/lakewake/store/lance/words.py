"""The words of a Lance index: counted fragment by fragment, and kept in files beside the data.

    wines.g1.lance/_words/3f0c….0.words    the words of a fragment's first 16,384 rows

A fragment's rows never change, though fewer and fewer of them are live. So its words are counted
once, for all versions. A search looks up which rows its version holds: deleted chunks count for
nothing. The files only save time. If one is missing or damaged, its texts are counted again.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import LanceFragment

from lakewake.lazy import lazy
from lakewake.model.query import Words
from lakewake.progress import UNSEEN, Stage
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
    to_bytes,
)

FOLDER, ENDING = "_words", ".words"
#: Rows whose words are counted together. This bounds the memory for counting, and a search takes a
#: quarter of the time: its numbers fit into the processor's cache.
SLICE = 16_384
#: Files read at the same time: each takes a round trip to S3.
READS = 16
#: The lower half of Lance's row addresses is the row's number within its fragment.
OFFSET_BITS = 32
BATCH_ROWS, BATCH_BYTES = 1024, 16 * 1024 * 1024


class Slice(NamedTuple):
    """Consecutive rows of a fragment, whose words are counted together."""

    fragment: LanceFragment
    number: int
    name: str
    rows: int

    @property
    def begin(self) -> int:
        """The address of its first row."""
        return (int(self.fragment.fragment_id) << OFFSET_BITS) + self.number * SLICE


class Present(NamedTuple):
    """What a version holds of a slice.

    Attributes:
        live: which of its rows are chunks of this version.
        positions: the positions of these rows in the order in which Lance numbers a version's rows.
    """

    slice: Slice
    live: np.ndarray
    positions: np.ndarray

    def among(self, addresses: np.ndarray) -> np.ndarray:
        """Which of its rows have one of these ascending addresses."""
        begin, rows = self.slice.begin, self.slice.rows
        there = slice(*np.searchsorted(addresses, (begin, begin + rows)))
        out = np.zeros(rows, bool)
        out[addresses[there] - begin] = True
        return out


def slices_of(fragment: LanceFragment) -> list[Slice]:
    """All slices of a fragment; no other rows have the same names."""
    metadata = fragment.metadata
    # Which characters make a word depends on Python's Unicode tables.
    content = [unicodedata.unidata_version, *(file.path for file in metadata.files)]
    content += [repr(overlay) for overlay in getattr(metadata, "overlays", ())]
    key = hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
    return [
        Slice(fragment, n, f"{key}.{start}{ENDING}", min(metadata.physical_rows - start, SLICE))
        for n, start in enumerate(range(0, metadata.physical_rows, SLICE))
    ]


class WordFiles:
    """The counted words of one generation: the files, and those of them that are in memory.

    Args:
        dataset: the name of the generation's folder in the location.
    """

    def __init__(self, location: Location | None, dataset: str) -> None:
        self.folder = f"{dataset}/{FOLDER}"
        self._location = location
        self._known: dict[str, Counted] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def names(self) -> set[str]:
        """The names of the files that exist."""
        found = self._location.names(self.folder) if self._location else []
        # A name that begins with a dot belongs to a file that is being written.
        return {n for n in found if n.endswith(ENDING) and not n.startswith(".")}

    def counted(self, dataset: LanceDataset, present: Sequence[Present]) -> list[Counted]:
        """The words of each slice, at least of its live rows. Forgets all other slices."""
        known = {s.name: c for s, live, _ in present if (c := self._covering(s, live))}
        if missing := [one for one in present if one.slice.name not in known]:
            known |= self._read(missing)
            known |= dict(count(dataset, [s for s, *_ in missing if s.name not in known]))
        self._known = known
        return [known[one.slice.name] for one in present]

    def _covering(self, one: Slice, live: np.ndarray) -> Counted | None:
        """The known words of a slice, unless fewer of its rows were live when it was counted."""
        counted = self._known.get(one.name)
        return counted if counted and covers(counted, live) else None

    def _read(self, wanted: Sequence[Present]) -> dict[str, Counted]:
        found: dict[str, Counted] = {}
        # Files that cannot be read count as missing.
        with suppress(OSError):
            there = self.names()
            named = {one.name: live for one, live, _ in wanted if one.name in there}
            with ThreadPoolExecutor(READS) as pool:
                contents = dict(zip(named, pool.map(self._content, named), strict=True))
            found = {n: c for n, c in contents.items() if c and covers(c, named[n])}
        return found

    def _content(self, name: str) -> Counted | None:
        content = self._location.read(f"{self.folder}/{name}") if self._location else None
        return from_bytes(content) if content else None

    def write(self, name: str, counted: Counted) -> None:
        """Write the counted words of a slice to a file."""
        if self._location:
            self._location.replace(f"{self.folder}/{name}", to_bytes(counted), lasting=False)

    def discard(self, names: Iterable[str]) -> None:
        """Delete these files."""
        if self._location:
            self._location.discard(self.folder, names)


def covers(counted: Counted, live: np.ndarray) -> bool:
    """Whether all live rows were counted. A restore can bring rows back to life."""
    return len(counted.lengths) == len(live) and bool((counted.lengths[live] >= 0).all())


def count(dataset: LanceDataset, slices: Iterable[Slice]) -> Iterator[tuple[str, Counted]]:
    """Count the words of each slice, from the texts of the rows that are live in this version."""
    wanted = {(s.fragment.fragment_id, s.number): s for s in slices}
    for fragment in {s.fragment.fragment_id: s.fragment for s in wanted.values()}.values():
        for number, texts in groupby(_texts(dataset, fragment), lambda row: row[0] // SLICE):
            if one := wanted.pop((fragment.fragment_id, number), None):
                inside = ((n - number * SLICE, text) for n, text in texts)
                yield one.name, count_words(inside, one.rows)
    # The remaining slices have no live rows.
    for one in wanted.values():
        yield one.name, count_words((), one.rows)


def write_words(
    dataset: LanceDataset, files: WordFiles, slices: Iterable[Slice], stage: Stage = UNSEEN
) -> int:
    """Count the words of each slice and write them to its file; return the number of texts.

    Args:
        stage: counts the rows of the slices.
    """
    texts = 0
    for name, counted in count(dataset, slices):
        files.write(name, counted)
        stage.advance(len(counted.lengths))
        texts += int((counted.lengths >= 0).sum())
    return texts


def _texts(dataset: LanceDataset, fragment: LanceFragment) -> Iterator[tuple[int, str | None]]:
    """The texts of a fragment, with the numbers of their rows within it, ascending."""
    scanner = dataset.scanner(
        columns=["_text"],
        fragments=[fragment],
        with_row_address=True,
        batch_size=BATCH_ROWS,
        batch_size_bytes=BATCH_BYTES,
    )
    for batch in scanner.to_batches():
        numbers = _offsets(batch["_rowaddr"]).tolist()
        yield from zip(numbers, batch["_text"].to_pylist(), strict=True)


def _offsets(addresses: pa.Array) -> np.ndarray:
    """The numbers of rows within their fragments."""
    whole: np.ndarray = addresses.to_numpy().astype(np.int64)
    return whole & ((1 << OFFSET_BITS) - 1)


class LanceWords:
    """Searches the words of one version."""

    def __init__(self, dataset: LanceDataset, files: WordFiles) -> None:
        self._dataset, self._files = dataset, files

    def __getstate__(self) -> dict[str, Any]:
        return {"_dataset": self._dataset, "_files": self._files}

    def search(self, words: Words, where: str | None, columns: list[str]) -> pa.Table:
        """The best chunks of at most `limit` rows, with these columns and `_relevance`."""
        corpus = self._corpus(words.language)
        filtered = None if where is None else self._passing(where)
        passing = corpus.containing(words.text, filtered, self._read)
        wanted = words.limit
        while True:
            positions, scores = self._best(corpus, words.text, wanted, passing)
            ranked = self._ranked(positions, scores, wanted, columns)
            best, rows = first_rows(ranked, words.limit)
            if rows == words.limit or len(scores) < wanted:
                return best
            wanted *= 4

    def language(self, where: str | None) -> str:
        """The language of the texts that pass a filter."""
        if where is None:
            return language_of_parts(self._parts)
        passing = self._passing(where)
        pairs = zip(self._parts, passing, strict=True)
        return language_of_parts([Part(part.counted, part.live & some) for part, some in pairs])

    def _read(self, part: int, numbers: np.ndarray) -> list[str | None]:
        """The texts of a slice with these numbers."""
        positions = self._present[part].positions[numbers].tolist()
        return list(self._dataset.take(positions, columns=["_text"])["_text"].to_pylist())

    def _best(
        self, corpus: Corpus, text: str, wanted: int, passing: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the best chunks and their scores."""
        found = corpus.best(text, wanted, passing)
        positions = [p.positions[f.texts] for p, f in zip(self._present, found, strict=True)]
        every, scores = np.concatenate(positions), np.concatenate([f.scores for f in found])
        best = best_positions(scores, wanted)
        return every[best], scores[best]

    def _passing(self, where: str) -> list[np.ndarray]:
        """Which rows of each slice pass a filter."""
        scanner = self._dataset.scanner(columns=[], filter=where, with_row_address=True)
        addresses = np.sort(scanner.to_table()["_rowaddr"].to_numpy().astype(np.int64))
        return [one.among(addresses) for one in self._present]

    def _ranked(
        self, positions: np.ndarray, scores: np.ndarray, wanted: int, columns: list[str]
    ) -> pa.Table:
        if len(positions) > 2 * wanted:
            # Very many chunks tie. Their ids decide, and nothing else is read of most of them.
            ids = self._dataset.take(positions.tolist(), columns=["_id"])["_id"].to_numpy()
            first = np.lexsort((ids, -scores))[:wanted]
            positions, scores = positions[first], scores[first]
        return best_first(self._dataset.take(positions.tolist(), columns=columns), scores)

    @lazy
    def _present(self) -> list[Present]:
        """The slices of this version."""
        columns = self._dataset.scanner(columns=["_checkpoint"], with_row_address=True).to_table()
        addresses = columns["_rowaddr"].to_numpy().astype(np.int64)
        chunks = pc.is_null(columns["_checkpoint"]).to_numpy()
        order = np.argsort(addresses, kind="stable")
        ascending = addresses[order]
        slices = [s for f in self._dataset.get_fragments() for s in slices_of(f)]
        return [present_of(one, ascending, order, chunks) for one in slices]

    def _corpus(self, language: str) -> Corpus:
        if language not in self._corpora:
            self._corpora[language] = Corpus(self._parts, language)
        return self._corpora[language]

    @lazy
    def _corpora(self) -> dict[str, Corpus]:
        return {}

    @lazy
    def _parts(self) -> list[Part]:
        counted = self._files.counted(self._dataset, self._present)
        return [Part(words, one.live) for words, one in zip(counted, self._present, strict=True)]


def present_of(one: Slice, ascending: np.ndarray, order: np.ndarray, chunks: np.ndarray) -> Present:
    """What a version holds of a slice, given the addresses of all rows of the version."""
    there = slice(*np.searchsorted(ascending, (one.begin, one.begin + one.rows)))
    numbers = ascending[there] - one.begin
    live, positions = np.zeros(one.rows, bool), np.zeros(one.rows, np.int64)
    live[numbers] = chunks[order[there]]
    positions[numbers] = order[there]
    return Present(one, live, positions)
