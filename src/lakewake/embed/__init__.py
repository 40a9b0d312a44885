"""4 · Text → vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lakewake.model.recipe import ModelIdentity


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
