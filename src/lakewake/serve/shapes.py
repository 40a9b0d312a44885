"""The bodies of HTTP requests, and the answers that only HTTP has, as types.

OpenAPI is generated from them and from `model.shapes`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, RootModel, model_validator

from lakewake.model.choices import ModeName
from lakewake.model.shapes import (
    CommitMark,
    Facet,
    IndexStatus,
    Instant,
    Job,
    JobKind,
    PlainAnswer,
    QuarantinedRow,
    RecommendAnswer,
    SyncRecord,
)
from lakewake.search.run import MAX_K

#: The most keys of a body. No valid body has as many.
MOST_KEYS = 50
#: The most turns of a conversation.
MAX_TURNS = 50
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
    mode: ModeName = "vector"
    min_score: FiniteFloat | None = None
    diversity: FiniteFloat = Field(
        0.0, ge=0, le=1, description="How much rows that repeat better rows fall behind."
    )
    rerank: bool | None = None
    exact: bool = False
    as_of: str | None = Field(
        None,
        max_length=40,
        description="Search the index as it was at this instant of the table.",
        examples=["20250301120000123"],
    )
    max_age: FiniteFloat | None = Field(
        None, ge=0, description="How many seconds the index may be behind its table."
    )


class Turn(Asked):
    """What somebody said in the conversation before the question."""

    role: Literal["user", "assistant"]
    content: str


class RecommendBody(Asked):
    """A question, answered from the rows that fit it best."""

    query: str
    k: int = Field(5, ge=1, le=MAX_K)
    where: Filter = None
    mode: ModeName = "vector"
    min_score: FiniteFloat | None = Field(
        None, description="Rows with a lower score are left out; the default is the server's."
    )
    rerank: bool | None = None
    conversation: list[Turn] = Field(
        [], max_length=MAX_TURNS, description="What was said before, oldest first."
    )
    plain: bool = Field(False, description="Answer {success, query, message, products}.")
    stream: bool = Field(False, description="Send server-sent events: `piece`s, then the `answer`.")


class FacetsBody(Asked):
    """Which rows the facets count: those that pass a filter, the best ones for a text, or both."""

    text: str | None = Field(None, description="Count the 200 best rows for this text.")
    where: Filter = None
    mode: ModeName = "vector"


class JobBody(Asked):
    """What the syncing process is asked to do."""

    kind: JobKind


class Recommended(RootModel[RecommendAnswer | PlainAnswer]):
    """A message based on rows; `PlainAnswer` with `plain`."""


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
    modes: list[ModeName]
    fresh: bool
    has_language_model: bool
    has_reranking_model: bool


class Indexes(BaseModel):
    """All indexes of the configuration."""

    indexes: list[IndexSummary]
    watch: Following | None = None


class Status(IndexStatus):
    """How far an index is behind its table, as `lakewake status --json` reports it."""

    watch: Following | None = None


class History(BaseModel):
    """The syncs of an index, newest first."""

    index: str
    instant: Instant
    history: list[SyncRecord]


class Facets(BaseModel):
    """What the payload columns of an index hold."""

    index: str
    instant: Instant
    facets: list[Facet]


class Commits(BaseModel):
    """The table's newest commits, newest first."""

    index: str
    instant: Instant
    commits: list[CommitMark]


class Quarantine(BaseModel):
    """Rows of an index that could not be embedded; the first of them."""

    index: str
    instant: Instant
    rows: int
    quarantine: list[QuarantinedRow]


class Jobs(BaseModel):
    """What the syncing process was asked to do, newest first."""

    index: str
    may_ask: bool
    jobs: list[Job]


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
