"""A fast deterministic embedder without a model, for tests and trials."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.texts import refuse_undecodable
from lakewake.errors import ConfigError
from lakewake.model.recipe import ModelIdentity

DIMENSION = 64
#: Changes whenever the vectors do.
NAME = "words-and-trigrams-1"

_WORD = re.compile(r"\w+")
#: Texts counted at once; bounds the memory of a large call.
_WINDOW = 4096


class HashingEmbedder:
    """Adds up the hashed words and 3-grams of a text: texts that share words are near each other.

    Attributes:
        received: every text ever given to `embed`, in order.
    """

    def __init__(self, settings: ModelSettings) -> None:
        if settings.dimension < 0:
            fact = f"`dimension` is {settings.dimension}, which is not a length of vectors"
            raise ConfigError(fact, hint="set `dimension` to 1 or more, or remove it")
        self._identity = ModelIdentity("hashing", NAME, settings.dimension or DIMENSION)
        self.received: list[str] = []

    @property
    def identity(self) -> ModelIdentity:
        """The features' name and the dimension."""
        return self._identity

    @property
    def tokenizer(self) -> str | None:
        return None

    def load(self) -> None:
        pass

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One normalised row for each text, the same in every process and on every machine."""
        refuse_undecodable(texts)
        self.received.extend(texts)
        rows = [
            _vectors(texts[start : start + _WINDOW], self._identity.dimension)
            for start in range(0, len(texts), _WINDOW)
        ]
        return np.concatenate([np.empty((0, self._identity.dimension), np.float32), *rows])


def _vectors(texts: Sequence[str], dimension: int) -> np.ndarray:
    found = [_text_slots(text, dimension) for text in texts]
    row = np.repeat(np.arange(len(texts)), [len(slots) for slots in found])
    slot = np.fromiter(chain.from_iterable(found), np.int64, len(row))
    counts = np.bincount(row * 2 * dimension + slot, minlength=len(texts) * 2 * dimension)
    plus, minus = counts.reshape(len(texts), 2, dimension).swapaxes(0, 1)
    total = (plus - minus).astype(np.float32)
    # Opposite features may cancel out, and a vector without a direction has no neighbours.
    total[~total.any(axis=1), 0] = 1
    vectors: np.ndarray = total / np.linalg.norm(total, axis=1, keepdims=True)
    return vectors


def _text_slots(text: str, dimension: int) -> list[int]:
    # The whole text is one more feature: texts with the same words in another order differ.
    slots = [_slot(f"text {text}", dimension)]
    for word in _WORD.findall(text.casefold()):
        slots += _word_slots(word, dimension)
    return slots


@lru_cache(maxsize=65536)
def _word_slots(word: str, dimension: int) -> tuple[int, ...]:
    around = f"<{word}>"
    grams = (f"gram {around[start : start + 3]}" for start in range(len(around) - 2))
    return tuple(_slot(feature, dimension) for feature in (f"word {word}", *grams))


def _slot(feature: str, dimension: int) -> int:
    """Where a feature counts: a position in the vector, once for plus and once for minus."""
    # Not hash(): that differs from process to process.
    digest = hashlib.blake2b(feature.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (2 * dimension)
