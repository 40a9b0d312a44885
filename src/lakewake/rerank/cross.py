"""Re-ranking with a cross-encoder of sentence-transformers, in this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.config.settings import RerankSettings
from lakewake.errors import EmbedError, SetupError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker:
    """Runs a cross-encoder, by its hub name or from a folder."""

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: CrossEncoder | None = None

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """A number for each text, in order. The first call loads the model.

        Raises:
            SetupError: the extra is not installed, or the model cannot be loaded.
            EmbedError: torch failed.
        """
        model = self._model()
        pairs = [(question, text) for text in texts]
        try:
            scores = model.predict(pairs, show_progress_bar=False)
        except RuntimeError as error:
            raise EmbedError(
                f"the cross-encoder failed: {error}",
                hint="search without it: rerank=False, `--no-rerank`",
            ) from error
        return [float(score) for score in scores]

    def _model(self) -> CrossEncoder:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._settings.name)
            return self._loaded


def _load(name: str) -> CrossEncoder:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise SetupError(
            "re-ranking with a cross-encoder needs sentence-transformers",
            hint="pip install 'lakewake[sentence-transformers]'",
        ) from error
    try:
        return CrossEncoder(str(Path(name).expanduser()))
    except (OSError, ValueError) as error:
        raise SetupError(
            f"the cross-encoder {name!r} cannot be loaded: {error}",
            hint="set `name` to a model of its hub, or to a folder with its files",
        ) from error
