"""The settings in lakewake.toml, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL
from lakewake.model.recipe import Chunking, TextField

#: Room for about six million vectors of 384 dimensions.
MAX_MB = 10_000
#: The share of an index's rows that one sync may remove without `allow_deletes`.
MAX_DELETE = 0.5


@dataclass(frozen=True)
class ModelSettings:
    """Which embedder, and how to reach it.

    Attributes:
        provider: `onnx`, `sentence-transformers`, `http`, `hashing` or `column`.
        name: the model's name, a folder with its files, or what the HTTP service calls it.
        precision: `fp32` or `int8` (onnx only).
        dimension: length of the vectors; needed if the provider does not report it (http, column).
        url: base address of an OpenAI-compatible service, up to and including `/v1`.
        key_env: the environment variable that holds its key; the key itself is never stored.
        max_tokens: the longest text the model reads whole; 0: the model's own limit.
        tokenizer: path of a `tokenizer.json` for chunking by tokens (http only).
    """

    provider: str = "onnx"
    name: str = "all-MiniLM-L6-v2"
    precision: str = "fp32"
    dimension: int = 0
    url: str = ""
    key_env: str = "OPENAI_API_KEY"
    max_tokens: int = 0
    tokenizer: str = ""
    batch: int = 0
    timeout: float = 30.0
    retries: int = 5


@dataclass(frozen=True)
class EmbeddingStoreSettings:
    """The vector cache: its folder, and how many megabytes it may hold."""

    folder: str
    max_mb: int = MAX_MB


@dataclass(frozen=True)
class RerankSettings:
    """Which model re-ranks the best rows, and how to reach it.

    Attributes:
        provider: `http` or `cross-encoder`.
        name: the model's name, or a folder with its files.
        url: base address of a service that answers `POST …/rerank`.
        key_env: the environment variable that holds its key; no key is sent if it is not set.
        rows: how many of the best rows are re-ranked.
    """

    provider: str = "http"
    name: str = ""
    url: str = ""
    key_env: str = "RERANK_API_KEY"
    rows: int = 30
    timeout: float = 10.0


@dataclass(frozen=True)
class IndexSettings:
    """One `[[index]]` of the configuration, paths made absolute.

    Attributes:
        weights: text field → what its scores are multiplied by in a search.
        rerank: None: hits are not re-ranked.
        embedding_store: the vector cache; None: it is off, or there is nothing to embed.
        freshness: how many seconds the index may be behind its table; None: no limit.
        max_delete: the share of its rows that one sync may remove without `allow_deletes`.
        recall: the share of the ten nearest chunks that a vector search finds; 1: it is exact.
        keep: how long an index in the lake can be searched as it was.
        fallback: `scan`: search the table if there is no index or it is too old; "": do not.
    """

    name: str
    table: str
    store: str
    fields: tuple[TextField, ...] = ()
    vector: str | None = None
    payload: tuple[str, ...] = ()
    chunking: Chunking = field(default_factory=Chunking)
    model: ModelSettings = ModelSettings()
    metric: str = "cosine"
    embedding_store: EmbeddingStoreSettings | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    rerank: RerankSettings | None = None
    freshness: float | None = None
    max_delete: float = MAX_DELETE
    recall: float = RECALL
    keep: Keep = field(default_factory=Keep)
    fallback: str = ""


@dataclass(frozen=True)
class RecommendSettings:
    """Which chat model phrases answers, and its limits. Without `url` there is no model.

    Attributes:
        url: base address of an OpenAI-compatible service, up to and including `/v1`.
        name: what that service calls the model.
        key_env: the environment variable that holds its key; the key itself is never stored.
        instructions: the first message to the model; '' for ours. Safety rules follow either way.
        template: the message with `{question}` and `{rows}` in it; '' for ours.
        max_rows: how many of the rows found the model is shown.
        timeout: seconds for the whole answer, including retries.
        max_tokens: how long an answer may be; 0: not sent, the service decides.
        temperature: None: not sent, the service decides.
        max_prompt_chars: how long all messages may be together; rows are cut evenly to fit.
    """

    url: str = ""
    name: str = ""
    key_env: str = "OPENAI_API_KEY"
    instructions: str = ""
    template: str = ""
    max_rows: int = 8
    timeout: float = 30.0
    max_tokens: int = 500
    temperature: float | None = None
    max_prompt_chars: int = 12_000


@dataclass(frozen=True)
class ServeSettings:
    """How `lakewake serve` listens, and what one request may cost.

    Attributes:
        keys: the file of API keys; None: no key is required.
        allowed_hosts: names besides `host` that requests may call the server by.
        max_query_chars: the length of a text to search for, and of a filter written as text.
        concurrent: searches that run at the same time; more wait a moment, then get 429.
        timeout: seconds that one request may take.
    """

    host: str = "127.0.0.1"
    port: int = 8377
    keys: str | None = None
    max_k: int = 100
    max_query_chars: int = 2_000
    max_body_bytes: int = 1_000_000
    concurrent: int = 8
    timeout: float = 30.0
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """The whole configuration.

    Attributes:
        untested_schemes: tables may be on file systems that were never tested.
    """

    path: Path
    indexes: tuple[IndexSettings, ...]
    spark: Mapping[str, str] = field(default_factory=dict)
    recommend: RecommendSettings = RecommendSettings()
    serve: ServeSettings = ServeSettings()
    untested_schemes: bool = False

    @property
    def spark_tables(self) -> tuple[str, ...]:
        """The tables that Spark reaches: those that are followed, and the indexes in the lake."""
        tables = tuple(index.table for index in self.indexes)
        stores = tuple(index.store.partition("://") for index in self.indexes)
        return tables + tuple(f"s3a://{path}" for scheme, _, path in stores if scheme == "hudi+s3")
