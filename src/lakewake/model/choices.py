"""The names that a user may choose from, each list once.

It imports nothing heavy, since every `--help` reads it. What implements a name is in a registry of
its stage (`embed.registry`, `store.registry`, `rerank`).
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Literal, TypeVar

from lakewake.errors import ConfigError

Choice = TypeVar("Choice", bound=Enum)


class Mode(StrEnum):
    """What a search goes by: meaning, words, or both."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


#: The same for a type checker and for JSON schemas.
ModeName = Literal["vector", "keyword", "hybrid"]
MODES = tuple(mode.value for mode in Mode)


#: What embeds texts, and how precisely the built-in runtime computes.
PROVIDERS = ("onnx", "sentence-transformers", "fastembed", "http", "static", "hashing")
#: The services whose language provider `http` speaks; any other is taken for OpenAI's.
SERVICES = ("openai", "ollama", "vllm", "cohere", "voyage", "tei")
PRECISIONS = ("fp32", "fp16", "int8")
#: Where the built-in runtime computes, as a pattern.
DEVICE = r"auto|cpu|cuda(:\d{1,3})?"
#: What ranks the rows of a search a second time.
RERANKERS = ("http", "onnx", "cross-encoder")
#: How vectors are compared: their angle, their dot product, or their distance.
METRICS = ("cosine", "dot", "l2")
#: What a search may do if there is no index, or it is too old.
FALLBACKS = ("scan",)
#: Schemes of a store's address: in a folder of this machine, or elsewhere.
LOCAL_STORES = ("lance", "hudi", "qdrant+local")
REMOTE_STORES = ("lance+s3", "hudi+s3", "qdrant", "qdrants", "qdrant+https")
#: What an API key allows, each scope more than the one before.
SCOPES = ("read", "admin")


def one_of(kind: type[Choice], what: str, given: str) -> Choice:
    """The member of `kind` with that value.

    Raises:
        ConfigError: there is none.
    """
    try:
        return kind(given)
    except ValueError:
        valid = ", ".join(c.value for c in kind)
        raise ConfigError(f"{what} cannot be {given!r}", hint=f"use one of {valid}") from None
