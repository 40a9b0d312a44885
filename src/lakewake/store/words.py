"""Finds chunks by their words, for every store's keyword search. Pure.

Scores depend only on the texts that the index holds: not on where they are stored, what it held
before, or the filter. So an index that was followed answers exactly like one that was built.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakewake.lazy import lazy
from lakewake.model.asked import Asked, Term, parse
from lakewake.model.languages import NONE, STOP, recognised, stop_words
from lakewake.model.vocabulary import Vocabulary
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
#: How many texts are read at once to look for a phrase.
READ_AT_ONCE = 1_024
#: The header of `to_bytes`, and the length it is padded to: Arrow wants aligned numbers.
_HEAD, _HEAD_SIZE = b"lakewake words 1\n", 64


class _Numbers(NamedTuple):
    words: pa.StringArray
    starts: np.ndarray
    texts: np.ndarray
    times: np.ndarray
    lengths: np.ndarray


class Counted(_Numbers):
    """How often each word occurs in each of some texts.

    Words are counted as they are, without a language: stems are found when they are asked for, so
    a language can be chosen at any time and no text is read again.

    Attributes:
        words: every word of the texts, sorted.
        starts: where each word begins in `texts` and `times`, and where the last one ends.
        texts: for each word, the numbers of the texts that contain it, ascending.
        times: how often each of them contains it.
        lengths: how many words each text has; -1 for a text that was not counted.
    """

    def __reduce__(self) -> tuple[type[Counted], tuple[object, ...]]:
        return Counted, tuple(self)

    @lazy
    def vocabulary(self) -> Vocabulary:
        """Finds its words."""
        return Vocabulary(self.words)

    @lazy
    def _stops(self) -> dict[str, np.ndarray]:
        return {}

    def stops(self, language: str) -> np.ndarray:
        """How many stop words of a language each text has."""
        if language not in self._stops:
            out = np.zeros(len(self.lengths), np.int32)
            terms = [Term(word) for word in sorted(stop_words(language))]
            for at in self.vocabulary.meant(terms, NONE):
                texts, times = self.having(at)
                out[texts] += times.astype(np.int32)
            self._stops[language] = out
        return self._stops[language]

    def having(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The texts that contain any of the words at these positions, and how often."""
        found = [slice(*self.starts[n : n + 2]) for n in positions]
        if len(found) == 1:
            return self.texts[found[0]], self.times[found[0]]
        texts = np.concatenate([self.texts[:0], *(self.texts[one] for one in found)])
        times = np.concatenate([self.times[:0], *(self.times[one] for one in found)])
        each, which = np.unique(texts, return_inverse=True)
        return each, np.bincount(which, times, len(each)).astype(np.int64)


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

    def __init__(self, parts: Sequence[Part], language: str = NONE) -> None:
        self._parts, self._language = parts, language
        self._number = sum(int(part.live.sum()) for part in parts)
        lengths = [part.counted.lengths - part.counted.stops(language) for part in parts]
        pairs = zip(lengths, parts, strict=True)
        length = sum(int(some[part.live].sum()) for some, part in pairs)
        mean = max(length / max(self._number, 1), 1)
        self._long = [K1 * (1 - B + B * some / mean) for some in lengths]
        self._whole = [bool(part.live.all()) for part in parts]

    def best(
        self, question: str, wanted: int, passing: Sequence[np.ndarray] | None = None
    ) -> list[Scored]:
        """For each part, the texts with the best scores; all that have a score if they are few.

        Includes every text that scores at least as well as the last of the `wanted` best that pass.
        """
        terms = parse(question, self._language).terms
        asked = sorted(self._weighed(terms), key=_rarest_first)
        sums = [np.zeros(len(part.live)) for part in self._parts]
        shown = [p.live & s for p, s in zip(self._parts, passing or self._all, strict=True)]
        near = self._near(asked, sums, shown, wanted)
        # Sums depend on the order of addition in their last bits; the scores use one fixed order.
        return [Scored(texts, self._scores(n, texts, asked)) for n, texts in enumerate(near)]

    def _near(
        self,
        asked: Sequence[Weighed],
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

    def containing(
        self,
        question: str,
        passing: Sequence[np.ndarray] | None,
        read: Callable[[int, np.ndarray], Sequence[str | None]],
    ) -> Sequence[np.ndarray] | None:
        """Which texts that pass contain all phrases of the question; `passing` if it has none.

        Args:
            read: the texts of a part with these numbers.
        """
        asked = parse(question, self._language)
        if not asked.phrases:
            return passing
        out = []
        for n, (part, shown) in enumerate(zip(self._parts, passing or self._all, strict=True)):
            near = np.flatnonzero(part.live & shown & _with_all_words(part.counted, asked))
            out.append(np.zeros(len(part.live), bool))
            for some in np.split(near, range(READ_AT_ONCE, len(near), READ_AT_ONCE)):
                texts = read(n, some) if len(some) else ()
                out[n][some] = [text is not None and asked.all_in(text) for text in texts]
        return out

    def _weighed(self, terms: Sequence[Term]) -> Iterator[Weighed]:
        """The terms that at least one text contains."""
        meant = [part.counted.vocabulary.meant(terms, self._language) for part in self._parts]
        for term, *at in zip(terms, *meant, strict=True):
            if not any(map(len, at)):
                continue
            found = [p.counted.having(n) for p, n in zip(self._parts, at, strict=True)]
            among = sum(
                len(texts) if whole else int(np.count_nonzero(part.live[texts]))
                for part, whole, (texts, _) in zip(self._parts, self._whole, found, strict=True)
            )
            rarity = math.log(1 + (self._number - among + 0.5) / (among + 0.5))
            yield Weighed(term, rarity, among > COMMON, found)

    def _add(self, word: Weighed, sums: list[np.ndarray]) -> None:
        for score, long, (texts, times) in zip(sums, self._long, word.found, strict=True):
            at = texts.astype(np.intp)
            score[at] += _weight(word.rarity, times, long[at])

    def _scores(self, n: int, texts: np.ndarray, asked: Sequence[Weighed]) -> np.ndarray:
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


def _with_all_words(counted: Counted, asked: Asked) -> np.ndarray:
    """Which texts contain all words of the phrases, in any order."""
    out = np.ones(len(counted.lengths), bool)
    terms = [Term(stem) for stem in sorted({stem for phrase in asked.phrases for stem in phrase})]
    for at in counted.vocabulary.meant(terms, asked.language):
        there = np.zeros(len(out), bool)
        there[counted.having(at)[0]] = True
        out &= there
    return out


class Weighed(NamedTuple):
    """A term of a question, and where it occurs in each part."""

    term: Term
    rarity: float
    common: bool
    found: list[tuple[np.ndarray, np.ndarray]]

    @property
    def most(self) -> float:
        """The most that it can add to the score of a text."""
        return self.rarity * (K1 + 1)


def _rarest_first(asked: Weighed) -> float:
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


def relevance(texts: Sequence[str | None], question: str, language: str = NONE) -> np.ndarray:
    """How well each text of an index answers the words of a question."""
    counted = count_words(enumerate(texts), len(texts))
    corpus = Corpus([Part(counted, np.ones(len(texts), bool))], language)
    passing = corpus.containing(question, None, lambda _, some: [texts[n] for n in some])
    [found] = corpus.best(question, len(texts), passing)
    out = np.zeros(len(texts))
    out[found.texts] = found.scores
    return out


def language_of_parts(parts: Sequence[Part]) -> str:
    """The language of the live texts, by the words that they contain."""
    said = {
        name: sum(int(part.counted.stops(name)[part.live].sum()) for part in parts) for name in STOP
    }
    return recognised(said, sum(int(part.counted.lengths[part.live].sum()) for part in parts))


def languages_of_texts(texts: Mapping[str, Sequence[str | None]]) -> dict[str, str]:
    """The language of the texts of each field."""
    counted = {name: count_words(enumerate(some), len(some)) for name, some in texts.items()}
    return {
        name: language_of_parts([Part(one, np.ones(len(one.lengths), bool))])
        for name, one in counted.items()
    }


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
    batch = pa.RecordBatch.from_arrays(lists, list(_Numbers._fields))
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
