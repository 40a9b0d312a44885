"""What a model's name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.config.models import read_model
from lakewake.config.section import Section
from lakewake.config.services import KNOWN_SERVICES, known_model
from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder
from lakewake.embed.wire import WIRES
from lakewake.errors import ConfigError
from lakewake.model.choices import SERVICES


def read(model: object) -> ModelSettings:
    found = read_model(Section("test", {"model": model}), Path("/configured"))
    assert found is not None
    return found


def test_every_service_has_a_language_and_an_address():
    assert set(KNOWN_SERVICES) == set(SERVICES)
    assert set(WIRES) == {"", *SERVICES}


@pytest.mark.parametrize(
    ("name", "url", "dimension", "tokens", "key"),
    [
        (
            "openai:text-embedding-3-large",
            "https://api.openai.com/v1",
            3072,
            8191,
            "OPENAI_API_KEY",
        ),
        ("cohere:embed-english-light-v3.0", "https://api.cohere.com/v2", 384, 512, "CO_API_KEY"),
        ("voyage:voyage-law-2", "https://api.voyageai.com/v1", 1024, 16_000, "VOYAGE_API_KEY"),
        ("ollama:bge-m3", "http://localhost:11434/v1", 1024, 8192, ""),
        ("vllm:BAAI/bge-base-en-v1.5", "http://localhost:8000/v1", 768, 512, ""),
        ("tei:intfloat/multilingual-e5-large", "http://localhost:8080", 1024, 508, ""),
    ],
)
def test_a_name_stands_for_all_settings(name, url, dimension, tokens, key):
    found = read(name)
    assert found.provider == "http"
    assert found.name == name.partition(":")[2]
    assert (found.url, found.dimension, found.max_tokens) == (url, dimension, tokens)
    assert found.key_env == key
    assert HttpEmbedder(found).identity.dimension == dimension


def test_what_the_file_gives_wins():
    given = {"name": "openai:text-embedding-3-large", "dimension": 256, "key_env": "MY_KEY"}
    found = read(given)
    assert (found.dimension, found.key_env, found.max_tokens) == (256, "MY_KEY", 8191)


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("qwen3-embedding:0.6b", 1024),
        ("qwen3-embedding:4b", 2560),
        ("qwen3-embedding", 4096),
        ("Qwen/Qwen3-Embedding-8B", 4096),
        ("nomic-embed-text:v1.5", 768),
        ("someone/BGE-Small-EN-v1.5", 384),
        ("all-minilm:latest", 384),
    ],
)
def test_open_models_are_known_by_any_owner_and_tag(name, dimension):
    assert known_model("ollama", name).dimension == dimension


def test_an_unknown_model_needs_its_dimension():
    with pytest.raises(ConfigError, match="dimension") as caught:
        read("ollama:my-own-model")
    assert "dimension" in caught.value.hint
    assert read({"name": "ollama:my-own-model", "dimension": 12}).dimension == 12


def test_models_in_this_process_have_prefixes_too():
    found = read("sentence-transformers:intfloat/e5-small-v2")
    assert (found.provider, found.name) == ("sentence-transformers", "intfloat/e5-small-v2")
    assert (found.query_prefix, found.passage_prefix) == ("query: ", "passage: ")
    assert read("fastembed:BAAI/bge-small-en-v1.5").provider == "fastembed"


def test_static_stands_for_the_distilled_model():
    found = read("static")
    assert (found.provider, found.name) == ("static", "all-MiniLM-L6-v2")
    assert read({"name": "static", "batch": 5}).batch == 5


@pytest.mark.parametrize(
    "model",
    [
        "all-MiniLM-L6-v2",
        {"provider": "http", "name": "openai:odd", "url": "http://localhost/v1", "dimension": 3},
        {"provider": "sentence-transformers", "name": "tei:x"},
    ],
)
def test_what_was_written_before_means_the_same(model):
    name = model if isinstance(model, str) else model["name"]
    found = read(model)
    assert (found.name, found.service, found.passage_prefix) == (name, "", "")


def test_the_identity_of_a_service_is_as_it_was():
    written = ModelSettings(
        provider="http", name="text-embedding-3-small", dimension=1536, url="http://localhost/v1"
    )
    assert HttpEmbedder(written).identity.as_dict() == {
        "provider": "http",
        "name": "text-embedding-3-small",
        "dimension": 1536,
        "weights": "",
        "precision": "fp32",
        "max_tokens": 0,
        "pooling": "",
        "normalized": False,
    }


def test_what_changes_the_vectors_changes_the_identity():
    plain = read({"name": "vllm:intfloat/e5-small-v2", "passage_prefix": ""})
    known = read("vllm:intfloat/e5-small-v2")
    assert HttpEmbedder(plain).identity.pooling == ""
    assert HttpEmbedder(known).identity.pooling == "'passage: ' before each text"
    assert HttpEmbedder(read("cohere:embed-v4.0")).identity.pooling == "by input type"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"service": "openai"}, "service"),
        ({"provider": "http", "service": "azure"}, "azure"),
        ({"passage_prefix": "passage: "}, "passage_prefix"),
        ({"name": "openai:text-embedding-3-small", "concurrency": 0}, "concurrency"),
        ({"name": "openai:text-embedding-3-small", "tokens_per_minute": -1}, "tokens_per_minute"),
        ({"name": 3}, "name"),
    ],
)
def test_settings_that_do_not_fit_are_refused(model, said):
    with pytest.raises(ConfigError, match=said):
        read(model)
