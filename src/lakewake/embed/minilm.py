"""BERT weights → an ONNX graph: tokens in, one normalised vector for each text out.

The graph uses onnxruntime's fused operators. It is as fast as a graph exported from torch after
onnxruntime has optimised it, but needs no torch. It is built once and kept beside the weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lakewake.embed import protobuf
from lakewake.embed.weights import file_sha256
from lakewake.errors import ConfigError, SetupError
from lakewake.files import write_whole

#: Changes whenever the graph does, so that a graph kept by an older version is not used.
GRAPH_VERSION = 2
#: The largest int8 weight. Processors without VNNI add two products with a byte in 16 bits and clip
#: the sum. Up to this weight nothing is clipped, so a text has the same vector on every machine.
LARGEST = 63
#: The domain of onnxruntime's operators that are not in the ONNX standard.
FUSED = "com.microsoft"
FUSED_VERSION, ONNX_VERSION, FILE_VERSION = 1, 17, 8
INPUTS = ("input_ids", "attention_mask")

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Architecture:
    """The numbers of a BERT that its weights do not contain."""

    layers: int
    heads: int
    epsilon: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Architecture | None:
        """What a `config.json` says, or None if it is not a BERT that this builder knows."""
        known = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
        if any(config.get(name, value) != value for name, value in known.items()):
            return None
        try:
            return cls(
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                epsilon=float(config["layer_norm_eps"]),
            )
        except KeyError:
            return None


@dataclass(frozen=True)
class Source:
    """What a graph is built from.

    Attributes:
        sha256: what the weights must hash to.
    """

    weights: Path
    sha256: str
    architecture: Architecture
    precision: str

    @property
    def key(self) -> str:
        """A key that differs for each graph."""
        made_of = f"{self.sha256} {self.precision} {self.architecture} {GRAPH_VERSION}"
        return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def kept_graph(source: Source, pinned: str = "") -> str | bytes:
    """The graph of these weights: the path of the file beside them, built now if it is missing.

    A file counts only if it holds what it should: the pinned graph, else the one whose sha256 is at
    the end of its name. If no such file can be written, the graph itself is returned.

    Args:
        pinned: the sha256 of the graph, if it is known beforehand.

    Raises:
        SetupError: the weights are not those of a BERT, or not the expected ones.
    """
    kept = f"lakewake-{source.precision}-{source.key}"
    for path in sorted(source.weights.parent.glob(f"{kept}*.onnx")):
        if _holds(path, pinned or path.stem.rpartition("-")[2]):
            return str(path)
    graph = build_graph(read_tensors(source), source.architecture, source.precision)
    sha256 = hashlib.sha256(graph).hexdigest()
    # A graph that is not the pinned one would look like a forged one the next time.
    if sha256 != (pinned or sha256):
        return graph
    path = source.weights.with_name(f"{kept}-{sha256}.onnx")
    with suppress(OSError):
        write_whole(path, graph)
        return str(path)
    return graph


def _holds(path: Path, sha256: str) -> bool:
    try:
        return file_sha256(path) == sha256
    except OSError:
        return False


def build_graph(tensors: Tensors, architecture: Architecture, precision: str) -> bytes:
    """The ONNX file of a BERT with mean pooling and L2 normalisation.

    Inputs `input_ids` and `attention_mask`, both int64 (texts, tokens); output `embedding`, float32
    (texts, hidden size). With `int8` the matrices are quantised for each output channel, and their
    inputs at run time. With `fp16` the weights are those that `read_tensors` has rounded.

    Raises:
        SetupError: a tensor is missing.
    """
    graph = _Graph(tensors, architecture, int8=precision == "int8")
    graph.add("Cast", ["input_ids"], "ids", to=protobuf.TYPES["int32"])
    graph.add("Cast", ["attention_mask"], "mask", to=protobuf.TYPES["int32"])
    hidden = _embeddings(graph)
    for layer in range(architecture.layers):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden)
    _pool(graph, hidden)
    return graph.serialize()


@dataclass
class _Graph:
    """A graph under construction. A value is known by its name."""

    tensors: Tensors
    architecture: Architecture
    int8: bool
    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)

    def tensor(self, name: str) -> np.ndarray:
        if name not in self.tensors:
            raise SetupError(
                f"the weights have no tensor {name!r}: not a BERT in the usual layout",
                hint="use provider 'sentence-transformers', or put the model's model.onnx there",
            )
        return np.asarray(self.tensors[name], np.float32)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(protobuf.tensor(name, value))
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.tensor(name))

    def add(
        self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any
    ) -> str:
        self.nodes.append(protobuf.node(operator, inputs, outputs, domain, attributes))
        return outputs[0]

    def fused(self, operator: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        return self.add(operator, inputs, *outputs, domain=FUSED, **attributes)

    def serialize(self) -> bytes:
        tokens = ["texts", "tokens"]
        size = self.tensor("embeddings.LayerNorm.bias").size
        graph = protobuf.message(
            [
                *((1, node) for node in self.nodes),
                (2, "bert"),
                *((5, constant) for constant in self.constants),
                *((11, protobuf.declared(n, "int64", tokens)) for n in INPUTS),
                (12, protobuf.declared("embedding", "float32", ["texts", size])),
            ]
        )
        versions = (("", ONNX_VERSION), (FUSED, FUSED_VERSION))
        operators = [protobuf.message([(1, name), (2, version)]) for name, version in versions]
        return protobuf.message([(1, FILE_VERSION), (7, graph), *((8, o) for o in operators)])


def _embeddings(graph: _Graph) -> str:
    # Every token has type 0, so its embedding can be added to the positions beforehand.
    types = graph.tensor("embeddings.token_type_embeddings.weight")
    positions = graph.tensor("embeddings.position_embeddings.weight") + types[0]
    inputs = [
        "ids",
        "",
        graph.weight("embeddings.word_embeddings.weight"),
        graph.constant("positions", positions),
        "",
        graph.weight("embeddings.LayerNorm.weight"),
        graph.weight("embeddings.LayerNorm.bias"),
    ]
    outputs = ("embedded", "embedded.mask")
    epsilon = graph.architecture.epsilon
    return graph.fused("EmbedLayerNormalization", inputs, *outputs, epsilon=epsilon)


def _layer(graph: _Graph, name: str, hidden: str) -> str:
    attended = _attention(graph, f"{name}.attention.self", hidden)
    mixed = _multiply(graph, f"{name}.attention.output.dense", attended)
    middle = _add_and_normalize(graph, f"{name}.attention.output", mixed, hidden)
    wide = _multiply(graph, f"{name}.intermediate.dense", middle)
    bias = graph.weight(f"{name}.intermediate.dense.bias")
    active = graph.fused("BiasGelu", [wide, bias], f"{name}.active")
    narrow = _multiply(graph, f"{name}.output.dense", active)
    return _add_and_normalize(graph, f"{name}.output", narrow, middle)


def _attention(graph: _Graph, name: str, hidden: str) -> str:
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    matrix = np.concatenate([graph.tensor(f"{part}.weight").T for part in parts], axis=1)
    bias = graph.constant(
        f"{name}.bias", np.concatenate([graph.tensor(f"{p}.bias") for p in parts])
    )
    out, heads = f"{name}.attended", graph.architecture.heads
    if not graph.int8:
        inputs = [hidden, graph.constant(f"{name}.matrix", matrix), bias, "mask"]
        return graph.fused("Attention", inputs, out, num_heads=heads)
    value, scale, zero = f"{name}.in", f"{name}.in_scale", f"{name}.in_zero"
    graph.add("DynamicQuantizeLinear", [hidden], value, scale, zero)
    weight, weight_scale, weight_zero = _quantize(graph, f"{name}.matrix", matrix)
    inputs = [value, weight, bias, scale, weight_scale, "mask", zero, weight_zero]
    return graph.fused("QAttention", inputs, out, num_heads=heads)


def _multiply(graph: _Graph, name: str, value: str) -> str:
    matrix = graph.tensor(f"{name}.weight").T
    if graph.int8:
        inputs = [value, *_quantize(graph, f"{name}.matrix", matrix)]
        return graph.fused("DynamicQuantizeMatMul", inputs, f"{name}.out")
    return graph.add("MatMul", [value, graph.constant(f"{name}.matrix", matrix)], f"{name}.out")


def _quantize(graph: _Graph, name: str, matrix: np.ndarray) -> tuple[str, str, str]:
    """A matrix as int8, symmetric around zero: its values, its scale and zero for each column."""
    scale = (np.abs(matrix).max(axis=0) / LARGEST).astype(np.float32)
    values = np.clip(np.rint(matrix / scale), -LARGEST, LARGEST).astype(np.int8)
    return (
        graph.constant(name, values),
        graph.constant(f"{name}_scale", scale),
        graph.constant(f"{name}_zero", np.zeros(scale.shape, np.int8)),
    )


def _add_and_normalize(graph: _Graph, name: str, value: str, skipped: str) -> str:
    inputs = [
        value,
        skipped,
        graph.weight(f"{name}.LayerNorm.weight"),
        graph.weight(f"{name}.LayerNorm.bias"),
        graph.weight(f"{name}.dense.bias"),
    ]
    epsilon = graph.architecture.epsilon
    return graph.fused("SkipLayerNormalization", inputs, f"{name}.normal", epsilon=epsilon)


def _pool(graph: _Graph, hidden: str) -> None:
    # The sum over the tokens: the norm that follows cancels the division that makes it a mean.
    axis = graph.constant("axis", np.array([1]))
    graph.add("Cast", ["attention_mask"], "counted", to=protobuf.TYPES["float32"])
    graph.add("Unsqueeze", ["counted", axis], "row")
    graph.add("MatMul", ["row", hidden], "sums")
    graph.add("Squeeze", ["sums", axis], "sum")
    graph.add("LpNormalization", ["sum"], "embedding", axis=1, p=2)


def read_tensors(source: Source) -> Tensors:
    """The weights by name; for `fp16` rounded to half precision, kept as float32.

    Raises:
        SetupError: they cannot be read, or are not the expected ones.
        ConfigError: some are too large for half precision.
    """
    tensors = _read_tensors(source)
    return _rounded(tensors, source.weights) if source.precision == "fp16" else tensors


def _rounded(tensors: Tensors, weights: Path) -> Tensors:
    with np.errstate(over="ignore"):
        half = {k: v.astype(np.float16) for k, v in tensors.items() if v.dtype.kind == "f"}
    if any(not np.isfinite(value).all() for value in half.values()):
        raise ConfigError(
            f"{weights} holds numbers that are too large for half precision",
            hint='remove `precision = "fp16"`',
        )
    return {k: half[k].astype(np.float32) if k in half else v for k, v in tensors.items()}


def _read_tensors(source: Source) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    weights = source.weights
    try:
        if (found := file_sha256(weights)) != source.sha256:
            raise SetupError(
                f"{weights} is not the file it should be: sha256 {found[:12]}…, "
                f"expected {source.sha256[:12]}…",
                hint="`lakewake setup` fetches the built-in model; restore a model of your own",
            )
        tensors: Tensors = load_file(weights)
    except (SafetensorError, OSError) as error:
        raise SetupError(
            f"{weights} cannot be read: {error}", hint="download the model's folder again"
        ) from error
    return tensors
