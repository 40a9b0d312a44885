"""The built-in model on onnxruntime. Needs its files: `lakewake setup` fetches them."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import onnx
from lakewake.embed.onnx import OnnxEmbedder, batches_by_length, pad, pool
from lakewake.embed.weights import PINNED
from lakewake.errors import ConfigError, SetupError, TextRefused
from support import TESTS

REFERENCE = json.loads((TESTS / "data" / "minilm_reference.json").read_text())
TEXTS: list[str] = REFERENCE["texts"]
VECTORS = np.array(REFERENCE["vectors"], np.float32)
#: Ordinary English; int8 is worse for single letters and for scripts the model hardly knows.
SENTENCES = [n for n, text in enumerate(TEXTS) if text.isascii() and len(text.split()) > 3]


@pytest.fixture(scope="module")
def fp32() -> OnnxEmbedder:
    return OnnxEmbedder(ModelSettings())


@pytest.fixture(scope="module")
def vectors(fp32) -> np.ndarray:
    return fp32.embed(TEXTS)


@pytest.fixture(scope="module")
def int8() -> OnnxEmbedder:
    return OnnxEmbedder(ModelSettings(precision="int8"))


@pytest.fixture
def nothing_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))


def test_vectors_equal_those_of_sentence_transformers(vectors):
    assert np.abs(vectors - VECTORS).max() < 1e-4


def test_vectors_are_float32_of_length_one(vectors):
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_a_text_has_the_same_vector_alone_and_in_a_batch(fp32, vectors):
    alone = np.concatenate([fp32.embed([text]) for text in TEXTS])
    assert np.abs(alone - vectors).max() < 1e-5


def test_more_texts_than_a_window_come_back_in_order(fp32, monkeypatch):
    monkeypatch.setattr(onnx, "WINDOW", 5)
    assert np.abs(fp32.embed(TEXTS) - VECTORS).max() < 1e-4


def test_text_after_256_tokens_does_not_change_the_vector(fp32):
    words = "word " * 254
    cut, whole = fp32.embed([words, words + "and then something else entirely"])
    assert np.abs(cut - whole).max() < 1e-5


def test_text_after_128_tokens_changes_the_vector(fp32):
    words = "word " * 130
    less, more = fp32.embed([words, words + "and then something else entirely"])
    assert less @ more < 0.99


def test_max_tokens_cuts_earlier_and_changes_the_identity(fp32):
    short = OnnxEmbedder(ModelSettings(max_tokens=16))
    assert short.identity.differs_from(fp32.identity) == {"max_tokens": (16, 256)}
    words = "word " * 14
    cut, whole = short.embed([words, words + "and then something else entirely"])
    assert np.abs(cut - whole).max() < 1e-5


def test_int8_changes_the_identity(fp32, int8):
    assert int8.identity.differs_from(fp32.identity) == {"precision": ("int8", "fp32")}


def test_int8_vectors_are_close_but_not_equal_to_fp32(int8, vectors):
    cosine = (vectors[SENTENCES] * int8.embed([TEXTS[n] for n in SENTENCES])).sum(axis=1)
    assert cosine.min() > 0.98
    assert cosine.max() < 0.99999


def test_an_int8_vector_does_not_depend_on_the_texts_beside_it(int8):
    alone = np.concatenate([int8.embed([text]) for text in TEXTS])
    assert np.array_equal(alone, int8.embed(TEXTS))


@pytest.mark.usefixtures("nothing_fetched")
def test_the_identity_is_known_without_the_files():
    identity = OnnxEmbedder(ModelSettings()).identity
    assert identity.as_dict() == {
        "provider": "onnx",
        "name": "all-MiniLM-L6-v2",
        "dimension": 384,
        "weights": PINNED["model.safetensors"],
        "precision": "fp32",
        "max_tokens": 256,
        "pooling": "mean",
        "normalized": True,
    }


@pytest.mark.usefixtures("nothing_fetched")
def test_no_texts_make_no_rows_and_need_no_files():
    assert OnnxEmbedder(ModelSettings()).embed([]).shape == (0, 384)


@pytest.mark.usefixtures("nothing_fetched")
def test_embedding_without_the_model_files_names_the_setup_command():
    with pytest.raises(SetupError) as caught:
        OnnxEmbedder(ModelSettings()).embed(["text"])
    assert "lakewake setup" in caught.value.hint


@pytest.mark.usefixtures("nothing_fetched")
def test_loading_the_tokenizer_without_its_files_names_the_setup_command():
    with pytest.raises(SetupError) as caught:
        _ = OnnxEmbedder(ModelSettings()).tokenizer
    assert "lakewake setup" in caught.value.hint


def test_the_tokenizer_is_the_models_own(fp32):
    assert json.loads(fp32.tokenizer)["model"]["vocab"]["wine"] == 4511


def test_texts_that_are_not_unicode_are_refused_with_their_positions(fp32):
    with pytest.raises(TextRefused) as caught:
        fp32.embed(["fine", "half \ud83c a pair", "wine 🍷", "\udcff"])
    assert caught.value.positions == (1, 3)


def test_threads_share_one_model(monkeypatch):
    opened = []

    def open_and_count(*arguments):
        opened.append(arguments)
        return open_session(*arguments)

    open_session = onnx.open_session
    monkeypatch.setattr(onnx, "open_session", open_and_count)
    embedder = OnnxEmbedder(ModelSettings())
    with ThreadPoolExecutor(4) as pool_of_threads:
        rows = list(pool_of_threads.map(lambda text: embedder.embed([text])[0], TEXTS[:8]))
    assert len(opened) == 1
    assert np.abs(np.array(rows) - VECTORS[:8]).max() < 1e-4


def test_a_later_process_loads_the_kept_graph_without_the_builder():
    OnnxEmbedder(ModelSettings()).embed(["built at the latest now"])
    program = (
        "import sys\n"
        "from lakewake.embed.registry import load_embedder\n"
        "from lakewake.config.settings import ModelSettings\n"
        "embedder = load_embedder(ModelSettings())\n"
        "embedder.identity\n"
        "print('onnxruntime' in sys.modules)\n"
        "print(embedder.embed(['text']).shape, 'onnx' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False", "(1, 384) False"], done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (ModelSettings(precision="fp8"), "fp8"),
        (ModelSettings(dimension=768), "384"),
        (ModelSettings(max_tokens=513), "512"),
        (ModelSettings(name="no-such-model"), "no-such-model"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        _ = OnnxEmbedder(settings).identity


def test_an_invalid_number_of_threads_is_refused(monkeypatch):
    monkeypatch.setenv("LAKEWAKE_THREADS", "many")
    with pytest.raises(ConfigError, match="many"):
        OnnxEmbedder(ModelSettings())


def test_batches_hold_texts_of_similar_length():
    batches = [batch.tolist() for batch in batches_by_length([3, 9, 1, 7, 8], 2)]
    assert batches == [[1, 4], [3, 0], [2]]


def test_padding_is_masked():
    ids, mask = pad([[5, 6, 7], [8]])
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_pooling_leaves_padding_out():
    tokens = np.array([[[3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]])
    assert pool(tokens, np.array([[1, 1, 0]])) == pytest.approx(np.array([[0.6, 0.8]]))
