"""Answers have one shape: OpenAPI and MCP describe what `as_dict` returns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from lakewake.model import shapes
from lakewake.model.canaries import Canaries
from lakewake.model.choices import ModeName
from lakewake.model.facets import Facet
from lakewake.model.history import CommitMark, SyncRecord
from lakewake.model.jobs import Job, JobKind, JobState, QuarantinedRow
from lakewake.model.query import Hit, Mode, SearchResult
from lakewake.model.recommendation import AnsweredBy, Recommendation
from lakewake.model.rows import RowId
from support.serving import wine_index

HIT = Hit("k", "p", 0.5, 0.5, "text", "field", 0, {"num": 1}, (0, 4))
NOW = datetime.now(UTC)
RECORD = SyncRecord(NOW, "sample", "build", canaries=Canaries())
ANSWER = Recommendation("q", "m", AnsweredBy.MODEL, (RowId("p", "k"),), (HIT,), "1")
INDEX, _ = wine_index()
STATUS = INDEX.status().as_dict()
DESCRIBED: list[tuple[dict[str, Any], type[BaseModel]]] = [
    (HIT.as_dict(), shapes.Hit),
    (SearchResult("sample", "1", (HIT,)).as_dict(), shapes.SearchAnswer),
    (ANSWER.as_dict(), shapes.RecommendAnswer),
    (ANSWER.as_dict()["used"][0], shapes.RowId),
    (RECORD.as_dict(), shapes.SyncRecord),
    (CommitMark("1", "commit", None, False, RECORD).as_dict(), shapes.CommitMark),
    (Facet("num", "number").as_dict(), shapes.Facet),
    (Job("1", "sample", JobKind.SYNC, "ops", NOW, JobState.WAITING).as_dict(), shapes.Job),
    (QuarantinedRow(RowId("p", "k"), "odd", "1", 1).as_dict(), shapes.QuarantinedRow),
    (Facet("a", "text", {"x": 1}).as_dict()["values"][0], shapes.FacetValue),
]


@pytest.mark.parametrize(
    ("answer", "shape"), DESCRIBED, ids=lambda given: getattr(given, "__name__", "")
)
def test_every_field_of_an_answer_is_described(
    answer: dict[str, Any], shape: type[BaseModel]
) -> None:
    assert set(shape.model_fields) == set(answer)
    shape.model_validate(answer, strict=False)


def test_the_status_is_described_but_for_the_last_sync() -> None:
    assert set(shapes.IndexStatus.model_fields) == {*STATUS} - {"last_sync"}
    shapes.IndexStatus.model_validate(STATUS)


def test_the_choices_are_the_same_everywhere() -> None:
    assert get_args(ModeName) == tuple(mode.value for mode in Mode)
    assert get_args(get_args(shapes.JobKind)[0]) == tuple(kind.value for kind in JobKind)
    states = get_args(shapes.Job.model_fields["state"].annotation)
    assert states == tuple(state.value for state in JobState)
    by = get_args(shapes.RecommendAnswer.model_fields["answered_by"].annotation)
    assert by == tuple(kind.value for kind in AnsweredBy)
