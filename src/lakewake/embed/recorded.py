"""The model that an index was built with, found by what the index records of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed import Embedder
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, RecipeMismatch
from lakewake.model.recipe import ModelIdentity

#: What to do if a text cannot be embedded here.
HINT = (
    "search with its configuration (`--config FILE`, `lakewake.open`); or by a vector, by words "
    "(mode keyword), or for rows like another"
)


class RecordedEmbedder:
    """Embeds with the model of this identity, which it looks for when the first text comes.

    Searches by vector and by words work even if the model is not installed.
    """

    def __init__(
        self, identity: ModelIdentity, load: Callable[[ModelSettings], Embedder] = load_embedder
    ) -> None:
        self._identity, self._load = identity, load
        self._found: Embedder | None = None
        self._finding = threading.Lock()

    @property
    def identity(self) -> ModelIdentity:
        return self._identity

    @property
    def tokenizer(self) -> str | None:
        return None

    def load(self) -> None:
        self._embedder().load()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One row for each text.

        Raises:
            ConfigError: the index does not record how to reach its model.
            RecipeMismatch: the model of that name is another one here.
        """
        return self._embedder().embed(texts)

    def _embedder(self) -> Embedder:
        with self._finding:
            if self._found is None:
                self._found = self._find()
            return self._found

    def _find(self) -> Embedder:
        built_by = self._identity
        refuse_unreachable(built_by)
        try:
            found = self._load(settings_of(built_by))
            differs = built_by.differs_from(found.identity)
        except ConfigError as error:
            raise ConfigError(
                f"the model of the index cannot be found here: {error.fact}", hint=HINT
            ) from error
        if differs:
            both = ", ".join(f"{k} {mine!r} ≠ {here!r}" for k, (mine, here) in differs.items())
            raise RecipeMismatch(
                f"the index was not built with the model {built_by.name!r} of this machine: {both}",
                hint=HINT,
            )
        return found


def settings_of(identity: ModelIdentity) -> ModelSettings:
    """The settings that find a model by its identity."""
    return ModelSettings(
        provider=identity.provider,
        name=identity.name,
        precision=identity.precision,
        dimension=identity.dimension,
        max_tokens=identity.max_tokens if identity.provider == "onnx" else 0,
    )


def refuse_unreachable(identity: ModelIdentity) -> None:
    """Refuse models that an index names, but that cannot be found by their name.

    Raises:
        ConfigError: it is a service, or there is no model at all.
    """
    if identity.provider == "http":
        raise ConfigError(
            f"the index was built with model {identity.name!r} of a service, and does not record "
            "the service's address and key",
            hint=HINT,
        )
    if identity.provider == "column":
        raise ConfigError(
            f"an index of vector column {identity.name!r} has no text model: search by vector",
            hint=f"give a vector of {identity.dimension} numbers instead of a text",
        )
