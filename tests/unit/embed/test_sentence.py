"""The sentence-transformers provider. Tests that need torch run only if the extra is installed."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.sentence import SentenceEmbedder
from lakewake.embed.weights import PINNED, minilm_folder
from lakewake.errors import ConfigError, SetupError
from support import TESTS

REFERENCE = json.loads((TESTS / "data" / "minilm_reference.json").read_text())
INSTALLED = importlib.util.find_spec("sentence_transformers") is not None
needs_extra = pytest.mark.skipif(
    not INSTALLED, reason="the extra lakewake[sentence-transformers], with torch, is not installed"
)


def make(**settings: object) -> SentenceEmbedder:
    settings.setdefault("name", str(minilm_folder()))
    return SentenceEmbedder(ModelSettings(provider="sentence-transformers", **settings))


@pytest.mark.skipif(INSTALLED, reason="the extra lakewake[sentence-transformers] is installed")
def test_without_the_extra_the_error_says_how_to_install_it():
    with pytest.raises(SetupError) as caught:
        make().embed(["text"])
    assert caught.value.hint == "pip install 'lakewake[sentence-transformers]'"


def test_int8_is_refused():
    with pytest.raises(ConfigError, match="int8"):
        make(precision="int8")


@needs_extra
def test_vectors_are_the_stored_ones():
    vectors = make().embed(REFERENCE["texts"])
    assert np.abs(vectors - np.array(REFERENCE["vectors"])).max() < 1e-4


@needs_extra
def test_the_identity_describes_what_the_library_loaded():
    identity = make().identity
    assert identity.as_dict() == {
        "provider": "sentence-transformers",
        "name": "all-MiniLM-L6-v2",
        "dimension": 384,
        "weights": PINNED["model.safetensors"],
        "precision": "fp32",
        "max_tokens": 256,
        "pooling": "mean",
        "normalized": True,
    }


@needs_extra
def test_the_tokenizer_is_the_models_own():
    assert json.loads(make().tokenizer)["model"]["vocab"]["wine"] == 4511


@needs_extra
def test_another_dimension_than_the_models_is_refused():
    with pytest.raises(ConfigError, match="384"):
        _ = make(dimension=3).identity


@needs_extra
def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(SetupError, match="nothing-here"):
        _ = make(name=str(tmp_path / "nothing-here")).identity
