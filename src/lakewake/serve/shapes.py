"""The bodies of HTTP requests and answers, as types. OpenAPI is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from lakewake.model.choices import ModeName
from lakewake.search.run import MAX_K

#: The most keys of a body. No valid body has as many.
MOST_KEYS = 50
Mode = ModeName
Instant = Annotated[str, Field(description="The table commit that the answer is based on.")]
Filter = Annotated[
    str | dict[str, Any] | None,
    Field(
        description="A filter on payload columns: `country = 'Italy' AND price < 40`, or "
        '`{"country": "Italy", "price": {"<": 40}}`.',
        examples=[{"country": "Italy", "price": {"<": 40}}],
    ),
]


class Asked(BaseModel):
    """A body. Unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _of_few_keys(cls, values: Any) -> Any:
        # Each unknown key is a separate error, and a hundred thousand would stall the server.
        if isinstance(values, dict) and len(values) > MOST_KEYS:
            raise ValueError(f"has {len(values):,} keys")
        return values


class RowRef(Asked):
    """A row of the table."""

    key: str
    partition: str = ""


class SearchBody(Asked):
    """A search by `text`, by `vector`, or for rows `like` a given one."""

    text: str | None = None
    vector: list[FiniteFloat] | None = Field(None, fail_fast=True)
    like: RowRef | None = None
    k: int = Field(5, ge=1, le=MAX_K, description="How many rows.")
    offset: int = Field(0, ge=0, le=MAX_K, description="How many of the best rows to skip.")
    where: Filter = None
    mode: Mode = "vector"
    min_score: FiniteFloat | None = None
    rerank: bool | None = None
    exact: bool = False


class RecommendBody(Asked):
    """A question, answered from the rows that fit it best."""

    query: str
    k: int = Field(5, ge=1, le=MAX_K)
    where: Filter = None
    mode: Mode = "vector"
    stream: bool = Field(False, description="Send server-sent events: `piece`s, then the `answer`.")


class RowId(BaseModel):
    """The identity of a row in Hudi."""

    key: str
    partition: str


class Hit(BaseModel):
    """One row that was found, with its best chunk."""

    key: str
    partition: str
    score: float
    similarity: float | None
    text: str | None
    field: str
    chunk: int
    highlight: Annotated[
        tuple[int, int] | None,
        Field(description="Start and end of the best sentence in `text`, in code points."),
    ] = None
    payload: dict[str, Any]


class SearchAnswer(BaseModel):
    """Rows, best first."""

    index: str
    instant: Instant
    mode: Mode
    offset: int = 0
    hits: list[Hit]
    more: bool


class RecommendAnswer(BaseModel):
    """A message based on the rows in `used`."""

    query: str
    message: str
    answered_by: Literal["model", "extract", "none"]
    used: list[RowId]
    hits: list[Hit]
    instant: Instant
    reason: str | None = None


class Following(BaseModel):
    """The process that keeps the indexes up to date, with `--watch`."""

    running: bool
    restarts: int
    last_words: list[str]


class IndexSummary(BaseModel):
    """A summary of one index."""

    name: str
    instant: Instant
    rows: int
    chunks: int
    payload: list[str]
    modes: list[Mode]
    fresh: bool


class Indexes(BaseModel):
    """All indexes of the configuration."""

    indexes: list[IndexSummary]
    watch: Following | None = None


class Status(BaseModel):
    """How far an index is behind its table, as `lakewake status --json` reports it."""

    model_config = ConfigDict(extra="allow")

    index: str
    built: bool
    in_step: bool
    table: str
    store: str
    instant: Instant
    newest_instant: str
    lag_commits: int
    lag_seconds: float
    ahead_seconds: float = 0.0
    rows: int
    chunks: int
    generation: int
    duplicates: int
    quarantined: int
    model: dict[str, Any]
    would: str
    why: str
    fresh: bool
    freshness_limit: float | None = None
    searching: dict[str, Any] | None = None
    watch: Following | None = None


class SyncRecord(BaseModel):
    """One sync that did something, or failed."""

    time: str
    index: str
    action: str
    why: str
    from_instant: str
    to_instant: str
    rows_changed: int
    rows_deleted: int
    chunks_upserted: int
    chunks_deleted: int
    embedded: int
    reused: int
    quarantined: int
    seconds: dict[str, float]
    error: str | None = None


class History(BaseModel):
    """The syncs of an index, newest first."""

    index: str
    instant: Instant
    history: list[SyncRecord]


class FacetValue(BaseModel):
    """A value of a column, and how many rows have it."""

    value: Any
    count: int


class Facet(BaseModel):
    """What a payload column holds, for filters."""

    column: str
    type: Literal["text", "number", "boolean", "time"]
    values: list[FacetValue] | None = None
    min: Any = None
    max: Any = None
    more: Annotated[
        int, Field(description="How many more values the column has than `values` lists.")
    ] = 0


class Facets(BaseModel):
    """What the payload columns of an index hold."""

    index: str
    instant: Instant
    facets: list[Facet]


class CommitMark(BaseModel):
    """A commit of the table, and the sync that brought it into the index."""

    instant: str
    action: str
    completed: str | None
    absorbed: bool
    synced: str | None
    record: SyncRecord | None


class Commits(BaseModel):
    """The table's newest commits, newest first."""

    index: str
    instant: Instant
    commits: list[CommitMark]


class Health(BaseModel):
    """The server is running."""

    ok: bool


class Freshness(BaseModel):
    """Whether an index is within its freshness limit, and why."""

    name: str
    fresh: bool
    why: str


class Readiness(BaseModel):
    """Whether every index exists and is within its freshness limit."""

    ready: bool
    indexes: list[Freshness]


class Refusal(BaseModel):
    """Why there is no answer, and what to do."""

    error: str
    hint: str
