"""Which model an onnx name means: the built-in one, or a folder laid out as model hubs do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lakewake.embed.minilm import Architecture, Source, Tensors, kept_graph, read_tensors
from lakewake.embed.weights import (
    GRAPHS,
    MINILM,
    PINNED,
    check_content,
    check_sizes,
    file_sha256,
    minilm_folder,
)
from lakewake.errors import ConfigError, SetupError

SAFETENSORS = "model.safetensors"
BUILT_IN = Architecture(layers=6, heads=12, epsilon=1e-12)
COMPLETE = "download the model's folder again, with all of its files"
#: Steps of a sentence-transformers model that we carry out, by the last part of their names.
KNOWN_STEPS = {"Transformer", "Pooling", "Normalize"}


@dataclass(frozen=True)
class ModelFolder:
    """What is known of a model without loading it.

    Attributes:
        weights: `model.safetensors` if the graph is built from it, else the ready ONNX file.
        architecture: what the graph is built by; None if it is ready.
        max_tokens: the longest text it is meant to read whole.
        positions: the longest text it is able to read.
        pinned: the built-in model, whose files must be the ones we know.
    """

    path: Path
    weights: Path
    architecture: Architecture | None
    dimension: int
    max_tokens: int
    positions: int
    pinned: bool = False

    @cached_property
    def sha256(self) -> str:
        """The hash of the weights: the pinned one, or that of the file as it is now."""
        return PINNED[self.weights.name] if self.pinned else file_sha256(self.weights)

    def read_tokenizer(self) -> str:
        """The text of its `tokenizer.json`.

        Raises:
            SetupError: a file is missing or not the pinned one.
        """
        self._check()
        path = self.path / "tokenizer.json"
        try:
            content = path.read_bytes()
            if self.pinned:
                check_content(path, content)
            return content.decode()
        except (OSError, ValueError) as error:
            raise SetupError(f"{path} cannot be read: {error}", hint=COMPLETE) from error

    def graph(self, precision: str) -> str | bytes:
        """What onnxruntime loads: a path, or the graph itself if it cannot be kept.

        Raises:
            SetupError: a file is missing or not the pinned one.
        """
        self._check()
        if self.architecture is None:
            return str(self.weights)
        # Executors get the built-in model as a folder like any other.
        known = self.sha256 == PINNED[SAFETENSORS] and self.architecture == BUILT_IN
        return kept_graph(self._source(precision), GRAPHS[precision] if known else "")

    def read_tensors(self, precision: str) -> Tensors:
        """The weights, by name, as the graph of that precision has them.

        Raises:
            SetupError: a file is missing or not the pinned one.
        """
        self._check()
        return read_tensors(self._source(precision))

    def _source(self, precision: str) -> Source:
        assert self.architecture is not None
        return Source(self.weights, self.sha256, self.architecture, precision)

    def _check(self) -> None:
        if self.pinned:
            check_sizes(self.path)


def find_model(name: str, precision: str) -> ModelFolder:
    """The built-in model by its name, else the folder of that path.

    Raises:
        SetupError: a file of the folder is missing or cannot be read.
        ConfigError: neither, or the model does something that this provider does not.
    """
    if name == MINILM:
        return builtin_model()
    path = Path(name).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"model {name!r} is neither {MINILM} nor a folder with model files",
            hint="use provider 'sentence-transformers', which takes any model by its name",
        )
    return read_folder(path.absolute(), precision)


def builtin_model() -> ModelFolder:
    """all-MiniLM-L6-v2, described without looking at its files."""
    path = minilm_folder()
    return ModelFolder(
        path=path,
        weights=path / SAFETENSORS,
        architecture=BUILT_IN,
        dimension=384,
        max_tokens=256,
        positions=512,
        pinned=True,
    )


def read_folder(path: Path, precision: str) -> ModelFolder:
    """Look at a folder of model files, without loading them.

    Raises:
        SetupError: a file is missing or cannot be read.
        ConfigError: the model does something that this provider does not.
    """
    config = _read_json(path / "config.json")
    _check_steps(path)
    weights, architecture = _choose_weights(path, config, precision)
    try:
        dimension, positions = int(config["hidden_size"]), int(config["max_position_embeddings"])
    except KeyError as error:
        raise SetupError(f"{path / 'config.json'} has no {error}", hint=COMPLETE) from error
    tokens = _read_optional(path / "sentence_bert_config.json").get("max_seq_length")
    tokens = min(tokens or positions, positions)
    return ModelFolder(path, weights, architecture, dimension, tokens, positions)


def _choose_weights(
    path: Path, config: Mapping[str, Any], precision: str
) -> tuple[Path, Architecture | None]:
    weights, architecture = path / "model.safetensors", Architecture.from_config(config)
    if architecture and weights.is_file():
        return weights, architecture
    ready = next((p for p in (path / "model.onnx", path / "onnx/model.onnx") if p.is_file()), None)
    if ready is None:
        kind = config.get("model_type", "unknown")
        raise SetupError(
            f"{path} has no model.onnx, and no model.safetensors of a BERT (its model is: {kind})",
            hint="put the model's ONNX file there, or use provider 'sentence-transformers'",
        )
    if precision != "fp32":
        raise ConfigError(
            f"precision {precision!r} is made from a BERT's model.safetensors, "
            f"and {path} has only {ready.name}",
            hint="remove `precision`, or put model.safetensors there",
        )
    if ready.with_name("model.onnx_data").exists():
        raise ConfigError(
            f"{ready} keeps its weights in a second file, which is not supported",
            hint="save the model as one file, or use provider 'sentence-transformers'",
        )
    return ready, None


def _check_steps(path: Path) -> None:
    modules = _read_optional(path / "modules.json", [])
    steps = [str(m.get("type", "")).rpartition(".")[2] for m in modules]
    other = [step for step in steps if step not in KNOWN_STEPS]
    pooling = _read_optional(path / "1_Pooling" / "config.json")
    modes = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    if other or modes not in ([], ["pooling_mode_mean_tokens"]):
        found = ", ".join([*other, *(m.removeprefix("pooling_mode_") for m in modes)])
        raise ConfigError(
            f"the model in {path} is not a transformer with mean pooling: it has {found}",
            hint="use provider 'sentence-transformers' for it",
        )


def _read_optional(path: Path, missing: Any = None) -> Any:
    return _read_json(path) if path.exists() else ({} if missing is None else missing)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise SetupError(f"{path.parent} has no {path.name}", hint=COMPLETE) from error
    except (OSError, ValueError) as error:
        raise SetupError(f"{path} cannot be read: {error}", hint=COMPLETE) from error
