"""HTTP's questions put to the API. Everything here blocks, and runs in a thread of a `Gate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from lakewake.errors import IndexMissing, LakewakeError, StoreError, TableError, TableMissing
from lakewake.model.choices import MODES
from lakewake.model.rows import RowId
from lakewake.serve.shapes import RecommendBody, SearchBody
from lakewake.show.redact import cleaned, without_secrets

if TYPE_CHECKING:
    from lakewake.api import Index

T = TypeVar("T")
#: A rebuild removes the generation that a search is reading: then the new one is asked.
ATTEMPTS = 3


def search(index: Index, body: SearchBody) -> dict[str, Any]:
    """The rows that fit best."""
    like = RowId(body.like.partition, body.like.key) if body.like else None
    return again(
        lambda: index.search(
            body.text,
            vector=body.vector,
            like=like,
            k=body.k,
            offset=body.offset,
            where=body.where,
            mode=body.mode,
            min_score=body.min_score,
            rerank=body.rerank,
            exact=body.exact,
        ).as_dict()
    )


def needs_model(index: Index, body: SearchBody) -> bool:
    """Whether a search has a model at work: to embed its text, or to rank its hits again."""
    if body.text is None:
        return False
    ranked = index.settings.rerank is not None and body.rerank is not False
    return ranked or body.mode != "keyword"


def recommend(index: Index, body: RecommendBody) -> dict[str, Any]:
    """A message from the rows that fit best."""
    return again(
        lambda: index.recommend(body.query, k=body.k, where=body.where, mode=body.mode).as_dict()
    )


def recommend_stream(index: Index, body: RecommendBody) -> Iterator[Any]:
    """The message in pieces, then the whole."""
    return again(
        lambda: index.recommend_stream(body.query, k=body.k, where=body.where, mode=body.mode)
    )


def again(work: Callable[[], T]) -> T:
    """What the work returns, done again where the index was replaced under it."""
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except IndexMissing:
            raise
        except StoreError:
            continue
    return work()


def summary(index: Index) -> dict[str, Any]:
    """One index in a few words; one that cannot be read is empty and not fresh."""
    instant, (rows, chunks) = _held(index)
    return {
        "name": index.name,
        "instant": instant,
        "rows": rows,
        "chunks": chunks,
        "payload": list(index.settings.payload),
        "modes": list(modes(index)),
        "fresh": freshness(index)["fresh"],
    }


def modes(index: Index) -> tuple[str, ...]:
    """How the index can be searched: by words only where it has texts."""
    return MODES if index.settings.fields else ("vector",)


def status(index: Index) -> dict[str, Any]:
    """Where it stands."""
    report: dict[str, Any] = cleaned(again(index.status).as_dict())
    return report


def freshness(index: Index) -> dict[str, Any]:
    """Whether the index is there and within its limit, and why."""
    fresh, why = _judged(index)
    return {"name": index.name, "fresh": fresh, "why": without_secrets(why)}


def _judged(index: Index) -> tuple[bool, str]:
    try:
        report = again(index.status)
    except TableMissing as error:
        return False, error.fact
    except TableError as error:
        # How far behind cannot be told; where nobody set a limit, it need not be.
        there = index.settings.freshness is None and bool(_held(index)[0])
        return there, error.fact
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


def facets(index: Index) -> dict[str, Any]:
    """What the payload columns hold, with the instant that it was counted at."""
    instant, found = again(index.facets_and_instant)
    return {"index": index.name, "instant": instant, "facets": [f.as_dict() for f in found]}


def dated(index: Index, name: str, read: Callable[[], list[Mapping[str, Any]]]) -> dict[str, Any]:
    """A list of what happened to the index, with the instant that it speaks for."""
    for _ in range(ATTEMPTS):
        instant = _instant(index)
        found = again(read)
        # A commit in between: the list is of the one before it or of the one after.
        if _instant(index) == instant:
            break
    return {"index": index.name, "instant": instant, name: cleaned(found)}


def _instant(index: Index) -> str:
    reader = index.parts.store.open()
    return reader.frontier().newest if reader else ""


def _held(index: Index) -> tuple[str, tuple[int, int]]:
    """Instant, rows and chunks of an index; nothing of one that cannot be read."""
    try:
        reader = index.parts.store.open()
        return (reader.frontier().newest, reader.counts()) if reader else ("", (0, 0))
    except LakewakeError:
        return "", (0, 0)
