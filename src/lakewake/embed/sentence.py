"""Texts → vectors by sentence-transformers: any model it can load, at torch's cost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.texts import prefixed, refuse_undecodable
from lakewake.embed.weights import file_sha256
from lakewake.errors import ConfigError, EmbedError, SetupError
from lakewake.model.recipe import ModelIdentity

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
WEIGHTS = "model.safetensors"


class SentenceEmbedder:
    """Runs a sentence-transformers model, by its hub name or from a folder.

    Only the library knows what its model is, so asking for the identity loads it too.
    """

    def __init__(self, settings: ModelSettings) -> None:
        if settings.precision != "fp32":
            raise ConfigError(
                f"precision {settings.precision!r} does not work with sentence-transformers",
                hint="use provider 'onnx' for int8, or remove `precision`",
            )
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: SentenceTransformer | None = None

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model that makes the vectors, with its weights' hash if their file can be found."""
        model = self._model()
        dimension = model.get_embedding_dimension()
        if self._settings.dimension not in (0, dimension):
            raise ConfigError(
                f"model {self._settings.name!r} makes vectors of {dimension} numbers, "
                f"but `dimension` is {self._settings.dimension}",
                hint=f"set `dimension` to {dimension}, or remove it",
            )
        steps = {type(step).__name__: step for step in model}
        pooling = steps["Pooling"].pooling_mode if "Pooling" in steps else ""
        pooling = pooling if isinstance(pooling, str) else "+".join(pooling)
        return ModelIdentity(
            provider="sentence-transformers",
            name=self._name,
            dimension=dimension,
            weights=_weights_sha256(self._settings.name),
            max_tokens=model.max_seq_length or 0,
            pooling=prefixed(pooling, self._settings.passage_prefix),
            normalized="Normalize" in steps,
        )

    @property
    def tokenizer(self) -> str | None:
        """The model's tokenizer, if it is a fast one."""
        fast = getattr(self._model().tokenizer, "backend_tokenizer", None)
        return None if fast is None else str(fast.to_str())

    def load(self) -> None:
        self._model()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One row for each text, in order, as the model makes it. The first call loads the model.

        Raises:
            SetupError: the extra is not installed, or the model cannot be loaded.
            TextRefused: some of the texts are not Unicode.
            EmbedError: torch failed.
        """
        return self._embed(texts, self._settings.passage_prefix)

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray:
        """The same for questions, which some models read in another way than a table's texts."""
        return self._embed(texts, self._settings.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> np.ndarray:
        if not texts:
            return np.empty((0, self.identity.dimension), np.float32)
        refuse_undecodable(texts)
        texts = [prefix + text for text in texts] if prefix else texts
        size = self._settings.batch or BATCH
        try:
            vectors = self._model().encode(list(texts), batch_size=size, show_progress_bar=False)
        except RuntimeError as error:
            raise EmbedError(
                f"sentence-transformers failed: {error}",
                hint="lower `batch` if memory ran out, then run the command again",
            ) from error
        return np.asarray(vectors, np.float32)

    @property
    def _name(self) -> str:
        """The name of a folder, without its path: the folder may be moved."""
        path = Path(self._settings.name).expanduser()
        return path.absolute().name if path.is_dir() else self._settings.name

    def _model(self) -> SentenceTransformer:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._settings)
            return self._loaded


def _load(settings: ModelSettings) -> SentenceTransformer:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise SetupError(
            "provider 'sentence-transformers' is not installed",
            hint="pip install 'lakewake[sentence-transformers]'",
        ) from error
    try:
        model = SentenceTransformer(str(Path(settings.name).expanduser()))
    except (OSError, ValueError) as error:
        raise SetupError(
            f"sentence-transformers cannot load model {settings.name!r}: {error}",
            hint="set `name` to a model of its hub, or to a folder with its files",
        ) from error
    if settings.max_tokens:
        model.max_seq_length = settings.max_tokens
    return model


def _weights_sha256(name: str) -> str:
    local = Path(name).expanduser() / WEIGHTS
    if local.is_file():
        return file_sha256(local)
    from huggingface_hub import try_to_load_from_cache

    # A short name is one of the library's own models.
    for repository in [name] if "/" in name else [f"sentence-transformers/{name}"]:
        cached = try_to_load_from_cache(repository, WEIGHTS)
        if isinstance(cached, str):
            return file_sha256(Path(cached))
    return ""
