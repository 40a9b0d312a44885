"""Answers HTTP requests with the API. Everything here blocks, and runs in a thread of a `Gate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakewake.errors import IndexMissing, LakewakeError, TableError, TableMissing
from lakewake.model.choices import MODES
from lakewake.model.rows import RowId
from lakewake.serve.shapes import FacetsBody, RecommendBody, SearchBody
from lakewake.show.redact import cleaned, without_secrets

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.model.recommendation import Recommendation


def search(index: Index, body: SearchBody) -> dict[str, Any]:
    """The best rows."""
    like = RowId(body.like.partition, body.like.key) if body.like else None
    return index.search(
        body.text,
        vector=body.vector,
        like=like,
        k=body.k,
        offset=body.offset,
        where=body.where,
        mode=body.mode,
        min_score=body.min_score,
        diversity=body.diversity,
        rerank=body.rerank,
        exact=body.exact,
        as_of=body.as_of,
        max_age=body.max_age,
    ).as_dict()


def needs_model(index: Index, body: SearchBody) -> bool:
    """Whether a search needs a model, to embed its text or to re-rank its hits."""
    if body.text is None:
        return False
    ranked = index.settings.rerank is not None and body.rerank is not False
    return ranked or body.mode != "keyword"


def recommend(index: Index, body: RecommendBody) -> dict[str, Any]:
    """A message based on the best rows."""
    return _shaped(index.recommend(body.query, **_asked(body)), body)


def recommend_stream(index: Index, body: RecommendBody) -> Iterator[Any]:
    """The message in parts, then the whole recommendation as JSON."""
    parts = index.recommend_stream(body.query, **_asked(body))
    return (part if isinstance(part, str) else _shaped(part, body) for part in parts)


def _shaped(found: Recommendation, body: RecommendBody) -> dict[str, Any]:
    return found.plain() if body.plain else found.as_dict()


def _asked(body: RecommendBody) -> dict[str, Any]:
    return {
        "k": body.k,
        "where": body.where,
        "mode": body.mode,
        "min_score": body.min_score,
        "rerank": body.rerank,
        "conversation": [turn.model_dump() for turn in body.conversation],
    }


def summary(index: Index) -> dict[str, Any]:
    """A summary of one index. One that cannot be read is empty and not fresh."""
    instant, (rows, chunks) = _held(index)
    return {
        "name": index.name,
        "instant": instant,
        "rows": rows,
        "chunks": chunks,
        "payload": list(index.settings.payload),
        "modes": list(modes(index)),
        "fresh": freshness(index)["fresh"],
        "has_language_model": index.has_language_model,
        "has_reranking_model": index.settings.rerank is not None,
    }


def modes(index: Index) -> tuple[str, ...]:
    """The search modes of the index. Searching by words needs texts."""
    return MODES if index.settings.fields else ("vector",)


def status(index: Index) -> dict[str, Any]:
    """What the index holds, and how far it is behind its table."""
    report: dict[str, Any] = cleaned(index.status().as_dict())
    return report


def freshness(index: Index) -> dict[str, Any]:
    """Whether the index exists and is within its freshness limit, and why."""
    fresh, why = _judged(index)
    return {"name": index.name, "fresh": fresh, "why": without_secrets(why)}


def _judged(index: Index) -> tuple[bool, str]:
    try:
        report = index.status()
    except TableMissing as error:
        return False, error.fact
    except TableError as error:
        # The lag is unknown. Without a freshness limit, that is acceptable.
        fresh = index.settings.freshness is None and bool(_held(index)[0])
        return fresh, error.fact
    except LakewakeError as error:
        return False, error.fact
    if not report.built:
        return False, "it is not built yet"
    if report.in_step:
        return report.fresh, "in step with the table"
    limit = "" if report.freshness_limit is None else f", its limit is {report.freshness_limit:g} s"
    why = f"{report.lag_seconds:.1f} s behind the table{limit}"
    if report.ahead_seconds >= 1:
        why += f"; a commit is dated {report.ahead_seconds:.0f} s ahead of this machine's clock"
    return report.fresh, why


def facets(index: Index, body: FacetsBody) -> dict[str, Any]:
    """What the payload columns of the rows asked for hold, and the instant of these counts."""
    instant, found = index.with_view(
        lambda view: (view.instant, view.facets(body.text, where=body.where, mode=body.mode))
    )
    return {"index": index.name, "instant": instant, "facets": [f.as_dict() for f in found]}


def history(index: Index, limit: int) -> dict[str, Any]:
    """The last syncs, and an instant at least as new as the newest of them."""
    # A record is written after its commit, so the instant is read after the records.
    records = [record.as_dict() for record in index.history(limit)]
    return _dated(index, _instant(index), "history", records)


def commits(index: Index, limit: int) -> dict[str, Any]:
    """The table's newest commits, and the instant of the version that they are compared with."""
    try:
        instant, marks = index.with_view(lambda v: (v.instant, index.commits(limit, view=v)))
    except IndexMissing:
        instant, marks = "", index.commits(limit)
    return _dated(index, instant, "commits", [mark.as_dict() for mark in marks])


def quarantine(index: Index, limit: int) -> dict[str, Any]:
    """The first rows in quarantine, and how many there are."""
    instant, rows = index.with_view(lambda v: (v.instant, len(v.frontier.quarantine)))
    listed = [row.as_dict() for row in index.quarantine(limit)]
    return {**_dated(index, instant, "quarantine", listed), "rows": rows}


def jobs(index: Index, limit: int) -> dict[str, Any]:
    """What the syncing process was asked to do."""
    return {"index": index.name, "jobs": cleaned([job.as_dict() for job in index.jobs(limit)])}


def _dated(index: Index, instant: str, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"index": index.name, "instant": instant, name: cleaned(found)}


def _instant(index: Index) -> str:
    try:
        return index.with_view(lambda view: view.instant)
    except IndexMissing:
        return ""


def _held(index: Index) -> tuple[str, tuple[int, int]]:
    """Instant, rows and chunks of an index; empty if it cannot be read."""
    try:
        return index.with_view(lambda view: (view.instant, view.counts()))
    except LakewakeError:
        return "", (0, 0)
