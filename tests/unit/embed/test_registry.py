"""Which embedder the settings select, and the one that represents a vector column."""

from __future__ import annotations

import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.registry import PROVIDERS, load_embedder
from lakewake.errors import ConfigError

ANY = {"dimension": 384, "url": "http://localhost/v1"}


@pytest.mark.parametrize("provider", ["onnx", "http", "hashing"])
def test_a_provider_is_found_by_its_name(provider):
    embedder = load_embedder(ModelSettings(provider=provider, **ANY))
    assert embedder.identity.provider == provider
    assert embedder.identity.dimension == 384


def test_an_unknown_provider_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match="cohere") as caught:
        load_embedder(ModelSettings(provider="cohere"))
    assert all(provider in caught.value.hint for provider in PROVIDERS)


def test_vectors_of_a_column_have_its_name_and_dimension():
    identity = load_embedder(ModelSettings(dimension=3), column="embedding").identity
    assert (identity.provider, identity.name, identity.dimension) == ("column", "embedding", 3)
    assert not identity.normalized


def test_a_column_without_a_dimension_is_refused():
    with pytest.raises(ConfigError, match="embedding") as caught:
        load_embedder(ModelSettings(), column="embedding")
    assert "dimension" in caught.value.hint


def test_a_column_provider_without_a_column_is_refused():
    with pytest.raises(ConfigError) as caught:
        load_embedder(ModelSettings(provider="column", dimension=3))
    assert "vector" in caught.value.hint


def test_a_column_does_not_embed_text():
    embedder = load_embedder(ModelSettings(dimension=3), column="embedding")
    with pytest.raises(ConfigError, match="search by vector"):
        embedder.embed(["red wine"])


def test_a_column_embeds_no_texts_into_no_rows():
    embedder = load_embedder(ModelSettings(dimension=3), column="embedding")
    assert embedder.embed([]).shape == (0, 3)
    assert embedder.tokenizer is None
