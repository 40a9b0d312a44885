"""The embedder that needs no model."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import hashing
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, TextRefused


def make(dimension: int = 0) -> HashingEmbedder:
    return HashingEmbedder(ModelSettings(provider="hashing", dimension=dimension))


def test_vectors_are_the_same_in_every_process():
    program = (
        "from lakewake.embed.hashing import HashingEmbedder\n"
        "from lakewake.config.settings import ModelSettings\n"
        "print(HashingEmbedder(ModelSettings()).embed(['red wine 🍷', '']).tobytes().hex())\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == make().embed(["red wine 🍷", ""]).tobytes().hex(), done.stderr


def test_every_text_received_is_counted():
    embedder = make()
    embedder.embed(["a", "b"])
    embedder.embed([])
    embedder.embed(["a"])
    assert embedder.received == ["a", "b", "a"]


@pytest.mark.parametrize(("asked", "made"), [(0, 64), (1, 1), (384, 384)])
def test_vectors_have_the_dimension_of_the_settings(asked, made):
    embedder = make(asked)
    vectors = embedder.embed(["red", "", "🍷", "\x00", "red red red"])
    assert embedder.identity.dimension == made
    assert vectors.shape == (5, made)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)


def test_texts_that_share_words_are_nearer_than_others():
    red, same, other = make().embed(
        ["a smoky red wine with leather", "red wine, smoky, with leather", "quarterly tax report"]
    )
    assert red @ same > 0.8 > red @ other


def test_a_word_and_its_plural_are_near():
    one, many, other = make(256).embed(["vineyard", "vineyards", "parking"])
    assert one @ many > 0.5 > one @ other


def test_the_same_words_in_another_order_have_another_vector():
    one, other = make(1024).embed(["dog bites man", "man bites dog"])
    assert not np.array_equal(one, other)


def test_more_texts_than_a_window_come_back_in_order(monkeypatch):
    texts = [f"text {n}" for n in range(10)]
    whole = make().embed(texts)
    monkeypatch.setattr(hashing, "_WINDOW", 3)
    assert np.array_equal(make().embed(texts), whole)


def test_no_texts_make_no_rows():
    assert make().embed([]).shape == (0, 64)


def test_texts_that_are_not_unicode_are_refused_with_their_positions():
    embedder = make()
    with pytest.raises(TextRefused) as caught:
        embedder.embed(["fine", "\ud800"])
    assert caught.value.positions == (1,)
    assert embedder.received == []


def test_a_negative_dimension_is_refused():
    with pytest.raises(ConfigError, match="-1"):
        make(-1)
