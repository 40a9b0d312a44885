"""Texts → vectors by numpy alone, for questions on a machine without onnxruntime.

It computes what the graph of `minilm.py` does, one text at a time. The vectors are the same, but
for the last digit. Loading takes half as long as onnxruntime does, and each text twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakewake.embed.folder import ModelFolder
from lakewake.embed.minilm import Architecture, Tensors
from lakewake.embed.wordpiece import WordPiece


class PlainModel:
    """A BERT with mean pooling and L2 normalisation; may be used by several threads at once.

    Raises:
        SetupError: a file is missing or not the pinned one, or its tokenizer needs a package.
    """

    def __init__(self, folder: ModelFolder, precision: str, max_tokens: int) -> None:
        assert folder.architecture is not None
        self._architecture: Architecture = folder.architecture
        self._tensors: Tensors = folder.read_tensors(precision)
        self._tokenizer = WordPiece(folder.read_tokenizer())
        self._max_tokens = max_tokens

    def embed(self, texts: Sequence[str], dimension: int) -> np.ndarray:
        """One normalised row for each text, in order."""
        vectors = np.empty((len(texts), dimension), np.float32)
        for n, text in enumerate(texts):
            vectors[n] = self._run(self._tokenizer.encode(text, self._max_tokens))
        return vectors

    def _run(self, ids: Sequence[int]) -> np.ndarray:
        hidden = self._embedded(ids)
        for layer in range(self._architecture.layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden)
        total = hidden.sum(axis=0)
        vector: np.ndarray = total / np.linalg.norm(total)
        return vector

    def _embedded(self, ids: Sequence[int]) -> np.ndarray:
        name = "embeddings"
        found = self._tensors[f"{name}.word_embeddings.weight"][np.asarray(ids)]
        found = found + self._tensors[f"{name}.position_embeddings.weight"][: len(ids)]
        found += self._tensors[f"{name}.token_type_embeddings.weight"][0]
        return self._normal(f"{name}.LayerNorm", found)

    def _layer(self, name: str, hidden: np.ndarray) -> np.ndarray:
        attended = self._attention(f"{name}.attention.self", hidden)
        mixed = self._multiply(f"{name}.attention.output.dense", attended)
        middle = self._normal(f"{name}.attention.output.LayerNorm", mixed + hidden)
        wide = gelu(self._multiply(f"{name}.intermediate.dense", middle))
        narrow = self._multiply(f"{name}.output.dense", wide)
        return self._normal(f"{name}.output.LayerNorm", narrow + middle)

    def _attention(self, name: str, hidden: np.ndarray) -> np.ndarray:
        tokens, size = hidden.shape
        shape = tokens, self._architecture.heads, size // self._architecture.heads
        query, key, value = (
            self._multiply(f"{name}.{part}", hidden).reshape(shape).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(shape[2]))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        found: np.ndarray = (weights @ value).transpose(1, 0, 2).reshape(tokens, size)
        return found

    def _multiply(self, name: str, value: np.ndarray) -> np.ndarray:
        found = products(value, self._tensors[f"{name}.weight"])
        found += self._tensors[f"{name}.bias"]
        return found

    def _normal(self, name: str, value: np.ndarray) -> np.ndarray:
        centred = value - value.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + np.float32(self._architecture.epsilon))
        found: np.ndarray = scaled * self._tensors[f"{name}.weight"]
        found += self._tensors[f"{name}.bias"]
        return found


def products(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The product of each row with each of the others.

    One thread computes it. `@` would use all cores, and where they are shared or limited, its
    threads wait for one another a hundred times as long as this takes.
    """
    out: np.ndarray
    if hasattr(np, "vecdot"):
        out = np.vecdot(rows[:, None, :], others[None, :, :])
    else:
        out = np.einsum("ik,jk->ij", rows, others)
    return out


def gelu(x: np.ndarray) -> np.ndarray:
    """x Φ(x), where Φ is the distribution of a normal variable, to 2e-7.

    numpy has no error function. This is number 7.1.26 of Abramowitz and Stegun.
    """
    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = tail * t + np.float32(factor)
    tail = tail * t * np.exp(-z * z) / 2
    found: np.ndarray = x * np.where(x < 0, tail, 1 - tail)
    return found
