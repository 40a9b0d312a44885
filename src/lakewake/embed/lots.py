"""Texts in lots: tokenised with all cores while a card works, batched by tokens and by length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Texts that are sorted by length together, and texts that one thread tokenises in one call.
WINDOW, PART = 32_768, 1_024
#: Two threads: while one holds Python's lock to copy ids, the other tokenises with all cores.
THREADS = 2


@dataclass(frozen=True)
class Tokens:
    """The token ids of texts, one after another."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Where each text begins."""
        found: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return found


@dataclass(frozen=True)
class Rectangle:
    """Some texts of similar lengths, padded to the longest.

    Attributes:
        positions: which texts they are.
    """

    positions: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray


def tokenise(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """The tokens of these texts."""
    encodings = tokenizer.encode_batch_fast(list(texts))
    ids = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return Tokens(np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum())), lengths)


def windows(
    texts: Sequence[str], read: Callable[[Sequence[str]], Tokens], threads: int = THREADS
) -> Iterator[tuple[slice, Tokens]]:
    """The tokens of each window of texts, read ahead by one window."""
    spans = [slice(n, min(n + WINDOW, len(texts))) for n in range(0, len(texts), WINDOW)]
    with ThreadPoolExecutor(threads, thread_name_prefix="tokenise") as pool:
        ahead: deque[tuple[slice, list[Future[Tokens]]]] = deque()
        for span in spans:
            ahead.append((span, [pool.submit(read, part) for part in _parts(texts, span)]))
            if len(ahead) > 1:
                yield _joined(*ahead.popleft())
        while ahead:
            yield _joined(*ahead.popleft())


def rectangles(tokens: Tokens, most: int) -> Iterator[Rectangle]:
    """The texts, longest first, in batches of at most `most` tokens with their padding."""
    order = np.argsort(-tokens.lengths, kind="stable")
    starts, at = tokens.starts, 0
    while at < len(order):
        longest = int(tokens.lengths[order[at]])
        positions = order[at : at + max(1, most // max(1, longest))]
        yield Rectangle(positions, *_padded(tokens, starts, positions, longest))
        at += len(positions)


def _parts(texts: Sequence[str], span: slice) -> list[Sequence[str]]:
    return [texts[n : min(n + PART, span.stop)] for n in range(span.start, span.stop, PART)]


def _joined(span: slice, parts: list[Future[Tokens]]) -> tuple[slice, Tokens]:
    read = [part.result() for part in parts]
    return span, Tokens(
        np.concatenate([part.ids for part in read]), np.concatenate([part.lengths for part in read])
    )


def _padded(
    tokens: Tokens, starts: np.ndarray, positions: np.ndarray, longest: int
) -> tuple[np.ndarray, np.ndarray]:
    lengths, column = tokens.lengths[positions], np.arange(longest)
    there = column < lengths[:, None]
    # Padding reads the first token of a text; it is then set to 0.
    ids = tokens.ids[starts[positions][:, None] + np.where(there, column, 0)]
    return np.where(there, ids, 0).astype(np.int32), lengths
