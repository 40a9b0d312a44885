"""Models in a folder of the user."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx as onnx_format
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from lakewake.config.settings import ModelSettings
from lakewake.embed.onnx import OnnxEmbedder
from lakewake.embed.weights import file_sha256
from lakewake.errors import ConfigError, SetupError

VOCABULARY = {"[PAD]": 0, "red": 1, "white": 2, "wine": 3, "[UNK]": 4}
HIDDEN, POSITIONS = 8, 32
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": POSITIONS,
}


def write_common(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_bert(folder: Path, seed: int = 0) -> None:
    """A BERT of one small layer with random weights."""
    dense = {
        "attention.self.query": (HIDDEN, HIDDEN),
        "attention.self.key": (HIDDEN, HIDDEN),
        "attention.self.value": (HIDDEN, HIDDEN),
        "attention.output.dense": (HIDDEN, HIDDEN),
        "intermediate.dense": (4 * HIDDEN, HIDDEN),
        "output.dense": (HIDDEN, 4 * HIDDEN),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    for name, shape in dense.items():
        shapes[f"encoder.layer.0.{name}.weight"] = shape
        shapes[f"encoder.layer.0.{name}.bias"] = shape[:1]
    layers = [f"encoder.layer.0.{part}" for part in ("attention.output", "output")]
    for norm in ("embeddings", *layers):
        shapes[f"{norm}.LayerNorm.weight"] = shapes[f"{norm}.LayerNorm.bias"] = (HIDDEN,)
    random = np.random.default_rng(seed)
    tensors = {n: random.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    save_file(tensors, folder / "model.safetensors")


def write_ready_graph(path: Path) -> np.ndarray:
    """A graph such as model hubs ship: it returns token vectors, one row of a table per token."""
    table = np.random.default_rng(1).normal(size=(len(VOCABULARY), HIDDEN)).astype(np.float32)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "t"]) for n in names]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "t", 8])
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph(
        [node], "g", inputs, [output], [numpy_helper.from_array(table, "table")]
    )
    path.parent.mkdir(exist_ok=True)
    opset = [helper.make_opsetid("", 17)]
    onnx_format.save(helper.make_model(graph, ir_version=8, opset_imports=opset), path)
    return table


def open_folder(folder: Path, **settings: object) -> OnnxEmbedder:
    return OnnxEmbedder(ModelSettings(name=str(folder), **settings))


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_the_output_of_a_ready_made_graph_is_pooled_over_the_tokens(tmp_path, place):
    folder = write_common(tmp_path / "m")
    table = write_ready_graph(folder / place)
    vectors = open_folder(folder).embed(["white", "red wine"])
    expected = np.array([table[2], table[1] + table[3]])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(vectors - expected).max() < 1e-6


def test_the_identity_of_a_folder_has_the_hash_of_its_weights(tmp_path):
    folder = write_common(tmp_path / "my-model")
    write_bert(folder)
    identity = open_folder(folder).identity
    assert identity.weights == file_sha256(folder / "model.safetensors")
    assert (identity.name, identity.dimension, identity.max_tokens) == (
        "my-model",
        HIDDEN,
        POSITIONS,
    )


def test_other_weights_under_the_same_name_have_another_identity(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder, seed=1)
    before = open_folder(folder).identity
    write_bert(folder, seed=2)
    assert list(open_folder(folder).identity.differs_from(before)) == ["weights"]


def test_a_kept_graph_is_not_used_for_other_weights(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder, seed=1)
    before = open_folder(folder).embed(["red wine"])
    write_bert(folder, seed=2)
    after = open_folder(folder).embed(["red wine"])
    assert np.abs(before - after).max() > 1e-3
    assert len(list(folder.glob("lakewake-fp32-*.onnx"))) == 2


def test_the_graph_is_built_once(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    before = open_folder(folder).embed(["red wine"])
    (graph,) = folder.glob("lakewake-*.onnx")
    written = graph.stat().st_mtime_ns
    assert np.array_equal(open_folder(folder).embed(["red wine"]), before)
    assert graph.stat().st_mtime_ns == written


def test_each_precision_keeps_its_own_graph(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    fp32 = open_folder(folder).embed(["red wine", "white"])
    int8 = open_folder(folder, precision="int8").embed(["red wine", "white"])
    assert (fp32 * int8).sum(axis=1).min() > 0.9
    # The effect of rounded weights, not the small differences between processors.
    assert np.abs(fp32 - int8).max() > 1e-4
    assert len(list(folder.glob("lakewake-*.onnx"))) == 2


def test_products_of_int8_weights_fit_into_16_bits(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    open_folder(folder, precision="int8").embed(["red wine"])
    (graph,) = folder.glob("lakewake-int8-*.onnx")
    weights = [numpy_helper.to_array(t) for t in onnx_format.load(graph).graph.initializer]
    largest = [abs(w.astype(int)).max() for w in weights if w.dtype == np.int8 and w.any()]
    assert len(largest) == 4
    assert max(largest) * 2 * 255 <= 2**15 - 1


@pytest.mark.parametrize("other", [b"broken", None])
def test_a_kept_graph_with_other_content_is_built_again(tmp_path, other):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    before = open_folder(folder).embed(["red wine"])
    (graph,) = folder.glob("lakewake-*.onnx")
    real = graph.read_bytes()
    graph.write_bytes(other or real[:-4] + b"evil")
    assert np.array_equal(open_folder(folder).embed(["red wine"]), before)
    assert graph.read_bytes() == real


def test_weights_that_change_under_a_loaded_model_are_refused(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder, seed=1)
    embedder = open_folder(folder)
    assert embedder.identity.weights == file_sha256(folder / "model.safetensors")
    stat = (folder / "model.safetensors").stat()
    write_bert(folder, seed=2)
    os.utime(folder / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(SetupError, match="is not the file it should be"):
        embedder.embed(["red wine"])
    assert open_folder(folder).identity.weights != embedder.identity.weights


def test_the_trained_length_is_taken_from_the_folder(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert open_folder(folder).identity.max_tokens == 20


def test_a_model_without_mean_pooling_is_refused(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(ConfigError, match="cls_token"):
        _ = open_folder(folder).identity


def test_a_model_with_an_unknown_step_is_refused(tmp_path):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    steps = [{"type": "sentence_transformers.models.Dense"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(ConfigError, match="Dense"):
        _ = open_folder(folder).identity


def test_int8_of_a_ready_made_graph_is_refused(tmp_path):
    folder = write_common(tmp_path / "m")
    write_ready_graph(folder / "model.onnx")
    with pytest.raises(ConfigError, match="int8"):
        _ = open_folder(folder, precision="int8").identity


def test_a_ready_made_graph_with_external_weights_is_refused(tmp_path):
    folder = write_common(tmp_path / "m")
    write_ready_graph(folder / "model.onnx")
    (folder / "model.onnx_data").write_bytes(b"weights")
    with pytest.raises(ConfigError, match="second file"):
        _ = open_folder(folder).identity


def test_an_unsupported_architecture_without_a_ready_made_graph_is_refused(tmp_path):
    folder = write_common(tmp_path / "m", model_type="mpnet")
    write_bert(folder)
    with pytest.raises(SetupError, match="mpnet"):
        _ = open_folder(folder).identity


def test_weights_that_lack_a_tensor_are_refused_with_its_name(tmp_path):
    folder = write_common(tmp_path / "m")
    save_file({"other": np.zeros(1, np.float32)}, folder / "model.safetensors")
    with pytest.raises(SetupError, match="token_type_embeddings"):
        open_folder(folder).embed(["red"])


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    (folder / name).unlink()
    with pytest.raises(SetupError, match=name):
        open_folder(folder).embed(["red"])


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    folder = write_common(tmp_path / "m")
    write_bert(folder)
    (folder / name).write_bytes(b"\x00 not what it should be")
    with pytest.raises(SetupError, match=name):
        open_folder(folder).embed(["red"])
