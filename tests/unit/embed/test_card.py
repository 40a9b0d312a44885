"""The path of a card. The card itself is a double here; `python -m bench.gpu` runs a real one."""

from __future__ import annotations

import importlib.util
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import card as card_module
from lakewake.embed import lots
from lakewake.embed.card import Cards, OnnxOnCard
from lakewake.embed.devices import Runtime
from lakewake.embed.folder import builtin_model
from lakewake.embed.lots import Tokens, rectangles, tokenise, windows
from lakewake.embed.onnx import CARD_TEXTS, OnnxEmbedder, open_session, open_tokenizer
from lakewake.embed.tokenising import Tokenisers
from lakewake.errors import ConfigError, EmbedError, SetupError
from lakewake.model.recipe import ModelIdentity

WORDS = ["wine", "smoky", "a", "riesling", "naïve", "🍷", "unbelievable"]
TEXTS = [" ".join(WORDS[: n % 7 + 1] * (n % 5)) for n in range(300)]


@pytest.fixture(scope="module")
def tokenizer():
    return open_tokenizer(builtin_model(), 256)


@pytest.fixture(scope="module")
def tokens(tokenizer) -> Tokens:
    return tokenise(tokenizer, TEXTS)


class Mean:
    """A double of a card: a text's vector is the mean and the number of its tokens."""

    def __init__(self) -> None:
        self.received = 0

    def embed(self, tokens: Tokens) -> np.ndarray:
        self.received += len(tokens.lengths)
        out = np.empty((len(tokens.lengths), 2), np.float32)
        for some in rectangles(tokens, 500):
            out[some.positions, 0] = some.ids.sum(axis=1) / some.lengths
            out[some.positions, 1] = some.lengths
        return out


def cards(tokenizer, device="cuda", count=1, addresses=(), load=None) -> Cards:
    return Cards(device, tokenizer, count, load or (lambda _: Mean()), lambda: addresses)


def expected(tokenizer) -> np.ndarray:
    ids = [e.ids for e in tokenizer.encode_batch(TEXTS)]
    return np.array([[np.mean(row), len(row)] for row in ids], np.float32)


def test_every_text_is_in_one_rectangle_and_none_exceeds_its_tokens(tokens):
    found = list(rectangles(tokens, 64))
    assert sorted(np.concatenate([some.positions for some in found])) == list(range(len(TEXTS)))
    assert all(some.ids.size <= 64 for some in found)
    assert [int(some.lengths[0]) for some in found] == sorted(
        (int(some.lengths.max()) for some in found), reverse=True
    )


def test_a_text_longer_than_a_batch_is_a_batch_of_its_own(tokens):
    assert all(len(some.positions) == 1 for some in rectangles(tokens, 1))


def test_padding_is_zero(tokens):
    for some in rectangles(tokens, 1_000):
        beyond = np.arange(some.ids.shape[1]) >= some.lengths[:, None]
        assert not some.ids[beyond].any()
        assert some.ids[~beyond].all()


def test_vectors_come_back_in_the_order_of_the_texts(tokenizer, monkeypatch):
    monkeypatch.setattr(lots, "WINDOW", 70)
    monkeypatch.setattr(lots, "PART", 16)
    found = cards(tokenizer).embed(TEXTS, 2)
    assert np.abs(found - expected(tokenizer)).max() < 1e-3


def test_the_next_window_is_tokenised_while_the_card_works(monkeypatch):
    monkeypatch.setattr(lots, "WINDOW", 2)
    second = threading.Event()

    def read(texts):
        if "c" in texts:
            second.set()
        return Tokens(np.zeros(len(texts), np.int32), np.ones(len(texts), np.int64))

    next(windows(["a", "b", "c"], read))
    assert second.wait(10)


def test_processes_tokenise_as_this_one_does(tokenizer, tokens):
    processes = Tokenisers(tokenizer, cores=8)
    processes.processes = 1
    try:
        found = processes.read(TEXTS)
        assert (found.ids == tokens.ids).all()
        assert (found.lengths == tokens.lengths).all()
        processes._all[0].kill()
        after = processes.read(TEXTS)
        assert (after.ids == tokens.ids).all()
    finally:
        processes.close()
    assert processes._all[0].returncode is not None


def test_few_cores_start_no_process(tokenizer, tokens):
    processes = Tokenisers(tokenizer, cores=4)
    assert (processes.read(TEXTS).ids == tokens.ids).all()
    assert processes._all == []


def test_each_card_is_loaded_once_and_a_task_uses_its_own(tokenizer):
    loaded = {}
    given = ["1"]
    both = Cards("auto", tokenizer, 2, lambda n: loaded.setdefault(n, Mean()), lambda: tuple(given))
    both.embed(TEXTS[:3], 2)
    both.embed(TEXTS[:3], 2)
    given[0] = "0"
    both.embed(TEXTS[:2], 2)
    assert {n: model.received for n, model in loaded.items()} == {1: 6, 0: 2}


def test_a_card_that_is_not_there_is_named(tokenizer):
    with pytest.raises(SetupError, match="sees 1 cards"):
        cards(tokenizer, device="cuda:1").embed(["text"], 2)


