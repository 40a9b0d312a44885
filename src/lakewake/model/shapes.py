"""What `as_dict` of each answer returns, as types, for OpenAPI and for the tools of MCP.

It needs pydantic, which comes with the extras `serve` and `mcp`, so only these import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lakewake.model.choices import ModeName

Instant = Annotated[str, Field(description="The table commit that the answer is based on.")]


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
    mode: ModeName
    offset: int = 0
    hits: Sequence[Hit]
    more: bool
    fallback: Annotated[
        str | None,
        Field(description="Why the table was scanned instead of the index; null if it was not."),
    ] = None


class Chunk(BaseModel):
    """One chunk of a row's text."""

    field: str
    chunk: int
    text: str | None


class RecommendAnswer(BaseModel):
    """A message based on the rows in `used`."""

    query: str
    message: str
    answered_by: Literal["model", "extract", "none"]
    used: list[RowId]
    hits: Sequence[Hit]
    instant: Instant
    reason: str | None = None
    matched: Annotated[
        Sequence[Sequence[Chunk]],
        Field(description="All chunks of each hit's row that match, in the order of `hits`."),
    ] = ()
    asked: Annotated[
        str | None,
        Field(description="The question that was searched for, if a conversation led to it."),
    ] = None


class PlainAnswer(BaseModel):
    """The rows that a message names, each as one flat object."""

    success: bool
    query: str
    message: str
    products: list[dict[str, Any]]


class IndexStatus(BaseModel):
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
    hot: dict[str, Any] | None = None


class Reads(BaseModel):
    """File groups and bytes of the table that a sync read, and how many there are."""

    groups: int
    bytes: int
    groups_in_table: int | None = None
    bytes_in_table: int | None = None
    shared_bytes: int = 0


class Canaries(BaseModel):
    """How well a few questions with known answers were answered after a sync."""

    mode: str
    questions: int
    values: dict[str, float] | None = None
    fingerprint: str
    before: float | None = None
    dropped: bool
    error: str


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
    reads: Reads | None = None
    canaries: Canaries | None = None


class CommitMark(BaseModel):
    """A commit of the table, and the sync that brought it into the index."""

    instant: str
    action: str
    completed: str | None
    absorbed: bool
    synced: str | None
    record: SyncRecord | None


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
    of_list: Annotated[
        bool, Field(description="The values are elements of lists: filter with `contains`.")
    ] = False


JobKind = Annotated[
    Literal["sync", "plan", "verify", "retry"],
    Field(description="`retry` is a sync that tries the rows in quarantine again."),
]


class Job(BaseModel):
    """What an operator asked of the syncing process, and how it ended."""

    id: str
    index: str
    kind: JobKind
    by: str
    asked: str
    state: Literal["waiting", "running", "done", "failed", "expired"]
    ended: str | None = None
    report: dict[str, Any] | None = None
    error: str | None = None
    hint: str = ""


class QuarantinedRow(RowId):
    """A row that could not be embedded."""

    reason: str
    instant: str
    attempts: int
