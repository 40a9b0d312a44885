"""4 · Text → vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from lakewake.model.recipe import ModelIdentity

#: Texts per call of an embedder that does not ask for another number.
LOT = 128


class Embedder(Protocol):
    """Turns texts into vectors of one model identity."""

    @property
    def identity(self) -> ModelIdentity:
        """The model that makes the vectors; known without loading it."""

    @property
    def tokenizer(self) -> str | None:
        """The model's own tokenizer as `tokenizer.json` text, or None if there is none."""

    def load(self) -> None:
        """Load the model now; otherwise the first `embed` does.

        Raises:
            SetupError: the model's files are missing or have another hash.
        """

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One float32 row for each text, in order, shape (len(texts), dimension).

        Raises:
            EmbedError: the provider failed; no vector of this call may be used.
            SetupError: the model's files are missing or have another hash.
        """


def lot_of(embedder: Embedder) -> int:
    """How many texts to give to one call of `embed`.

    An embedder that is faster with more, on a card or with several requests at a time, has a number
    `lot`. New vectors are kept, and progress is shown, in such steps.
    """
    return max(1, int(getattr(embedder, "lot", LOT)))


def tokens_of(embedder: Embedder) -> int:
    """How many tokens it has sent to a service so far; 0 if it uses none."""
    return int(getattr(embedder, "tokens", 0))


class _Questions:
    """An embedder whose texts are questions."""

    def __init__(self, embedder: Embedder, embed: Callable[[Sequence[str]], np.ndarray]) -> None:
        self._embedder, self._embed = embedder, embed

    @property
    def identity(self) -> ModelIdentity:
        return self._embedder.identity

    @property
    def tokenizer(self) -> str | None:
        return self._embedder.tokenizer

    def load(self) -> None:
        self._embedder.load()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._embed(texts)


def for_questions(embedder: Embedder) -> Embedder:
    """The embedder as searches use it: some models read a question in another way than a text."""
    embed = getattr(embedder, "embed_questions", None)
    return embedder if embed is None else _Questions(embedder, embed)
