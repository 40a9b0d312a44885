"""Question and texts → how well each text answers, by a model that reads both together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lakewake.config.settings import RerankSettings


class Reranker(Protocol):
    """Scores texts against a question; slower than vectors, and more accurate."""

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """A finite number for each text, in order; larger is better.

        Raises:
            EmbedError: the model or its service failed.
            SetupError: it is not installed, or cannot be loaded.
        """


def _http(settings: RerankSettings) -> Reranker:
    from lakewake.rerank.http import HttpReranker

    return HttpReranker(settings)


def _onnx(settings: RerankSettings) -> Reranker:
    from lakewake.rerank.onnx import OnnxReranker

    return OnnxReranker(settings)


def _cross_encoder(settings: RerankSettings) -> Reranker:
    from lakewake.rerank.cross import CrossEncoderReranker

    return CrossEncoderReranker(settings)


RERANKERS: dict[str, Callable[[RerankSettings], Reranker]] = {
    "http": _http,
    "onnx": _onnx,
    "cross-encoder": _cross_encoder,
}


def load_reranker(settings: RerankSettings) -> Reranker:
    """The reranker that the settings name; its model is loaded on first use."""
    return RERANKERS[settings.provider](settings)
