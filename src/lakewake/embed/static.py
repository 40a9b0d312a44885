"""Texts → vectors without a transformer: one vector for each token, distilled from MiniLM.

A text's vector is the weighted sum of its tokens' vectors, so words count and their order does not.
That is about 90 times as fast, for tables that are too large for a transformer.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.folder import ModelFolder, find_model
from lakewake.embed.lots import tokenise
from lakewake.embed.texts import refuse_undecodable
from lakewake.errors import ConfigError, SetupError
from lakewake.files import write_whole
from lakewake.model.recipe import ModelIdentity

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Changes whenever the vectors do.
DISTILLED = "distilled-1"
MAX_TOKENS = 512
#: Texts whose tokens' vectors are in memory at once, and texts for one call.
WINDOW, LOT = 256, 4_096
#: Frequent tokens count less, by their rank in the vocabulary, which is sorted by frequency.
SIF = 1e-5
#: Tokens in one run of the model while it is distilled.
BATCH = 512


class StaticEmbedder:
    """Adds up the vectors of tokens. They are distilled once, and kept beside the model."""

    lot = LOT

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: _Table | None = None

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model it is distilled from, and how."""
        folder = self._folder
        return ModelIdentity(
            provider="static",
            name=folder.path.name,
            dimension=folder.dimension,
            weights=folder.sha256,
            max_tokens=self._settings.max_tokens or MAX_TOKENS,
            pooling=DISTILLED,
        )

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer of the model it is distilled from."""
        return self._folder.read_tokenizer()

    def load(self) -> None:
        self._table()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One normalised row for each text, in order. The first call ever distils the model.

        Raises:
            SetupError: the model's files are missing or have another hash.
            TextRefused: some of the texts are not Unicode.
        """
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        if not texts:
            return vectors
        refuse_undecodable(texts)
        table = self._table()
        for start in range(0, len(texts), WINDOW):
            window = slice(start, start + WINDOW)
            vectors[window] = table.embed(texts[window])
        return vectors

    @cached_property
    def _folder(self) -> ModelFolder:
        folder = find_model(self._settings.name, "fp32")
        if folder.architecture is None:
            raise ConfigError(
                f"model {self._settings.name!r} has no model.safetensors to distil",
                hint="remove its name: all-MiniLM-L6-v2 is distilled by default",
            )
        if self._settings.dimension not in (0, folder.dimension):
            raise ConfigError(
                f"model {self._settings.name!r} makes vectors of {folder.dimension} numbers, "
                f"but `dimension` is {self._settings.dimension}",
                hint=f"set `dimension` to {folder.dimension}, or remove it",
            )
        return folder

    def _table(self) -> _Table:
        from lakewake.embed.onnx import open_tokenizer

        with self._lock:
            if self._loaded is None:
                tokenizer = open_tokenizer(self._folder, self.identity.max_tokens)
                self._loaded = _Table(tokenizer, kept_vectors(self._folder, tokenizer))
            return self._loaded


@dataclass(frozen=True)
class _Table:
    """The vector of each token, 0 for those that are in every text."""

    tokenizer: Tokenizer
    vectors: np.ndarray

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        tokens = tokenise(self.tokenizer, texts)
        total = np.add.reduceat(self.vectors[tokens.ids].astype(np.float32), tokens.starts)
        # A vector without a direction has no neighbours.
        total[~total.any(axis=1), 0] = 1
        found: np.ndarray = total / np.linalg.norm(total, axis=1, keepdims=True)
        return found


def kept_vectors(folder: ModelFolder, tokenizer: Tokenizer) -> np.ndarray:
    """The tokens' vectors: the file beside the weights, distilled now if it is missing.

    A file counts only if it holds what the sha256 at the end of its name says.

    Raises:
        SetupError: the model cannot be loaded.
    """
    kept = f"lakewake-{DISTILLED}-{folder.sha256[:16]}"
    for path in sorted(folder.path.glob(f"{kept}-*.npy")):
        if (found := _read(path)) is not None:
            return found
    vectors = distil(folder, tokenizer)
    file = io.BytesIO()
    np.save(file, vectors)
    sha256 = hashlib.sha256(file.getvalue()).hexdigest()
    with suppress(OSError):
        write_whole(folder.path / f"{kept}-{sha256}.npy", file.getvalue())
    return vectors


def _read(path: Path) -> np.ndarray | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() != path.stem.rpartition("-")[2]:
        return None
    found: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    return found


def distil(folder: ModelFolder, tokenizer: Tokenizer) -> np.ndarray:
    """What the model makes of each token alone, around their mean, rare ones with more weight.

    Raises:
        SetupError: the model cannot be loaded, or its tokenizer has no tokens around a text.
    """
    around = tokenizer.encode("").ids
    if len(around) != 2:
        raise SetupError(
            f"the tokenizer in {folder.path} puts {len(around)} tokens around a text, not 2",
            hint="remove the model's name: all-MiniLM-L6-v2 is distilled by default",
        )
    alone = _alone(folder, tokenizer.get_vocab_size(), around)
    ranks = np.arange(1, len(alone) + 1)
    shares = 1 / (ranks * (1 / ranks).sum())
    vectors = (alone - alone.mean(axis=0)) * (SIF / (SIF + shares))[:, None]
    vectors[around] = 0
    # Half precision also hides that processors round differently.
    found: np.ndarray = vectors.astype(np.float16)
    return found


def _alone(folder: ModelFolder, tokens: int, around: Sequence[int]) -> np.ndarray:
    from lakewake.embed.onnx import open_session, run_graph, threads_by_default

    session = open_session(folder, "fp32", threads_by_default())
    ids = np.full((tokens, 3), 0, np.int64)
    ids[:, 0], ids[:, 1], ids[:, 2] = around[0], np.arange(tokens), around[1]
    mask = np.ones_like(ids)
    parts = [
        run_graph(session, ids[n : n + BATCH], mask[n : n + BATCH]) for n in range(0, tokens, BATCH)
    ]
    return np.concatenate(parts)
