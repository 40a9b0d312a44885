"""How each service is asked for vectors, and how its answer is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes of UTF-8 that are counted as one token, if a service has not counted them yet.
BYTES_PER_TOKEN = 3

Body = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes:
        question: the texts are questions, not texts of a table.
        dimension: the length to shorten the vectors to; 0: the model's own.
    """

    model: str
    texts: Sequence[str]
    question: bool
    dimension: int


@dataclass(frozen=True)
class Wire:
    """The language of one service.

    Attributes:
        path: what follows its base address.
        body: the request.
        data: puts an answer into OpenAI's form. It accepts anything and never raises.
        typed: a request names the kind of its texts, which changes the vectors.
    """

    path: str
    body: Callable[[Asked], Body]
    data: Callable[[object], object]
    typed: bool = False


def _openai(asked: Asked) -> Body:
    shortened = {"dimensions": asked.dimension} if asked.dimension else {}
    return {"model": asked.model, "input": list(asked.texts), **shortened}


def _cohere(asked: Asked) -> Body:
    shortened = {"output_dimension": asked.dimension} if asked.dimension else {}
    return {
        "model": asked.model,
        "texts": list(asked.texts),
        "input_type": "search_query" if asked.question else "search_document",
        "embedding_types": ["float"],
        **shortened,
    }


def _voyage(asked: Asked) -> Body:
    shortened = {"output_dimension": asked.dimension} if asked.dimension else {}
    kind = "query" if asked.question else "document"
    return {
        "model": asked.model,
        "input": list(asked.texts),
        "input_type": kind,
        **shortened,
    }


def _tei(asked: Asked) -> Body:
    return {"inputs": list(asked.texts), "truncate": True}


def _numbered(vectors: object) -> object:
    if not isinstance(vectors, list):
        return None
    return {"data": [{"embedding": vector} for vector in vectors]}


def _of_cohere(body: object) -> object:
    found = body.get("embeddings") if isinstance(body, dict) else None
    return _numbered(found.get("float") if isinstance(found, dict) else None)


def _as_it_is(body: object) -> object:
    return body


OPENAI = Wire("embeddings", _openai, _as_it_is)
WIRES: Mapping[str, Wire] = {
    "": OPENAI,
    "openai": OPENAI,
    "ollama": OPENAI,
    "vllm": OPENAI,
    "cohere": Wire("embed", _cohere, _of_cohere, typed=True),
    "voyage": Wire("embeddings", _voyage, _as_it_is, typed=True),
    "tei": Wire("embed", _tei, _numbered),
}


def tokens_of(body: object) -> int | None:
    """The tokens that the service counted, if it reports them."""
    if not isinstance(body, dict):
        return None
    usage, meta = body.get("usage"), body.get("meta")
    billed = meta.get("billed_units") if isinstance(meta, dict) else None
    counted = ((usage, "total_tokens"), (usage, "prompt_tokens"), (billed, "input_tokens"))
    for counts, name in counted:
        count = counts.get(name) if isinstance(counts, dict) else None
        if isinstance(count, int | float) and 0 <= count < math.inf:
            return int(count)
    return None


def estimated(text: str) -> int:
    """About how many tokens a text has, rather too many."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1
