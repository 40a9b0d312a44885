"""Re-ranking with a cross-encoder in this process, by onnxruntime and without torch.

The model is a folder as model hubs have it: `model.onnx`, `tokenizer.json` and `config.json`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lakewake.config.settings import RerankSettings
from lakewake.errors import EmbedError, SetupError
from lakewake.extras import not_installed

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

#: Where the graph may be, in this order.
GRAPHS = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
#: Pairs run at once, and the most tokens of one, whatever the model could read.
BATCH, LONGEST = 16, 512
COMPLETE = "export a cross-encoder with one label to ONNX, and pass the folder with all its files"
#: Positions that a model of this family does not use for tokens.
_RESERVED = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}


class OnnxReranker:
    """Runs the cross-encoder in a folder."""

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """A number for each text, in order. The first call loads the model.

        Raises:
            SetupError: the folder lacks a file, or the model is not a cross-encoder with one label.
            EmbedError: onnxruntime failed, or a score is not a finite number.
        """
        return self._model().score(question, texts) if texts else []

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(Path(self._settings.name).expanduser())
            return self._loaded


@dataclass(frozen=True)
class _Model:
    """A loaded model; may be used by several threads at once.

    Attributes:
        raw: its scores have no fixed range; otherwise they are between 0 and 1.
    """

    session: InferenceSession
    tokenizer: Tokenizer
    padding: int
    raw: bool

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        pairs = self.tokenizer.encode_batch([(_text(question), _text(text)) for text in texts])
        scores = np.empty(len(pairs), np.float64)
        # Pairs of similar length together: less padding.
        order = np.argsort([-len(pair.ids) for pair in pairs], kind="stable")
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            scores[some] = self._run([pairs[n] for n in some])
        if not np.isfinite(scores).all():
            raise EmbedError(
                "the cross-encoder returned a score that is not a finite number",
                hint="search without it: rerank=False, `--no-rerank`; its files may be damaged",
            )
        return [float(score) for score in scores]

    def _run(self, pairs: Sequence[Encoding]) -> np.ndarray:
        known = {
            "input_ids": _padded([pair.ids for pair in pairs], self.padding),
            "attention_mask": _padded([pair.attention_mask for pair in pairs], 0),
            "token_type_ids": _padded([pair.type_ids for pair in pairs], 0),
        }
        inputs = {i.name: known[i.name] for i in self.session.get_inputs()}
        try:
            output = np.asarray(self.session.run(None, inputs)[0], np.float64)
        # onnxruntime's errors have no common class.
        except Exception as error:
            raise EmbedError(
                f"the cross-encoder failed: {error}",
                hint="search without it: rerank=False, `--no-rerank`",
            ) from error
        if output.size != len(pairs):
            raise SetupError(
                f"the cross-encoder returns {output.shape} numbers for {len(pairs)} pairs, "
                "expected one for each",
                hint=COMPLETE,
            )
        logits = output.reshape(len(pairs))
        # Written so that it cannot overflow.
        return logits if self.raw else np.exp(-np.logaddexp(0, -logits))


def load(folder: Path) -> _Model:
    """The model in a folder.

    Raises:
        SetupError: a file is missing, or is not what it should be.
    """
    graph = next((folder / name for name in GRAPHS if (folder / name).is_file()), None)
    if graph is None:
        raise SetupError(
            f"{folder} has no cross-encoder: none of {', '.join(GRAPHS)} is there", hint=COMPLETE
        )
    config = _json(folder / "config.json")
    return _Model(
        session=_session(graph),
        tokenizer=_tokenizer(folder, _longest(folder, config)),
        padding=int(config.get("pad_token_id") or 0),
        raw=_is_raw(folder, config),
    )


def _session(graph: Path) -> InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise not_installed(error) or error from error

    options = onnxruntime.SessionOptions()
    given = os.environ.get("LAKEWAKE_THREADS", "")
    options.intra_op_num_threads = int(given) if given.isdecimal() else os.cpu_count() or 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        found = onnxruntime.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise SetupError(f"{graph} cannot be loaded: {error}", hint=COMPLETE) from error
    unknown = {i.name for i in found.get_inputs()} - {
        "input_ids",
        "attention_mask",
        "token_type_ids",
    }
    if unknown:
        raise SetupError(
            f"{graph} needs the input {', '.join(sorted(unknown))}, which no tokenizer makes",
            hint=COMPLETE,
        )
    return found


def _tokenizer(folder: Path, longest: int) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise not_installed(error) or error from error

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    # tokenizers raises plain Exception.
    except Exception as error:
        raise SetupError(f"{path} cannot be used: {error}", hint=COMPLETE) from error
    tokenizer.enable_truncation(longest, strategy="longest_first")
    tokenizer.no_padding()
    return tokenizer


def _longest(folder: Path, config: dict[str, Any]) -> int:
    """How many tokens of a pair the model reads."""
    reserved = _RESERVED.get(str(config.get("model_type")), 0)
    positions = config.get("max_position_embeddings")
    meant = _json(folder / "tokenizer_config.json", {}).get("model_max_length")
    limits = [LONGEST]
    limits += [positions - reserved] if isinstance(positions, int) else []
    # Some tokenizers name a huge number for "no limit".
    limits += [meant] if isinstance(meant, int) else []
    return max(min(limits), 8)


def _is_raw(folder: Path, config: dict[str, Any]) -> bool:
    """Whether the scores are the model's own numbers, as sentence-transformers has it."""
    if int(config.get("num_labels") or len(config.get("id2label") or [0])) != 1:
        raise SetupError(f"the cross-encoder in {folder} has several labels", hint=COMPLETE)
    own = config.get("sentence_transformers") or {}
    named = str(own.get("activation_fn") or config.get("sbert_ce_default_activation_function"))
    name = named.rpartition(".")[2]
    if name not in ("None", "Identity", "Sigmoid"):
        raise SetupError(
            f"the cross-encoder in {folder} has the activation {name}, which is not supported",
            hint='use provider = "cross-encoder", which runs it with sentence-transformers',
        )
    return name == "Identity"


def _json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    if default is not None and not path.exists():
        return default
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SetupError(f"{path} cannot be read: {error}", hint=COMPLETE) from error
    if not isinstance(found, dict):
        raise SetupError(f"{path} is not an object", hint=COMPLETE)
    return found


def _text(text: str) -> str:
    """The text without halves of surrogate pairs, which a tokenizer refuses."""
    return text.encode("utf-8", "replace").decode()


def _padded(rows: Sequence[Sequence[int]], value: int) -> np.ndarray:
    out = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for n, row in enumerate(rows):
        out[n, : len(row)] = row
    return out
