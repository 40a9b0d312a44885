"""What is asked over HTTP and what is answered, as types: OpenAPI is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from lakewake.model.choices import ModeName
from lakewake.search.run import MAX_K

#: More than any body has.
MOST_KEYS = 50
Mode = ModeName
Instant = Annotated[str, Field(description="The table's commit that the answer speaks for.")]
Filter = Annotated[
    str | dict[str, Any] | None,
    Field(
        description="Only rows with these payload values: `country = 'Italy' AND price < 40`, or "
        '`{"country": "Italy", "price": {"<": 40}}`.',
        examples=[{"country": "Italy", "price": {"<": 40}}],
    ),
]


class Asked(BaseModel):
    """A body: nothing else is in it, and nothing is guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _of_few_keys(cls, values: Any) -> Any:
        # Each unknown key would be an error of its own: a hundred thousand would stall the server.
        if isinstance(values, dict) and len(values) > MOST_KEYS:
            raise ValueError(f"has {len(values):,} keys")
        return values


class RowRef(Asked):
    """A row of the table."""

    key: str
    partition: str = ""


class SearchBody(Asked):
    """A search: by `text`, by `vector`, or for rows `like` one."""

    text: str | None = None
    vector: list[FiniteFloat] | None = Field(None, fail_fast=True)
    like: RowRef | None = None
    k: int = Field(5, ge=1, le=MAX_K, description="How many rows.")
    offset: int = Field(0, ge=0, le=MAX_K, description="So many of the best are left out.")
    where: Filter = None
    mode: Mode = "vector"
    min_score: FiniteFloat | None = None
    rerank: bool | None = None
    exact: bool = False


class RecommendBody(Asked):
    """A wish, answered from the rows that fit it best."""

    query: str
    k: int = Field(5, ge=1, le=MAX_K)
    where: Filter = None
    mode: Mode = "vector"
    stream: bool = Field(False, description="Server-sent events: `piece`s, then the `answer`.")


class RowId(BaseModel):
    """Hudi's own identity of a row."""

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
        Field(description="Where the best sentence stands in `text`, in code points."),
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
    """A message made from the rows it names."""

    query: str
    message: str
    answered_by: Literal["model", "extract", "none"]
    used: list[RowId]
    hits: list[Hit]
    instant: Instant
    reason: str | None = None


class Following(BaseModel):
    """The process that keeps the indexes in step, with `--watch`."""

    running: bool
    restarts: int
    last_words: list[str]


class IndexSummary(BaseModel):
    """One index, in a few words."""

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
    """Where an index stands: what `lakewake status --json` says of it."""

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
        int, Field(description="How many further values there are that `values` does not list.")
    ] = 0


class Facets(BaseModel):
    """What the payload columns of an index hold."""

    index: str
    instant: Instant
    facets: list[Facet]


class CommitMark(BaseModel):
    """A commit of the table, and by which sync it came into the index."""

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
    """The server is there."""

    ok: bool


class Freshness(BaseModel):
    """Whether an index may be relied on, and why."""

    name: str
    fresh: bool
    why: str


class Readiness(BaseModel):
    """Whether every index is there and within its limit."""

    ready: bool
    indexes: list[Freshness]


class Refusal(BaseModel):
    """Why there is no answer, and what to do."""

    error: str
    hint: str
