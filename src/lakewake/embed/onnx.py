"""Texts → vectors by the built-in runtime: onnxruntime, or an NVIDIA card if there is one.

Without onnxruntime, numpy embeds the questions of a search (`plain.py`).
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed import LOT
from lakewake.embed.card import Cards, open_cards
from lakewake.embed.devices import Runtime, check_device, choose_runtime, installed
from lakewake.embed.folder import COMPLETE, ModelFolder, find_model
from lakewake.embed.texts import refuse_undecodable
from lakewake.errors import ConfigError, EmbedError, SetupError
from lakewake.extras import not_installed
from lakewake.model.choices import PRECISIONS
from lakewake.model.recipe import ModelIdentity

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

#: Texts run at once. Larger batches lose: more padding, and the caches overflow.
BATCH = 16
#: Texts tokenised and sorted by length at once; bounds the memory of a large call.
WINDOW = 2048
#: Texts for one call if there is a card: as many as are sorted by length together.
CARD_LOT = 32_768
#: With device "auto", smaller calls stay on the processor: questions need not wait for torch.
CARD_TEXTS = 256


class OnnxEmbedder:
    """Runs all-MiniLM-L6-v2, or the model in a folder, with mean pooling and L2 normalisation.

    Args:
        threads: how many to run on; `$LAKEWAKE_THREADS` or all cores by default.
    """

    def __init__(self, settings: ModelSettings, threads: int | None = None) -> None:
        if settings.precision not in PRECISIONS:
            raise ConfigError(
                f"there is no precision {settings.precision!r}",
                hint=f"use one of {', '.join(PRECISIONS)}",
            )
        check_device(settings.device)
        if settings.precision == "int8" and settings.device.startswith("cuda"):
            raise ConfigError(
                'precision "int8" is computed on the processor only',
                hint='set `precision` to "fp16" for a card, or remove `device`',
            )
        self._settings = settings
        self._threads = threads or threads_by_default()
        self._lock = threading.Lock()
        self._loaded: _OnProcessor | None = None
        self._cards: Cards | None = None
        self._no_cards = False

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model that makes the vectors. A folder's weights are hashed for it, once."""
        folder, settings = self._folder, self._settings
        return ModelIdentity(
            provider="onnx",
            name=folder.path.name,
            dimension=folder.dimension,
            weights=folder.sha256,
            precision=settings.precision,
            max_tokens=settings.max_tokens or folder.max_tokens,
            pooling="mean",
        )

    @property
    def tokenizer(self) -> str | None:
        """The model's `tokenizer.json`, as it is shipped."""
        return self._folder.read_tokenizer()

    @property
    def lot(self) -> int:
        """How many texts to give to one call of `embed`."""
        return CARD_LOT if self._runtime else LOT

    def load(self) -> None:
        if self._on_card(1):
            return
        self._model()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One normalised row for each text, in order. The first call loads the model.

        Raises:
            SetupError: the model's files are missing, have another hash, or do not load.
            TextRefused: some of the texts are not Unicode.
            EmbedError: onnxruntime or the card failed.
        """
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        if not texts:
            return vectors
        refuse_undecodable(texts)
        if cards := self._on_card(len(texts)):
            return cards.embed(texts, self.identity.dimension)
        model = self._model()
        for start in range(0, len(texts), WINDOW):
            window = slice(start, start + WINDOW)
            vectors[window] = model.embed(texts[window], self.identity.dimension)
        return vectors

    @cached_property
    def _folder(self) -> ModelFolder:
        settings = self._settings
        folder = find_model(settings.name, settings.precision)
        if settings.dimension not in (0, folder.dimension):
            raise ConfigError(
                f"model {settings.name!r} makes vectors of {folder.dimension} numbers, "
                f"but `dimension` is {settings.dimension}",
                hint=f"set `dimension` to {folder.dimension}, or remove it",
            )
        if not 0 <= settings.max_tokens <= folder.positions:
            raise ConfigError(
                f"model {settings.name!r} reads at most {folder.positions} tokens, "
                f"but `max_tokens` is {settings.max_tokens}",
                hint=f"set `max_tokens` to at most {folder.positions}, or remove it",
            )
        return folder

    @cached_property
    def _runtime(self) -> Runtime | None:
        """What computes on a card; None: there is none, or the model is not for one."""
        if self._settings.precision == "int8":
            return None
        has_weights = self._folder.architecture is not None
        return choose_runtime(self._settings.device, has_weights, installed())

    def _on_card(self, texts: int) -> Cards | None:
        """The cards if this many texts are embedded there."""
        device = self._settings.device
        few = device == "auto" and texts < CARD_TEXTS
        if few or self._runtime is None or self._no_cards:
            return None
        with self._lock:
            if self._cards is None:
                self._cards = open_cards(
                    self._runtime,
                    device,
                    self._folder,
                    self._settings.precision,
                    open_tokenizer(self._folder, self.identity.max_tokens),
                )
                self._no_cards = self._cards is None
            return self._cards

    def _model(self) -> _OnProcessor:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> _OnProcessor:
        settings, folder = self._settings, self._folder
        if _plain(folder, settings.precision):
            from lakewake.embed.plain import PlainModel

            return PlainModel(folder, settings.precision, self.identity.max_tokens)
        return _Model(
            session=open_session(folder, settings.precision, self._threads),
            tokenizer=open_tokenizer(folder, self.identity.max_tokens),
            batch=_batch(settings),
        )


class _OnProcessor(Protocol):
    """A loaded model; may be used by several threads at once."""

    def embed(self, texts: Sequence[str], dimension: int) -> np.ndarray:
        """One normalised row for each text, in order."""


@dataclass(frozen=True)
class _Model:
    """A model that onnxruntime has loaded."""

    session: InferenceSession
    tokenizer: Tokenizer
    batch: int

    def embed(self, texts: Sequence[str], dimension: int) -> np.ndarray:
        encodings = self.tokenizer.encode_batch(list(texts))
        vectors = np.empty((len(texts), dimension), np.float32)
        for positions in batches_by_length([len(e.ids) for e in encodings], self.batch):
            vectors[positions] = self._run([encodings[p] for p in positions])
        return vectors

    def _run(self, encodings: Sequence[Encoding]) -> np.ndarray:
        ids, mask = pad([e.ids for e in encodings])
        return run_graph(self.session, ids, mask)


def run_graph(session: InferenceSession, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One normalised row for each row of token ids.

    Raises:
        EmbedError: onnxruntime failed.
    """
    known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    inputs = {i.name: known[i.name] for i in session.get_inputs() if i.name in known}
    try:
        output: np.ndarray = session.run(None, inputs)[0]
    # onnxruntime's errors have no common class.
    except Exception as error:
        raise EmbedError(
            f"onnxruntime failed: {error}",
            hint="lower `batch` if memory ran out, then run the command again",
        ) from error
    return output if output.ndim == 2 else pool(output, mask)


