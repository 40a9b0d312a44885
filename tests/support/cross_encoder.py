"""A small cross-encoder made on the spot: it counts words that question and text share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

VOCABULARY = """
    [PAD] [UNK] [CLS] [SEP] smoky red with leather fresh white citrus sweet wine honey a tent
    jacket warm
"""
WORDS = VOCABULARY.split()
SPECIAL = 4


def make_cross_encoder(folder: Path, *, bias: float = 0.0, **config: Any) -> Path:
    """Write the folder of a cross-encoder: its score is the number of shared words plus `bias`."""
    folder.mkdir(parents=True)
    onnx.save(_graph(bias), str(folder / "model.onnx"))
    _tokenizer().save(str(folder / "tokenizer.json"))
    known = {"model_type": "bert", "max_position_embeddings": 64, "num_labels": 1}
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    return folder


def shared_words(question: str, text: str) -> int:
    """What the model computes, by hand."""
    asked, words = ([w for w in one.split() if w in WORDS] for one in (question, text))
    return sum(word == other for word in asked for other in words)


def _tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def _graph(bias: float) -> onnx.ModelProto:
    """Compare every token of the question with every one of the text, and count equal words."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n", "length"]) for n in names]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 1])
    constants = [
        helper.make_tensor("across", TensorProto.INT64, [1], [1]),
        helper.make_tensor("down", TensorProto.INT64, [1], [2]),
        helper.make_tensor("both", TensorProto.INT64, [2], [1, 2]),
        helper.make_tensor("special", TensorProto.INT64, [1], [SPECIAL - 1]),
        helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("bias", TensorProto.FLOAT, [1], [bias]),
    ]
    node = helper.make_node
    nodes = [
        node("Greater", ["input_ids", "special"], ["is_word"]),
        node("Cast", ["is_word"], ["word"], to=TensorProto.FLOAT),
        node("Cast", ["attention_mask"], ["there"], to=TensorProto.FLOAT),
        node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        node("Mul", ["word", "there"], ["counted"]),
        node("Mul", ["counted", "second"], ["in_text"]),
        node("Sub", ["one", "second"], ["first"]),
        node("Mul", ["counted", "first"], ["in_question"]),
        node("Unsqueeze", ["input_ids", "down"], ["rows"]),
        node("Unsqueeze", ["input_ids", "across"], ["columns"]),
        node("Equal", ["rows", "columns"], ["is_equal"]),
        node("Cast", ["is_equal"], ["equal"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["in_question", "down"], ["asked"]),
        node("Unsqueeze", ["in_text", "across"], ["found"]),
        node("Mul", ["asked", "found"], ["pairs"]),
        node("Mul", ["pairs", "equal"], ["shared"]),
        node("ReduceSum", ["shared", "both"], ["sum"], keepdims=0),
        node("Add", ["sum", "bias"], ["shifted"]),
        node("Unsqueeze", ["shifted", "across"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "shared words", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
