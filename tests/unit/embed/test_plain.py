"""The built-in model in numpy: the same tokens and vectors as tokenizers and onnxruntime."""

from __future__ import annotations

import json
import math
import unicodedata
from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from lakewake.config.settings import ModelSettings
from lakewake.embed import protobuf
from lakewake.embed.folder import builtin_model
from lakewake.embed.onnx import OnnxEmbedder, open_tokenizer
from lakewake.embed.plain import PlainModel, gelu
from lakewake.embed.wordpiece import WordPiece
from lakewake.errors import SetupError
from support import TESTS

TEXTS: list[str] = json.loads((TESTS / "data" / "minilm_reference.json").read_text())["texts"]
MOST = 256


#: A short limit for tests of truncation.
FEW = 16


@cache
def tokenizer(most: int) -> Tokenizer:
    return open_tokenizer(builtin_model(), most)


@cache
def wordpiece() -> WordPiece:
    return WordPiece(builtin_model().read_tokenizer())


@pytest.fixture(scope="module")
def theirs() -> Tokenizer:
    return tokenizer(MOST)


@pytest.fixture(scope="module")
def ours() -> WordPiece:
    return wordpiece()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_vectors_equal_those_of_onnxruntime(precision):
    texts = [*TEXTS, "", " ", "word " * 60]
    plain = PlainModel(builtin_model(), precision, MOST).embed(texts, 384)
    expected = OnnxEmbedder(ModelSettings(precision=precision)).embed(texts)
    assert np.abs(plain - expected).max() < 1e-5


def test_every_character_of_the_first_plane_becomes_the_same_tokens(theirs, ours):
    # The package knows the Unicode of 2015: see wordpiece.py.
    characters = [chr(n) for n in range(0x10000) if not 0xD800 <= n < 0xE000]
    texts = [f"a{c}b" for c in characters]
    differ = [
        c
        for c, encoding, text in zip(characters, theirs.encode_batch(texts), texts, strict=True)
        if encoding.ids != ours.encode(text, MOST)
    ]
    assert {unicodedata.category(c) for c in differ} <= {
        "Mn",
        "Mc",
        "Po",
        "Cf",
        "Ps",
        "Pe",
        "Pd",
        "So",
    }
    assert len(differ) < 200


@given(st.text(st.characters(max_codepoint=0x7FF, exclude_characters="\u061d\u07fd")))
@settings(max_examples=300, deadline=None)
def test_texts_become_the_same_tokens(text):
    assert wordpiece().encode(text, FEW) == tokenizer(FEW).encode(text).ids


@pytest.mark.parametrize(
    "text",
    [
        "[CLS] and [MASK]s, [mask] too",
        "x" * 101,
        "x" * 100,
        "Ὀδυσσεύς ΣΊΣΥΦΟΣ İstanbul Straße",
        "東京タワー 한국어 naïve café",
        "🥰 don't stop—ever…",
    ],
)
def test_unusual_texts_become_the_same_tokens(theirs, ours, text):
    assert ours.encode(text, MOST) == theirs.encode(text).ids


def test_another_kind_of_tokenizer_needs_the_package():
    other = json.loads(builtin_model().read_tokenizer())
    other["normalizer"]["lowercase"] = False
    with pytest.raises(SetupError, match="tokenizers, which this model needs,"):
        WordPiece(json.dumps(other))


def test_gelu_is_exact_to_seven_digits():
    x = np.linspace(-8, 8, 2001, dtype=np.float32)
    exact = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.tolist()]
    assert np.abs(gelu(x) - exact).max() < 1e-6


def test_graphs_are_files_that_onnx_itself_reads(tmp_path):
    names = ["input_ids", "attention_mask"]
    graph = builtin_model().graph("fp32")
    model = onnx.load(graph) if isinstance(graph, str) else onnx.load_from_string(graph)
    assert [i.name for i in model.graph.input] == names
    assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 384


def test_a_node_is_written_as_onnx_writes_it():
    expected = onnx.helper.make_node("Op", ["a", ""], ["b"], domain="d", epsilon=1e-12, axis=300)
    written = protobuf.node("Op", ["a", ""], ["b"], "d", {"epsilon": 1e-12, "axis": 300})
    assert written == expected.SerializeToString()


def test_a_tensor_is_written_as_onnx_writes_it():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = onnx.numpy_helper.from_array(value, "t")
    assert protobuf.tensor("t", value) == expected.SerializeToString()
