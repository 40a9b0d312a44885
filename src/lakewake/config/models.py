"""The models in lakewake.toml: those that embed, and those that re-rank."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

from lakewake.config.section import Section, kind_of, locate
from lakewake.config.services import by_name
from lakewake.config.settings import ModelSettings, RerankSettings
from lakewake.model.choices import DEVICE, PRECISIONS, PROVIDERS, RERANKERS, SERVICES

_EXAMPLES = {
    "name": '"text-embedding-3-small"',
    "url": '"http://localhost:8080/v1"',
    "dimension": "384",
}
_RERANK_EXAMPLES = {"name": '"bge-reranker-base"', "url": '"http://localhost:8080/v1"'}

#: Providers that put something before a text.
PREFIXED = ("http", "sentence-transformers", "fastembed")
RERANK_KINDS = {f.name: type(f.default) for f in fields(RerankSettings)}
MODEL_KINDS = {f.name: type(f.default) for f in fields(ModelSettings)}


def read_text_model(section: Section, default: ModelSettings, folder: Path) -> ModelSettings:
    """The model that embeds the texts: the index's own `model` if it has one, else the default."""
    if "dimension" in section.values:
        raise section.fail(
            "`dimension` works only with `vector`",
            "remove it, or put it into the model's own table if the model does not report it",
        )
    return read_model(section, folder) or default


def read_vector_model(section: Section, vector: str, folder: Path) -> ModelSettings:
    """The model that made the column's vectors: the index's own `model`, or unknown."""
    made_by = read_model(section, folder) or ModelSettings(provider="column", name=vector)
    dimension = section.count("dimension", made_by.dimension, least=1)
    if not dimension and made_by.provider == "column":
        raise section.fail(
            "`vector` needs `dimension`, the length of its vectors", "dimension = 384"
        )
    return replace(made_by, dimension=dimension)


def read_model(section: Section, folder: Path) -> ModelSettings | None:
    """The model that a section names, or None if it names none."""
    value = section.values.get("model")
    if value is None:
        return None
    if isinstance(value, str):
        value = {"name": section.get("model", str)}
    if not isinstance(value, dict):
        raise section.fail(
            f"`model` is {kind_of(value)}, expected a name or a table", 'model = "all-MiniLM-L6-v2"'
        )
    inner = Section(f"{section.where}: model", value)
    inner.refuse_secrets()
    inner.refuse_unknown(MODEL_KINDS)
    # Their kinds are checked first: a name that is not a string stands for nothing.
    for key, kind in MODEL_KINDS.items():
        inner.get(key, kind)
    inner = Section(inner.where, by_name(value))
    found = ModelSettings(**{k: inner.get(k, MODEL_KINDS[k]) for k in inner.values})
    _check_model(inner, found)
    tokenizer = locate(folder, found.tokenizer) if found.tokenizer else ""
    return replace(found, name=_model_name(folder, found.name), tokenizer=tokenizer)


def _check_model(section: Section, model: ModelSettings) -> None:
    section.choice("provider", PROVIDERS, "onnx")
    section.choice("precision", PRECISIONS, "fp32")
    for key in ("dimension", "max_tokens", "batch", "retries", "request_tokens"):
        section.count(key, 0)
    section.count("tokens_per_minute", 0)
    section.count("concurrency", 1, least=1)
    _check_prefixes(section, model)
    if model.timeout <= 0:
        raise section.fail(
            f"`timeout` is {model.timeout}, expected more than 0 seconds", "timeout = 30"
        )
    if model.precision != "fp32" and model.provider != "onnx":
        raise section.fail(
            f'`precision` {model.precision!r} works only with provider "onnx"', "remove `precision`"
        )
    if not re.fullmatch(DEVICE, model.device):
        raise section.fail(f"`device` cannot be {model.device!r}", 'device = "cuda:1"')
    if model.device != "auto" and model.provider != "onnx":
        raise section.fail('`device` works only with provider "onnx"', "remove `device`")
    if model.provider == "http":
        for key in ("name", "url", "dimension"):
            if not section.values.get(key):
                raise section.fail(
                    f'provider "http" needs `{key}`', f"add a line such as {key} = {_EXAMPLES[key]}"
                )


def _check_prefixes(section: Section, model: ModelSettings) -> None:
    if model.service and model.provider != "http":
        raise section.fail('`service` works only with provider "http"', "remove `service`")
    if model.service not in ("", *SERVICES):
        raise section.fail(
            f"there is no service {model.service!r}", f"use one of {', '.join(SERVICES)}"
        )
    for key in ("query_prefix", "passage_prefix"):
        if getattr(model, key) and model.provider not in PREFIXED:
            raise section.fail(
                f'`{key}` does not work with provider "{model.provider}"', f"remove `{key}`"
            )


def _model_name(folder: Path, name: str) -> str:
    """A name stays; a folder written as a path is made absolute."""
    return locate(folder, name) if name.startswith((".", "/", "~")) else name


def read_rerank(section: Section, folder: Path) -> RerankSettings | None:
    """The model that re-ranks hits, or None if there is none."""
    value = section.values.get("rerank")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise section.fail(
            f"`rerank` is {kind_of(value)}, expected a table",
            'rerank = {url = "http://localhost:8080/v1", name = "bge-reranker-base"}',
        )
    inner = Section(f"{section.where}: rerank", value)
    inner.refuse_secrets()
    inner.refuse_unknown(RERANK_KINDS)
    inner.choice("provider", RERANKERS, "http")
    inner.count("rows", 1, least=1)
    found = RerankSettings(**{k: inner.get(k, RERANK_KINDS[k]) for k in value})
    if found.timeout <= 0:
        raise inner.fail(
            f"`timeout` is {found.timeout}, expected more than 0 seconds", "timeout = 10"
        )
    needed = "url" if found.provider == "http" else "name"
    if not value.get(needed):
        raise inner.fail(
            f'provider "{found.provider}" needs `{needed}`',
            f"add a line such as {needed} = {_RERANK_EXAMPLES[needed]}",
        )
    if found.provider == "http" and not found.url.startswith(("http://", "https://")):
        raise inner.fail("`url` is not an address", 'url = "http://localhost:8080"')
    return replace(found, name=_model_name(folder, found.name))
