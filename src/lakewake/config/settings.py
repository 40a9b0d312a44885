"""The settings in lakewake.toml, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakewake.model.ann import Ann
from lakewake.model.canaries import CanarySettings
from lakewake.model.fusion import USUAL, Fusion
from lakewake.model.hot import AUTO
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
        provider: one of `PROVIDERS`, or `column`.
        name: the model's name, a folder with its files, or what the HTTP service calls it.
        precision: `fp32`, `fp16` or `int8` (onnx only).
        dimension: length of the vectors; needed if the provider does not report it (http, column).
        url: base address of an OpenAI-compatible service, up to and including `/v1`.
        key_env: the environment variable that holds its key; the key itself is never stored.
        max_tokens: the longest text the model reads whole; 0: the model's own limit.
        tokenizer: path of a `tokenizer.json` for chunking by tokens (http only).
        service: whose language provider `http` speaks, one of `SERVICES`; '': OpenAI's.
        query_prefix: what is put before a question.
        passage_prefix: what is put before a text of the table.
        request_tokens: most tokens in one request, estimated; 0: no limit.
        concurrency: most requests in flight; fewer while the service refuses some.
        tokens_per_minute: most tokens that one process sends in a minute; 0: no limit.
        device: where onnx models are computed: `auto`, `cpu`, `cuda` or a card such as `cuda:1`.
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
    device: str = "auto"
    service: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    request_tokens: int = 0
    concurrency: int = 8
    tokens_per_minute: int = 0


@dataclass(frozen=True)
class EmbeddingStoreSettings:
    """The vector cache: its folder, and how many megabytes it may hold."""

    folder: str
    max_mb: int = MAX_MB


@dataclass(frozen=True)
class RerankSettings:
    """Which model re-ranks the best rows, and how to reach it.

    Attributes:
        provider: `http`, `onnx` or `cross-encoder`.
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
        ann: which approximate index it gets, and from what size on.
        keep: how long an index in the lake can be searched as it was.
        hot: how much memory a process that searches often may hold the index in: `auto`, `off` or
            a size.
        fallback: `scan`: search the table if there is no index or it is too old; "": do not.
        languages: text field → its language; those of other fields are recognised by their texts.
        hybrid: how a hybrid search merges its two rankings.
        canaries: questions that are asked after each sync; None: there are none.
        where: the condition that selects the rows of the index; "": it holds all of them.
        stored_as: the name that it has in its store, if it was renamed since; "": its own.
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
    ann: Ann = field(default_factory=Ann)
    keep: Keep = field(default_factory=Keep)
    fallback: str = ""
    hot: str = AUTO
    languages: Mapping[str, str] = field(default_factory=dict)
    hybrid: Fusion = USUAL
    canaries: CanarySettings | None = None
    stored_as: str = ""
    where: str = ""

    @property
    def stored_name(self) -> str:
        """The name of the index in its store, and of its history."""
        return self.stored_as or self.name


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
        context_tokens: about how many tokens of the rows' matching chunks the model is shown.
        min_score: rows with a lower score are left out, unless a caller asks otherwise; None: none.
        rerank: re-rank the rows if a model for that is configured, unless a caller asks otherwise.
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
    context_tokens: int = 2_000
    min_score: float | None = None
    rerank: bool = True


@dataclass(frozen=True)
class TokenSettings:
    """Which tokens a server accepts, and the rows that their callers see.

    Attributes:
        jwks: the file or address of the keys that tokens are signed with.
        issuer, audience: what `iss` and `aud` in a token must be.
        where: a filter in which `:name` stands for the claim `name` of the token.
        algorithms: how a token may be signed.
        leeway: how many seconds the clocks may differ.
    """

    jwks: str
    issuer: str
    audience: str
    where: str
    algorithms: tuple[str, ...] = ("RS256",)
    leeway: float = 30.0


@dataclass(frozen=True)
class ServeSettings:
    """How `lakewake serve` listens, and what one request may cost.

    Attributes:
        keys: the file of API keys; None: no key is required.
        allowed_hosts: names besides `host` that requests may call the server by.
        max_query_chars: the length of a text to search for, and of a filter written as text.
        concurrent: searches that run at the same time; more wait a moment, then get 429.
        timeout: seconds that one request may take.
        rate: requests a second of one key or token; 0: any number.
        tokens: which tokens are accepted besides keys; None: none.
        mcp: answer the Model Context Protocol at /mcp.
        audit: the file that a line is appended to for each question; None: the log.
        workers: processes that answer requests.
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
    rate: float = 0.0
    audit: str | None = None
    tokens: TokenSettings | None = None
    mcp: bool = False
    workers: int = 1

    @property
    def has_callers(self) -> bool:
        """Whether a request needs a key or a token."""
        return bool(self.keys or self.tokens)


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