def batches_by_length(lengths: Sequence[int], size: int) -> Iterator[np.ndarray]:
    """The positions of these lengths in batches of similar ones, longest first: less padding."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]


def pad(ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids as a rectangle, and a mask of the same shape: 1 where there is a token."""
    shape = len(ids), max(len(row) for row in ids)
    values, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for n, row in enumerate(ids):
        values[n, : len(row)] = row
        mask[n, : len(row)] = 1
    return values, mask


def pool(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The normalised mean of each text's tokens: (texts, tokens, size) → (texts, size)."""
    # The norm cancels the division that makes a sum a mean.
    total = (tokens * mask[..., None]).sum(axis=1)
    vectors: np.ndarray = total / np.linalg.norm(total, axis=1, keepdims=True)
    return vectors


def threads_by_default() -> int:
    """How many threads a model runs on: `$LAKEWAKE_THREADS`, or all cores."""
    given = os.environ.get("LAKEWAKE_THREADS", "")
    if given and not given.isdecimal():
        raise ConfigError(
            f"LAKEWAKE_THREADS is {given!r}, not a number",
            hint="export LAKEWAKE_THREADS=4, or unset it",
        )
    return int(given or 0) or os.cpu_count() or 1


def _plain(folder: ModelFolder, precision: str) -> bool:
    """Whether numpy computes the model: onnxruntime is not installed, and is not needed for it."""
    computable = folder.architecture is not None and precision != "int8"
    return computable and importlib.util.find_spec("onnxruntime") is None


def _batch(settings: ModelSettings) -> int:
    # int8 scales by the largest value of the batch, so a text's vector would depend on the texts
    # beside it (cosine 0.99 to its vector alone). One at a time costs a tenth of the speed.
    return 1 if settings.precision == "int8" else settings.batch or BATCH


def open_session(folder: ModelFolder, precision: str, threads: int) -> InferenceSession:
    """The model on the processor.

    Raises:
        SetupError: it cannot be loaded.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise not_installed(error) or error from error

    graph = folder.graph(precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    # onnxruntime's errors have no common class.
    except Exception as error:
        what = graph if isinstance(graph, str) else f"the graph of {folder.weights}"
        hint = "delete it: it is built again from the weights" if folder.architecture else COMPLETE
        raise SetupError(f"{what} cannot be loaded: {error}", hint=hint) from error


def open_tokenizer(folder: ModelFolder, max_tokens: int) -> Tokenizer:
    """The model's tokenizer, which cuts texts and pads none.

    Raises:
        SetupError: it cannot be used.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise not_installed(error) or error from error

    try:
        tokenizer = Tokenizer.from_str(folder.read_tokenizer())
    # tokenizers raises plain Exception.
    except Exception as error:
        raise SetupError(
            f"the tokenizer.json in {folder.path} cannot be used: {error}", hint=COMPLETE
        ) from error
    # As shipped it cuts at 128 tokens, and pads every text to 128.
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    return tokenizer
