"""The fastembed provider, with a double of its model: its files come from a hub."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import for_questions
from lakewake.embed.fast import FastEmbedder
from lakewake.errors import ConfigError, EmbedError, SetupError, TextRefused


class Model:
    embedding_size = 2

    def __init__(self, name):
        if name == "absent":
            raise ValueError("no such model")
        self.received = []

    def embed(self, texts, batch_size):
        self.received += texts
        for text in texts:
            if "break" in text:
                raise RuntimeError("out of memory")
            yield np.array([len(text), batch_size])


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", SimpleNamespace(TextEmbedding=Model))


def make(**settings) -> FastEmbedder:
    return FastEmbedder(ModelSettings(provider="fastembed", **{"name": "tiny", **settings}))


def test_texts_and_questions_get_their_prefixes():
    embedder = make(query_prefix="query: ", passage_prefix="passage: ", batch=7)
    assert embedder.embed(["wine"]).tolist() == [[13, 7]]
    assert for_questions(embedder).embed(["wine"]).tolist() == [[11, 7]]
    assert embedder.identity.pooling == "'passage: ' before each text"
    assert embedder.embed([]).shape == (0, 2)


def test_what_cannot_be_embedded_is_an_error_with_an_action():
    with pytest.raises(TextRefused):
        make().embed(["\udcff"])
    with pytest.raises(EmbedError, match="out of memory"):
        make().embed(["break"])
    with pytest.raises(ConfigError, match="2 numbers"):
        _ = make(dimension=3).identity
    with pytest.raises(SetupError, match="absent"):
        make(name="absent").load()


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(SetupError) as caught:
        make().load()
    assert caught.value.hint == "pip install 'lakewake[fastembed]'"
