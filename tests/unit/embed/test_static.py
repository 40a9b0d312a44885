"""The static model. Its vectors are distilled once, from the built-in model."""

from __future__ import annotations

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import lot_of, static
from lakewake.embed.folder import builtin_model
from lakewake.embed.registry import load_embedder, model_files
from lakewake.embed.static import StaticEmbedder, distil, kept_vectors
from lakewake.errors import ConfigError, TextRefused

TEXTS = [
    "A smoky red wine with leather and tobacco.",
    "This red smells of smoke and old leather.",
    "The invoice was paid twice by mistake.",
    "Refund: the customer was charged two times.",
]


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder(ModelSettings(provider="static"))


def test_texts_of_like_meaning_are_nearer_than_others(embedder):
    vectors = embedder.embed(TEXTS)
    near = vectors @ vectors.T
    assert near[0, 1] > max(near[0, 2], near[0, 3], near[1, 2], near[1, 3])
    assert near[2, 3] > max(near[0, 2], near[0, 3], near[1, 2], near[1, 3])


def test_a_vector_does_not_depend_on_the_texts_beside_it(embedder, monkeypatch):
    vectors = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert np.array_equal(vectors, alone)
    monkeypatch.setattr(static, "WINDOW", 3)
    assert np.array_equal(embedder.embed(TEXTS), vectors)


def test_every_vector_has_length_one_whatever_the_text(embedder):
    vectors = embedder.embed([*TEXTS, "", " ", "\u200b", "🍷", "a" * 100_000, "the " * 5_000])
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert embedder.embed([]).shape == (0, 384)


def test_its_identity_is_its_own(embedder):
    other = load_embedder(ModelSettings()).identity
    differs = embedder.identity.differs_from(other)
    assert set(differs) == {"provider", "max_tokens", "pooling"}
    assert lot_of(embedder) == static.LOT


def test_texts_that_are_not_unicode_are_refused(embedder):
    with pytest.raises(TextRefused):
        embedder.embed(["fine", "\udcff"])


def test_executors_get_the_folder_of_the_model(embedder):
    settings = ModelSettings(provider="static")
    (path,) = model_files(settings).values()
    there = load_embedder(ModelSettings(provider="static", name=str(path)))
    assert there.identity == embedder.identity


def test_a_damaged_file_is_not_used(embedder, tmp_path, monkeypatch):
    embedder.load()
    table = embedder._loaded
    folder = builtin_model()
    monkeypatch.setattr(static, "distil", lambda *_: table.vectors)
    here = type(folder)(
        tmp_path, folder.weights, folder.architecture, 384, 256, 512, pinned=folder.pinned
    )
    kept_vectors(here, table.tokenizer)
    (file,) = tmp_path.glob("*.npy")
    monkeypatch.setattr(static, "distil", lambda *_: pytest.fail("it is kept"))
    assert np.array_equal(kept_vectors(here, table.tokenizer), table.vectors)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    monkeypatch.setattr(static, "distil", lambda *_: table.vectors + 1)
    assert np.array_equal(kept_vectors(here, table.tokenizer), table.vectors + 1)


def test_distilling_centres_the_tokens_and_weighs_rare_ones_more(embedder, monkeypatch):
    embedder.load()
    tokenizer = embedder._loaded.tokenizer
    random = np.random.default_rng(1).normal(size=(tokenizer.get_vocab_size(), 8))
    monkeypatch.setattr(static, "_alone", lambda *_: random)
    made = distil(builtin_model(), tokenizer).astype(np.float64)
    centred = random - random.mean(axis=0)
    shares = np.linalg.norm(made, axis=1) / np.linalg.norm(centred, axis=1)
    words = [tokenizer.token_to_id(word) for word in ("the", "wine", "leather")]
    assert shares[words[0]] < shares[words[1]] < shares[words[2]] < 1
    assert not made[tokenizer.encode("").ids].any()


def test_another_dimension_than_the_models_is_refused():
    with pytest.raises(ConfigError, match="384"):
        _ = StaticEmbedder(ModelSettings(provider="static", dimension=3)).identity
