"""Models by the name people know: `openai:text-embedding-3-small` stands for all of its settings.

A setting in the file wins over what is known here. A model that is not known needs its `dimension`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakewake.model.choices import SERVICES

#: Characters per token, to leave room for what is put before a text.
CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True)
class Known:
    """What is known of a model.

    Attributes:
        tokens: the longest text that it reads whole.
        query: what is put before a question.
        passage: what is put before a text of the table.
    """

    dimension: int
    tokens: int = 0
    query: str = ""
    passage: str = ""


@dataclass(frozen=True)
class Service:
    """What is known of a service.

    Attributes:
        key_env: '' if it usually needs no key.
        batch: most texts in one request.
        request_tokens: most tokens in one request; 0: no limit is known.
    """

    url: str
    key_env: str = ""
    batch: int = 64
    request_tokens: int = 0
    models: Mapping[str, Known] = field(default_factory=dict)


_PASSAGES = "Represent this sentence for searching relevant passages: "
_GEMMA = Known(768, 2_048, "task: search result | query: ", "title: none | text: ")
_QWEN = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
_NOMIC = Known(768, 2_048, "search_query: ", "search_document: ")

#: Models that anybody may run, by a pattern of their names without owner and tag.
OPEN_MODELS: tuple[tuple[str, Known], ...] = (
    (r"all-minilm(-l6-v2|-l12-v2)?", Known(384, 256)),
    (r"all-mpnet-base-v2", Known(768, 384)),
    (r"nomic-embed-text(-v1(\.5)?)?", _NOMIC),
    (r"mxbai-embed-large(-v1)?", Known(1_024, 512, _PASSAGES)),
    (r"bge-m3", Known(1_024, 8_192)),
    (r"bge-small-en-v1\.5", Known(384, 512, _PASSAGES)),
    (r"bge-base-en-v1\.5", Known(768, 512, _PASSAGES)),
    (r"bge-large-en-v1\.5", Known(1_024, 512, _PASSAGES)),
    (r"(multilingual-)?e5-small(-v2)?", Known(384, 512, "query: ", "passage: ")),
    (r"(multilingual-)?e5-base(-v2)?", Known(768, 512, "query: ", "passage: ")),
    (r"(multilingual-)?e5-large(-v2)?", Known(1_024, 512, "query: ", "passage: ")),
    (r"snowflake-arctic-embed(-l)?", Known(1_024, 512, _PASSAGES)),
    (r"snowflake-arctic-embed-m", Known(768, 512, _PASSAGES)),
    (r"snowflake-arctic-embed2|snowflake-arctic-embed-l-v2\.0", Known(1_024, 8_192, "query: ")),
    (r"embeddinggemma(-300m)?", _GEMMA),
    (r"qwen3-embedding-0\.6b", Known(1_024, 8_192, _QWEN)),
    (r"qwen3-embedding-4b", Known(2_560, 8_192, _QWEN)),
    (r"qwen3-embedding(-8b)?", Known(4_096, 8_192, _QWEN)),
)

KNOWN_SERVICES: Mapping[str, Service] = {
    "openai": Service(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        batch=512,
        request_tokens=300_000,
        models={
            "text-embedding-3-small": Known(1_536, 8_191),
            "text-embedding-3-large": Known(3_072, 8_191),
            "text-embedding-ada-002": Known(1_536, 8_191),
        },
    ),
    "cohere": Service(
        "https://api.cohere.com/v2",
        "CO_API_KEY",
        batch=96,
        models={
            "embed-v4.0": Known(1_536, 128_000),
            "embed-english-v3.0": Known(1_024, 512),
            "embed-multilingual-v3.0": Known(1_024, 512),
            "embed-english-light-v3.0": Known(384, 512),
            "embed-multilingual-light-v3.0": Known(384, 512),
        },
    ),
    "voyage": Service(
        "https://api.voyageai.com/v1",
        "VOYAGE_API_KEY",
        batch=128,
        request_tokens=120_000,
        models={
            "voyage-3.5": Known(1_024, 32_000),
            "voyage-3.5-lite": Known(1_024, 32_000),
            "voyage-3-large": Known(1_024, 32_000),
            "voyage-3": Known(1_024, 32_000),
            "voyage-3-lite": Known(512, 32_000),
            "voyage-code-3": Known(1_024, 32_000),
            "voyage-finance-2": Known(1_024, 32_000),
            "voyage-law-2": Known(1_024, 16_000),
        },
    ),
    "ollama": Service("http://localhost:11434/v1"),
    "vllm": Service("http://localhost:8000/v1", batch=256),
    "tei": Service("http://localhost:8080", batch=32),
}
#: Prefixes of a model's name that stand for a provider in this process.
STATIC = "static"
LOCAL = ("sentence-transformers", "fastembed")


def by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model's table, with those that its name stands for."""
    if values.get("name") == STATIC and not {"provider", "service"} & values.keys():
        rest = {key: value for key, value in values.items() if key != "name"}
        return {"provider": STATIC, **rest}
    prefix, colon, name = str(values.get("name", "")).partition(":")
    if not colon or not name or "provider" in values or "service" in values:
        return dict(values)
    if prefix in LOCAL:
        known = known_model("", name)
        return {"provider": prefix, **_prefixes(known), **values, "name": name}
    if prefix not in SERVICES:
        return dict(values)
    return {**_of_service(prefix, name), **values, "name": name}


def known_model(service: str, name: str) -> Known | None:
    """What is known of the model, or None."""
    found = KNOWN_SERVICES[service].models.get(name) if service else None
    if found:
        return found
    # `intfloat/e5-small-v2`, `nomic-embed-text:latest`, `qwen3-embedding:0.6b`
    bare, _, tag = name.rpartition("/")[2].lower().partition(":")
    full = f"{bare}-{tag}" if re.fullmatch(r"\d[\d.]*b", tag) else bare
    return next((known for pattern, known in OPEN_MODELS if re.fullmatch(pattern, full)), None)


def _of_service(service: str, name: str) -> dict[str, Any]:
    there, known = KNOWN_SERVICES[service], known_model(service, name)
    found: dict[str, Any] = {
        "provider": "http",
        "service": service,
        "url": there.url,
        "key_env": there.key_env,
        "batch": there.batch,
        "request_tokens": there.request_tokens,
        **_prefixes(known),
    }
    if known:
        room = len(known.passage) // CHARACTERS_PER_TOKEN + 1 if known.passage else 0
        found |= {"dimension": known.dimension, "max_tokens": known.tokens - room}
    return found


def _prefixes(known: Known | None) -> dict[str, str]:
    """Services with an input type of their own need none."""
    if known is None:
        return {}
    return {"query_prefix": known.query, "passage_prefix": known.passage}