def on_a_card(monkeypatch, **settings) -> tuple[OnnxEmbedder, list]:
    opened = []

    def open_double(runtime, device, folder, precision, tokenizer):
        opened.append((runtime, device, precision))
        return cards(tokenizer)

    monkeypatch.setattr("lakewake.embed.onnx.choose_runtime", lambda *_: Runtime.TORCH)
    monkeypatch.setattr("lakewake.embed.onnx.open_cards", open_double)
    identity = ModelIdentity("onnx", "double", 2, max_tokens=256)
    monkeypatch.setattr(OnnxEmbedder, "identity", identity)
    return OnnxEmbedder(ModelSettings(**settings)), opened


def test_many_texts_go_to_the_card_and_a_question_does_not(monkeypatch, tokenizer):
    embedder, opened = on_a_card(monkeypatch)
    monkeypatch.setattr(
        OnnxEmbedder,
        "_model",
        lambda self: SimpleNamespace(embed=lambda t, d: np.ones((len(t), d))),
    )
    assert embedder.embed(["one question"]).tolist() == [[1, 1]]
    assert opened == []
    assert np.abs(embedder.embed(TEXTS) - expected(tokenizer)).max() < 1e-3
    assert opened == [(Runtime.TORCH, "auto", "fp32")]
    assert len(TEXTS) >= CARD_TEXTS


def test_a_card_that_was_asked_for_gets_single_texts_too(monkeypatch):
    embedder, opened = on_a_card(monkeypatch, device="cuda")
    assert embedder.embed(["wine"]).shape == (1, 2)
    assert len(opened) == 1


def test_with_auto_a_driver_without_a_card_leaves_the_work_to_the_processor(monkeypatch):
    embedder, _ = on_a_card(monkeypatch)
    monkeypatch.setattr("lakewake.embed.onnx.open_cards", lambda *_: None)
    monkeypatch.setattr(
        OnnxEmbedder,
        "_model",
        lambda self: SimpleNamespace(embed=lambda t, d: np.ones((len(t), d))),
    )
    assert embedder.embed(TEXTS).min() == 1


def test_onnxruntime_on_a_card_makes_the_vectors_of_the_processor(tokens):
    # The session is one of the processor: what it is asked, and in which order, is the same.
    session = open_session(builtin_model(), "fp32", 1)
    few = Tokens(tokens.ids[: int(tokens.lengths[:20].sum())], tokens.lengths[:20])
    found = OnnxOnCard(session).embed(few)
    alone = OnnxEmbedder(ModelSettings(device="cpu")).embed(TEXTS[:20])
    assert np.abs(found - alone).max() < 1e-5


def test_the_cuda_provider_is_asked_for_without_tf32(monkeypatch):
    asked = {}

    def session(graph, options, providers):
        asked["providers"] = providers
        return SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])

    monkeypatch.setattr("onnxruntime.InferenceSession", session)
    with pytest.raises(SetupError, match="CUDA or cuDNN is missing"):
        card_module._load_onnx(builtin_model(), "fp32", 3)
    name, options = asked["providers"][0]
    assert (name, options) == ("CUDAExecutionProvider", {"device_id": 3, "use_tf32": "0"})


def test_a_failing_card_is_an_error_with_an_action():
    class Broken:
        def get_inputs(self):
            return []

        def run(self, *_):
            raise RuntimeError("illegal memory access")

    with pytest.raises(EmbedError, match="illegal memory access") as caught:
        OnnxOnCard(Broken()).embed(Tokens(np.ones(2, np.int32), np.array([2])))
    assert caught.value.hint


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_makes_the_vectors_of_onnxruntime(tokens):
    from lakewake.embed.bert import Bert

    folder = builtin_model()
    model = Bert(folder.read_tensors("fp32"), folder.architecture, half=False, device="cpu")
    few = Tokens(tokens.ids[: int(tokens.lengths[:20].sum())], tokens.lengths[:20])
    alone = OnnxEmbedder(ModelSettings(device="cpu")).embed(TEXTS[:20])
    assert np.abs(model.embed(few) - alone).max() < 1e-5


def test_half_precision_is_a_model_of_its_own_near_the_other():
    half, full = (OnnxEmbedder(ModelSettings(precision=p, device="cpu")) for p in ("fp16", "fp32"))
    assert half.identity.differs_from(full.identity) == {"precision": ("fp16", "fp32")}
    near = (half.embed(TEXTS[:12]) * full.embed(TEXTS[:12])).sum(axis=1)
    assert near.min() > 0.9999
    assert (half.embed(TEXTS[:12]) != full.embed(TEXTS[:12])).any()


def test_weights_too_large_for_half_precision_are_refused(tmp_path):
    from safetensors.numpy import save_file

    from lakewake.embed.folder import BUILT_IN
    from lakewake.embed.minilm import Source, read_tensors
    from lakewake.embed.weights import file_sha256

    file = tmp_path / "model.safetensors"
    save_file({"large": np.array([1e6], np.float32)}, file)
    with pytest.raises(ConfigError, match="too large for half precision"):
        read_tensors(Source(file, file_sha256(file), BUILT_IN, "fp16"))
