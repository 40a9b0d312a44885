"""The built-in runtime on NVIDIA cards: by torch, or by onnxruntime's CUDA provider."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lakewake.embed.devices import HINT, Runtime, choose_card, task_addresses
from lakewake.embed.folder import ModelFolder
from lakewake.embed.lots import THREADS, Tokens, rectangles, windows
from lakewake.embed.tokenising import Tokenisers
from lakewake.errors import SetupError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

#: Most tokens in one batch of onnxruntime, with padding.
ONNX_TOKENS = 65_536


class TokenModel(Protocol):
    """A model on one card."""

    def embed(self, tokens: Tokens) -> np.ndarray:
        """One normalised row for each text, in order.

        Raises:
            EmbedError: the card failed.
        """


class Cards:
    """A model on the cards of this machine. Each is loaded when it is first used.

    Args:
        count: how many cards the runtime sees.
        load: loads the model to the card of that number.
        addresses: the cards that Spark gave to the task that runs now.
    """

    def __init__(
        self,
        device: str,
        tokenizer: Tokenizer,
        count: int,
        load: Callable[[int], TokenModel],
        addresses: Callable[[], tuple[str, ...]] = task_addresses,
    ) -> None:
        self._device, self._tokenisers = device, Tokenisers(tokenizer)
        self._count, self._load, self._addresses = count, load, addresses
        self._lock = threading.Lock()
        self._loaded: dict[int, TokenModel] = {}

    def embed(self, texts: Sequence[str], dimension: int) -> np.ndarray:
        """One normalised row for each text, in order.

        Raises:
            SetupError: there is no card of that number.
            EmbedError: the card failed.
        """
        model = self._model()
        vectors = np.empty((len(texts), dimension), np.float32)
        for span, tokens in windows(texts, self._tokenisers.read, self._threads):
            vectors[span] = model.embed(tokens)
        return vectors

    @property
    def _threads(self) -> int:
        return self._tokenisers.processes or THREADS

    def load(self) -> None:
        """Load the model to the card now."""
        self._model()

    def _model(self) -> TokenModel:
        number = choose_card(self._device, self._addresses(), self._count)
        if number >= self._count:
            raise SetupError(
                f"device {self._device!r} cannot be used: this process sees {self._count} cards",
                hint="name a card by a number below that, or set CUDA_VISIBLE_DEVICES",
            )
        with self._lock:
            if number not in self._loaded:
                self._loaded[number] = self._load(number)
            return self._loaded[number]


def open_cards(
    runtime: Runtime, device: str, folder: ModelFolder, precision: str, tokenizer: Tokenizer
) -> Cards | None:
    """The model on the cards that the runtime sees; None if it sees none and may do without.

    Raises:
        SetupError: a card was asked for, and the runtime sees none; or a file cannot be read.
    """
    if runtime is Runtime.ONNXRUNTIME:
        # It does not count cards; a number that does not exist fails when it is loaded.
        return Cards(device, tokenizer, 256, partial(_load_onnx, folder, precision))
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        return Cards(device, tokenizer, count, partial(_load_torch, folder, precision))
    if device == "auto":
        return None
    raise SetupError(f"device {device!r} cannot be used: torch sees no NVIDIA card", hint=HINT)


def _load_torch(folder: ModelFolder, precision: str, card: int) -> TokenModel:
    from lakewake.embed.bert import Bert

    assert folder.architecture is not None
    half = precision == "fp16"
    return Bert(
        folder.read_tensors(precision), folder.architecture, half=half, device=f"cuda:{card}"
    )


def _load_onnx(folder: ModelFolder, precision: str, card: int) -> TokenModel:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without TF32, which would make other vectors than the processor does.
    cuda = ("CUDAExecutionProvider", {"device_id": card, "use_tf32": "0"})
    try:
        session = onnxruntime.InferenceSession(
            folder.graph(precision), options, providers=[cuda, "CPUExecutionProvider"]
        )
    # onnxruntime's errors have no common class.
    except Exception as error:
        raise SetupError(
            f"onnxruntime cannot load the model to card {card}: {error}", hint=HINT
        ) from error
    # It goes on without the provider if a library is missing.
    if "CUDAExecutionProvider" not in session.get_providers():
        raise SetupError("onnxruntime cannot use the card: CUDA or cuDNN is missing", hint=HINT)
    return OnnxOnCard(session)


class OnnxOnCard:
    """A graph on onnxruntime's CUDA provider."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def embed(self, tokens: Tokens) -> np.ndarray:
        """One normalised row for each text, in order.

        Raises:
            EmbedError: onnxruntime failed.
        """
        from lakewake.embed.onnx import run_graph

        parts: list[tuple[np.ndarray, np.ndarray]] = []
        for some in rectangles(tokens, ONNX_TOKENS):
            there = np.arange(some.ids.shape[1]) < some.lengths[:, None]
            ids, mask = some.ids.astype(np.int64), there.astype(np.int64)
            parts.append((some.positions, run_graph(self._session, ids, mask)))
        out = np.empty((len(tokens.lengths), parts[0][1].shape[1]), np.float32)
        for positions, vectors in parts:
            out[positions] = vectors
        return out
