"""Vectors that the table already has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.errors import ConfigError
from lakewake.model.recipe import ModelIdentity


class ColumnEmbedder:
    """Represents a vector column of the table: it has an identity and embeds nothing."""

    def __init__(self, settings: ModelSettings, column: str) -> None:
        if settings.dimension < 1:
            raise ConfigError(
                f"vector column {column!r} needs the length of its vectors",
                hint="add `dimension = …` to the index's model",
            )
        self._identity = ModelIdentity("column", column, settings.dimension, normalized=False)

    @property
    def identity(self) -> ModelIdentity:
        """The column's name and dimension: all that is known about its vectors."""
        return self._identity

    @property
    def tokenizer(self) -> str | None:
        return None

    def load(self) -> None:
        pass

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """An empty array for no texts.

        Raises:
            ConfigError: there is a text to embed, but no model for it.
        """
        if texts:
            raise ConfigError(
                f"an index of vector column {self._identity.name!r} has no text model: "
                "search by vector",
                hint=f"give a vector of {self._identity.dimension} numbers instead of a text",
            )
        return np.empty((0, self._identity.dimension), np.float32)
