"""Finds chunks by their words, for every store's keyword search. Pure.

Scores depend only on the texts that the index holds: not on where they are stored, what it held
before, or the filter. So an index that was followed answers exactly like one that was built.
"""

from __future__ import annotations

import math
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.words import words_of
from lakewake.store.ranking import HIDDEN

#: Okapi BM25, with the usual constants.
K1, B = 1.2, 0.75
#: A word in more texts than this is considered only if it can change which texts are best.
COMMON = 2_000
#: More than the order of summation can change a score by.
ROUNDING = 1e-9
#: Less than what any word adds to a score.
TINY = 1e-30
#: Up to this many words are looked up one by one; more are matched against all words at once.
LOOKED_UP = 64
#: The header of `to_bytes`, and the length it is padded to: Arrow wants aligned numbers.
_HEAD, _HEAD_SIZE = b"lakewake words 1\n", 64


class Counted(NamedTuple):
    """How often each word occurs in each of some texts.

    Attributes:
        words: every word of the texts, sorted.
        starts: where each word begins in `texts` and `times`, and where the last one ends.
        texts: for each word, the numbers of the texts that contain it, ascending.
        times: how often each of them contains it.
        lengths: how many words each text has; -1 for a text that was not counted.
    """

    words: pa.StringArray
    starts: np.ndarray
    texts: np.ndarray
    times: np.ndarray
    lengths: np.ndarray

    def positions(self, words: Sequence[str]) -> list[int]:
        """The position of each of these words in `self.words`; -1 if no text has it."""
        if len(words) <= LOOKED_UP:
            return [self._position(word) for word in words]
        found = pc.index_in(pa.array(words, pa.string()), value_set=self.words)
        return list(pc.fill_null(found, -1).to_pylist())

    def _position(self, word: str) -> int:
        n = bisect_left(range(len(self.words)), word, key=lambda i: self.words[i].as_py())
        return n if n < len(self.words) and self.words[n].as_py() == word else -1

    def having(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """The texts that contain the word at this position, and how often."""
        there = slice(*self.starts[position : position + 2]) if position >= 0 else slice(0)
        return self.texts[there], self.times[there]


class Part(NamedTuple):
    """Some texts of an index, and which of them it still holds."""

    counted: Counted
    live: np.ndarray


def count_words(texts: Iterable[tuple[int, str | None]], size: int) -> Counted:
    """Count the words of numbered texts; the numbers are below `size`.

    Holds one text at a time, and the distinct words of each: texts may be long.
    """
    known = defaultdict[str, int](count().__next__)
    lengths = np.full(size, -1, np.int32)
    # For each text: its distinct words, how often each occurs, its number, how many words.
    codes, times, numbers, distinct = (array("q") for _ in range(4))
    for number, text in texts:
        words = Counter(words_of(text or ""))
        lengths[number] = words.total()
        codes.extend(map(known.__getitem__, words))
        times.extend(words.values())
        numbers.append(number)
        distinct.append(len(words))
    names = sorted(known)
    positions = np.empty(len(names), np.int64)
    positions[[known[name] for name in names]] = np.arange(len(names))
    pairs = positions[_as_numpy(codes)] * size + np.repeat(_as_numpy(numbers), _as_numpy(distinct))
    order = np.argsort(pairs)
    pairs, often = pairs[order], _as_numpy(times)[order]
    return Counted(
        pa.array(names, pa.string()),
        np.searchsorted(pairs, np.arange(len(names) + 1) * size),
        (pairs % max(size, 1)).astype(_fitting(size)),
        often.astype(_fitting(int(often.max(initial=0)))),
        lengths,
    )


def _as_numpy(values: array[int]) -> np.ndarray:
    return np.frombuffer(values, np.int64) if values else np.empty(0, np.int64)


def _fitting(largest: int) -> np.dtype:
    """The smallest integer type that holds this number."""
    return np.min_scalar_type(largest)


class Corpus:
    """All the texts that an index holds, and how well each answers a question, by BM25.

    Rarity and mean length count exactly the texts that it holds.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._number = sum(int(part.live.sum()) for part in parts)
        length = sum(int(part.counted.lengths[part.live].sum()) for part in parts)
        mean = max(length / max(self._number, 1), 1)
        self._long = [K1 * (1 - B + B * part.counted.lengths / mean) for part in parts]
        self._whole = [bool(part.live.all()) for part in parts]

    def best(
        self, question: str, wanted: int, passing: Sequence[np.ndarray] | None = None
    ) -> list[Scored]:
        """For each part, the texts with the best scores; all that have a score if they are few.

        Includes every text that scores at least as well as the last of the `wanted` best that pass.
        """
        asked = sorted(self._asked(sorted(set(words_of(question)))), key=_rarest_first)
        sums = [np.zeros(len(part.live)) for part in self._parts]
        shown = [p.live & s for p, s in zip(self._parts, passing or self._all, strict=True)]
        near = self._near(asked, sums, shown, wanted)
        # Sums depend on the order of addition in their last bits; the scores use one fixed order.
        return [Scored(texts, self._scores(n, texts, asked)) for n, texts in enumerate(near)]

    def _near(
        self,
        asked: Sequence[Asked],
        sums: list[np.ndarray],
        shown: Sequence[np.ndarray],
        wanted: int,
    ) -> list[np.ndarray]:
        """The texts that may be among the best: add word after word until few are left."""
        # The most that the remaining words can add to a score, and the most that the others can.
        rest, done = sum(word.most for word in asked), 0.0
        for word in asked:
            # Common words come last and add little, usually less than the best texts already have.
            if word.common and done > rest:
                near = _above(sums, shown, _least(sums, shown, wanted) - rest)
                if near is not None and sum(map(len, near)) <= COMMON:
                    return near
            self._add(word, sums)
            rest, done = rest - word.most, done + word.most
        return _above(sums, shown, _least(sums, shown, wanted)) or _above(sums, shown, TINY) or []

    def _asked(self, words: Sequence[str]) -> Iterator[Asked]:
        """The words that at least one text contains."""
        positions = [part.counted.positions(words) for part in self._parts]
        for word, *at in zip(words, *positions, strict=True):
            if max(at, default=-1) < 0:
                continue
            found = [p.counted.having(n) for p, n in zip(self._parts, at, strict=True)]
            among = sum(
                len(texts) if whole else int(np.count_nonzero(part.live[texts]))
                for part, whole, (texts, _) in zip(self._parts, self._whole, found, strict=True)
            )
            rarity = math.log(1 + (self._number - among + 0.5) / (among + 0.5))
            yield Asked(word, rarity, among > COMMON, found)

    def _add(self, word: Asked, sums: list[np.ndarray]) -> None:
        for score, long, (texts, times) in zip(sums, self._long, word.found, strict=True):
            at = texts.astype(np.intp)
            score[at] += _weight(word.rarity, times, long[at])

    def _scores(self, n: int, texts: np.ndarray, asked: Sequence[Asked]) -> np.ndarray:
        """The scores of some texts of a part.

        Words are always added in the same order, so scores are equal to the last bit.
        """
        out, long = np.zeros(len(texts)), self._long[n][texts]
        for word in sorted(asked):
            having, times = word.found[n]
            at = np.searchsorted(having, texts.astype(having.dtype))
            there = np.flatnonzero(at < len(having))
            there = there[having[at[there]] == texts[there]]
            out[there] += _weight(word.rarity, times[at[there]], long[there])
        return out

    @property
    def _all(self) -> list[np.ndarray]:
        return [part.live for part in self._parts]


class Scored(NamedTuple):
    """Some texts of a part, by number, and how well they answer a question."""

    texts: np.ndarray
    scores: np.ndarray


class Asked(NamedTuple):
    """A word of a question, and where it occurs in each part."""

    word: str
    rarity: float
    common: bool
    found: list[tuple[np.ndarray, np.ndarray]]

    @property
    def most(self) -> float:
        """The most that it can add to the score of a text."""
        return self.rarity * (K1 + 1)


def _rarest_first(asked: Asked) -> float:
    return -asked.rarity


def _weight(rarity: float, times: np.ndarray, long: np.ndarray) -> np.ndarray:
    """What a word adds to the scores of texts that have it this many times."""
    have = times.astype(np.float64)
    out: np.ndarray = rarity * have * (K1 + 1) / (have + long)
    return out


def _least(sums: Sequence[np.ndarray], shown: Sequence[np.ndarray], wanted: int) -> float:
    """The lowest of the `wanted` best sums; 0 if there are fewer."""
    best, least = np.empty(0), 0.0
    for some, these in zip(sums, shown, strict=True):
        best = np.concatenate([best, some[(some > least) & these]])
        if len(best) >= wanted > 0:
            best = np.partition(best, len(best) - wanted)[-wanted:]
            least = float(best[0])
    return least * (1 - ROUNDING)


def _above(
    sums: Sequence[np.ndarray], shown: Sequence[np.ndarray], bound: float
) -> list[np.ndarray] | None:
    """The texts whose sums reach this bound; None if texts without any word might."""
    if bound < TINY:
        return None
    return [np.flatnonzero((s >= bound) & these) for s, these in zip(sums, shown, strict=True)]


def relevance(texts: Sequence[str | None], question: str) -> np.ndarray:
    """How well each text of an index answers the words of a question."""
    counted = count_words(enumerate(texts), len(texts))
    [found] = Corpus([Part(counted, np.ones(len(texts), bool))]).best(question, len(texts))
    out = np.zeros(len(texts))
    out[found.texts] = found.scores
    return out


def best_first(chunks: pa.Table, scores: np.ndarray) -> pa.Table:
    """The chunks with a score above 0, by score and then by id, without the hidden columns."""
    shown = chunks.drop_columns([c for c in HIDDEN if c in chunks.column_names])
    order = np.lexsort((chunks["_id"].to_numpy(), -scores))
    order = order[scores[order] > 0]
    column = pa.array(scores.tolist(), pa.float64())
    return shown.append_column("_relevance", column).take(pa.array(order.tolist(), pa.int64()))


def to_bytes(counted: Counted) -> bytes:
    """Content for a file, with a checksum: damaged numbers could mean anything."""
    columns = [counted.words, *(pa.array(numbers) for numbers in counted[1:])]
    lists = [pa.ListArray.from_arrays([0, len(column)], column) for column in columns]
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(lists, list(Counted._fields))
    with pa.ipc.new_file(sink, batch.schema) as out:
        out.write_batch(batch)
    body = sink.getvalue()
    head = _HEAD + zlib.crc32(body).to_bytes(4)
    return head.ljust(_HEAD_SIZE, b"\0") + bytes(body)


def from_bytes(content: bytes) -> Counted | None:
    """The inverse of `to_bytes`; None if something else wrote the bytes or they are damaged."""
    head, body = content[:_HEAD_SIZE], memoryview(content)[_HEAD_SIZE:]
    if head != (_HEAD + zlib.crc32(body).to_bytes(4)).ljust(_HEAD_SIZE, b"\0"):
        return None
    try:
        with pa.ipc.open_file(pa.py_buffer(body)) as file:
            batch = file.get_batch(0)
        batch.validate(full=True)
        words, *numbers = (column.flatten() for column in batch.columns)
        counted = Counted(words, *(column.to_numpy() for column in numbers))
        return counted if _sound(counted) else None
    except (pa.ArrowException, ValueError, TypeError):
        return None


def _sound(counted: Counted) -> bool:
    """Whether the numbers are a valid count of words; others could point anywhere."""
    words, starts, texts, times, lengths = counted
    return (
        pa.types.is_string(words.type)
        and all(numbers.dtype.kind in "iu" for numbers in counted[1:])
        and len(starts) == len(words) + 1
        and bool((np.diff(starts) >= 0).all())
        and (int(starts[0]), int(starts[-1])) == (0, len(texts))
        and len(texts) == len(times)
        and int(texts.min(initial=0)) >= 0
        and (not len(texts) or int(texts.max()) < len(lengths))
    )
