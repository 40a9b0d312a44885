"""Provider → embedder. Each is imported where it is used: some are slow to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lakewake.config.settings import ModelSettings
from lakewake.embed import Embedder
from lakewake.errors import ConfigError, SetupError
from lakewake.model.recipe import ModelIdentity


def load_embedder(settings: ModelSettings, column: str | None = None) -> Embedder:
    """The embedder of these settings, its model not loaded yet.

    Args:
        column: the table's vector column; if there is one, the vectors come from it.

    Raises:
        ConfigError: there is no such provider, or its settings do not fit.
    """
    if column is not None:
        from lakewake.embed.column import ColumnEmbedder

        return ColumnEmbedder(settings, column)
    factory = PROVIDERS.get(settings.provider)
    if factory is None:
        raise ConfigError(
            f"there is no embedding provider {settings.provider!r}",
            hint=f"use one of {', '.join(PROVIDERS)}",
        )
    return factory(settings)


@cache
def kept_embedder(settings: ModelSettings, column: str | None = None) -> Embedder:
    """The same, shared by all callers in this process: its model is loaded once."""
    return load_embedder(settings, column)


def sent_embedder(
    settings: ModelSettings, files: Mapping[str, Path], identity: ModelIdentity
) -> Embedder:
    """The embedder of these settings on an executor.

    Args:
        files: the settings that name files, and where the files are on this machine.
        identity: that of the driver's embedder.

    Raises:
        SetupError: the executor has another model.
    """
    there: dict[str, Any] = {name: str(path) for name, path in files.items()}
    embedder = kept_embedder(replace(settings, **there))
    if embedder.identity != identity:
        differs = ", ".join(identity.differs_from(embedder.identity))
        raise SetupError(
            f"executors have a different model from the driver: {differs} differ",
            hint="name the model by a folder, so that its files are sent to the executors",
        )
    return embedder


def model_files(settings: ModelSettings) -> dict[str, Path]:
    """The settings that name a file or folder of this machine, and its path.

    An embedder with the same settings is the same model even if these files are elsewhere.
    """
    if settings.provider in ("onnx", "static"):
        from lakewake.embed.folder import find_model

        return {"name": find_model(settings.name, settings.precision).path}
    if settings.provider == "sentence-transformers" and Path(settings.name).is_dir():
        return {"name": Path(settings.name)}
    if settings.provider == "http" and settings.tokenizer:
        return {"tokenizer": Path(settings.tokenizer).expanduser()}
    return {}


def _onnx(settings: ModelSettings) -> Embedder:
    from lakewake.embed.onnx import OnnxEmbedder

    return OnnxEmbedder(settings)


def _sentence_transformers(settings: ModelSettings) -> Embedder:
    from lakewake.embed.sentence import SentenceEmbedder

    return SentenceEmbedder(settings)


def _fastembed(settings: ModelSettings) -> Embedder:
    from lakewake.embed.fast import FastEmbedder

    return FastEmbedder(settings)


def _http(settings: ModelSettings) -> Embedder:
    from lakewake.embed.http import HttpEmbedder

    return HttpEmbedder(settings)


def _static(settings: ModelSettings) -> Embedder:
    from lakewake.embed.static import StaticEmbedder

    return StaticEmbedder(settings)


def _hashing(settings: ModelSettings) -> Embedder:
    from lakewake.embed.hashing import HashingEmbedder

    return HashingEmbedder(settings)


def _column(settings: ModelSettings) -> Embedder:
    raise ConfigError(
        "provider 'column' needs the table's vector column", hint='add `vector = "…"` to the index'
    )


PROVIDERS: dict[str, Callable[[ModelSettings], Embedder]] = {
    "onnx": _onnx,
    "sentence-transformers": _sentence_transformers,
    "fastembed": _fastembed,
    "http": _http,
    "static": _static,
    "hashing": _hashing,
    "column": _column,
}
