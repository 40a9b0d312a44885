"""A BERT on an NVIDIA card, by torch: token ids in, one normalised vector for each text out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.embed.lots import Rectangle, Tokens, rectangles
from lakewake.embed.minilm import Architecture
from lakewake.errors import EmbedError, SetupError

if TYPE_CHECKING:
    import torch

#: Most tokens in one batch, with padding; more does not make a card faster.
MOST_TOKENS = 262_144
#: The share of the free memory that one batch may take, and how many times its widest layer a token
#: takes.
SHARE, LAYERS_AT_ONCE = 0.5, 4
LEAST_TOKENS = 1_024


class Bert:
    """The model on one card. Several threads may call it; the card does one call at a time.

    Args:
        half: compute in half precision; float32 otherwise, without the card's shortcuts.
    """

    def __init__(
        self,
        tensors: Mapping[str, np.ndarray],
        architecture: Architecture,
        *,
        half: bool,
        device: str,
    ) -> None:
        import torch

        self._architecture, self._device = architecture, device
        self._dtype = torch.float16 if half else torch.float32
        self._lock = threading.Lock()
        self._weights = self._sent(tensors)
        self._most = self._most_tokens()

    def embed(self, tokens: Tokens) -> np.ndarray:
        """One row for each text, in order.

        Raises:
            EmbedError: the card failed, or its memory is too small for a single text.
        """
        with self._lock:
            return self._embed(tokens)

    def _embed(self, tokens: Tokens) -> np.ndarray:
        import torch

        while True:
            try:
                return self._attempt(tokens)
            except torch.OutOfMemoryError as error:
                # Another process may have taken memory since the size was chosen.
                if self._most <= LEAST_TOKENS:
                    raise _failed(error) from error
                self._most = max(LEAST_TOKENS, self._most // 2)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                raise _failed(error) from error

    def _attempt(self, tokens: Tokens) -> np.ndarray:
        import torch

        size = self._weights["embeddings.LayerNorm.bias"].numel()
        out = torch.empty((len(tokens.lengths), size), dtype=torch.float32, device=self._device)
        with torch.inference_mode():
            for some in rectangles(tokens, self._most):
                at = torch.from_numpy(some.positions).to(self._device, non_blocking=True)
                out[at] = self._forward(some)
        found: np.ndarray = out.cpu().numpy()
        return found

    def _forward(self, some: Rectangle) -> torch.Tensor:
        import torch
        from torch.nn import functional

        ids = torch.from_numpy(some.ids).to(self._device, non_blocking=True)
        width = ids.shape[1]
        lengths = torch.from_numpy(some.lengths).to(self._device, non_blocking=True)
        there = torch.arange(width, device=self._device) < lengths[:, None]
        # Without padding no mask is needed, and the card takes its fastest way.
        mask = None if (some.lengths == width).all() else there[:, None, None, :]
        words = functional.embedding(ids, self._weights["embeddings.word_embeddings.weight"])
        hidden = self._normal("embeddings", words + self._weights["positions"][:width])
        for number in range(self._architecture.layers):
            hidden = self._layer(f"encoder.layer.{number}", hidden, mask)
        total = (hidden * there[..., None]).sum(dim=1, dtype=torch.float32)
        return functional.normalize(total, dim=1)

    def _layer(self, name: str, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        from torch.nn import functional

        texts, width, size = hidden.shape
        heads = self._architecture.heads
        parts = self._times(f"{name}.attention.self", hidden)
        query, key, value = parts.view(texts, width, 3, heads, size // heads).unbind(2)
        attended = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask
        )
        mixed = self._times(
            f"{name}.attention.output.dense",
            attended.transpose(1, 2).reshape(texts, width, size),
        )
        middle = self._normal(f"{name}.attention.output", mixed + hidden)
        wide = functional.gelu(self._times(f"{name}.intermediate.dense", middle))
        return self._normal(f"{name}.output", self._times(f"{name}.output.dense", wide) + middle)

    def _times(self, name: str, value: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        return functional.linear(
            value, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        )

    def _normal(self, name: str, value: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        weight = self._weights[f"{name}.LayerNorm.weight"]
        bias = self._weights[f"{name}.LayerNorm.bias"]
        epsilon = self._architecture.epsilon
        return functional.layer_norm(value, weight.shape, weight, bias, epsilon)

    def _sent(self, tensors: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        import torch

        try:
            gathered = _gathered(tensors, self._architecture)
            return {
                name: torch.from_numpy(np.ascontiguousarray(value, np.float32)).to(
                    self._device, self._dtype
                )
                for name, value in gathered.items()
            }
        except KeyError as error:
            raise SetupError(
                f"the weights have no tensor {error}: not a BERT in the usual layout",
                hint='use provider "sentence-transformers" for this model',
            ) from error
        except RuntimeError as error:
            raise _failed(error) from error

    def _most_tokens(self) -> int:
        import torch

        if not self._device.startswith("cuda"):
            return MOST_TOKENS
        free, _ = torch.cuda.mem_get_info(self._device)
        widest = int(self._weights["encoder.layer.0.intermediate.dense.bias"].numel())
        each = widest * int(self._dtype.itemsize) * LAYERS_AT_ONCE
        return max(LEAST_TOKENS, min(MOST_TOKENS, int(free * SHARE) // each))


def _gathered(
    tensors: Mapping[str, np.ndarray], architecture: Architecture
) -> dict[str, np.ndarray]:
    """The weights as they are used: query, key and value in one matrix."""
    kept = {k: v for k, v in tensors.items() if k.startswith(("embeddings.", "encoder."))}
    # Every token has type 0.
    types = np.asarray(kept["embeddings.token_type_embeddings.weight"], np.float32)
    positions = np.asarray(kept["embeddings.position_embeddings.weight"], np.float32)
    found: dict[str, Any] = {**kept, "positions": positions + types[0]}
    for number in range(architecture.layers):
        name = f"encoder.layer.{number}.attention.self"
        for kind in ("weight", "bias"):
            parts = [kept[f"{name}.{part}.{kind}"] for part in ("query", "key", "value")]
            found[f"{name}.{kind}"] = np.concatenate(parts)
    return found


def _failed(error: Exception) -> EmbedError:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return EmbedError(
        f"torch failed on the card: {first}",
        hint='free memory of the card, or set `device = "cpu"`, then run the command again',
    )
