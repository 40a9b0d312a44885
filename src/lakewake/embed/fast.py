"""Texts → vectors by fastembed: ONNX models that it fetches by their names."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.texts import prefixed, refuse_undecodable
from lakewake.errors import ConfigError, EmbedError, SetupError
from lakewake.model.recipe import ModelIdentity

if TYPE_CHECKING:
    from fastembed import TextEmbedding

BATCH = 64


class FastEmbedder:
    """Runs a model of fastembed's list. Asking for the identity loads it too."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: TextEmbedding | None = None

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model's name in fastembed's list, and the length of its vectors."""
        asked, found = self._settings.dimension, int(self._model().embedding_size)
        if asked not in (0, found):
            raise ConfigError(
                f"model {self._settings.name!r} makes vectors of {found} numbers, "
                f"but `dimension` is {asked}",
                hint=f"set `dimension` to {found}, or remove it",
            )
        return ModelIdentity(
            provider="fastembed",
            name=self._settings.name,
            dimension=found,
            max_tokens=self._settings.max_tokens,
            pooling=prefixed("", self._settings.passage_prefix),
        )

    @property
    def tokenizer(self) -> str | None:
        return None

    def load(self) -> None:
        self._model()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One row for each text, in order. The first call loads the model.

        Raises:
            SetupError: the extra is not installed, or the model cannot be loaded.
            TextRefused: some of the texts are not Unicode.
            EmbedError: the model failed.
        """
        return self._embed(texts, self._settings.passage_prefix)

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray:
        """The same for questions, which some models read in another way than a table's texts."""
        return self._embed(texts, self._settings.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> np.ndarray:
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        if not texts:
            return vectors
        refuse_undecodable(texts)
        size = self._settings.batch or BATCH
        try:
            found = self._model().embed([prefix + text for text in texts], batch_size=size)
            for n, vector in enumerate(found):
                vectors[n] = vector
        # It passes on errors of onnxruntime, which have no common class.
        except Exception as error:
            raise EmbedError(
                f"fastembed failed: {error}",
                hint="lower `batch` if memory ran out, then run the command again",
            ) from error
        return vectors

    def _model(self) -> TextEmbedding:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._settings.name)
            return self._loaded


def _load(name: str) -> TextEmbedding:
    try:
        from fastembed import TextEmbedding
    except ImportError as error:
        raise SetupError(
            "provider 'fastembed' is not installed", hint="pip install 'lakewake[fastembed]'"
        ) from error
    try:
        return TextEmbedding(name)
    # Its errors for a download, a name and a file have no common class.
    except Exception as error:
        raise SetupError(
            f"fastembed cannot load model {name!r}: {error}",
            hint="check the name in fastembed's list of models, and that its files can be fetched",
        ) from error
