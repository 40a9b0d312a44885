"""The server against its own description, and against anything else: no 500s."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from lakewake.config.settings import ServeSettings
from lakewake.serve.app import build_app
from support.serving import URL, asking, lake_of, wine_index

INDEX, _ = wine_index()
APP = build_app(lake_of(INDEX), ServeSettings(), None)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
SCHEMA.app = APP
SCHEMA.config.update(base_url=URL)
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]  # type: ignore[union-attr]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: What a filter, a row and a query may contain besides valid values.
TEXTS = st.text(max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
COLUMNS = st.sampled_from(["num", "_key", "_text", "_checkpoint", "nothing", "and", "not", ""])
OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "between", "like", "is_null", "x"])
WHERE = st.dictionaries(COLUMNS, JSON | st.dictionaries(OPS, JSON, max_size=3), max_size=3)
WORDS = st.lists(
    st.sampled_from(
        ["num", "_key", "AND", "OR", "NOT", "(", ")", "=", "<", "IN", "LIKE", "BETWEEN", "IS",
         "NULL", "'a'", "1", "1e999", "''", "--", ";", "DROP", "\\", "\x00", "DATE '2020-01-01'"]
    ),
    max_size=12,
).map(" ".join)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        pytest.param(operation, kind, id=f"{operation.label} {kind.value}")
        for operation in OPERATIONS
        for kind in GenerationMode
        # Operations without arguments cannot get wrong ones.
        if "{name}" in operation.path or kind is GenerationMode.POSITIVE
    ],
)
def test_every_operation_answers_as_it_is_described(operation: Any, kind: GenerationMode) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=kind))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()


@pytest.mark.parametrize(
    "wheres", [WORDS, TEXTS, WHERE, JSON], ids=["words", "text", "shaped", "json"]
)
def test_no_filter_text_does_more_than_filter(wheres: st.SearchStrategy[Any]) -> None:
    rows = INDEX.status().rows
    with asking(INDEX) as client:

        @settings(max_examples=80, deadline=None)
        @given(wheres)
        def ask(where: Any) -> None:
            answer = send(client, {"text": "wine", "where": where, "k": 9})
            assert answer.status_code in (200, 400, 422), answer.text
            if answer.status_code == 200:
                assert len(answer.json()["hits"]) <= rows

        ask()
    assert INDEX.status().rows == rows


@pytest.mark.parametrize("part", ["like", "vector", "min_score", "offset", "mode", "rerank"])
def test_any_query_text_is_answered_or_refused(part: str) -> None:
    numbers = st.lists(st.floats() | st.integers(), max_size=40)
    rows = st.fixed_dictionaries({"key": TEXTS}, optional={"partition": TEXTS})
    with asking(INDEX) as client:

        @settings(max_examples=60, deadline=None)
        @given(JSON | numbers | rows | st.floats(allow_nan=False) | st.integers())
        def ask(value: Any) -> None:
            text = {} if part in ("like", "vector") else {"text": "wine"}
            answer = send(client, {**text, part: value})
            assert answer.status_code in (200, 400, 422), answer.text

        ask()


def send(client: TestClient, body: Any) -> Any:
    """Send with NaN and infinity as Python writes them, which is not JSON but is accepted."""
    headers = {"Content-Type": "application/json"}
    return client.post("/indexes/sample/search", content=json.dumps(body), headers=headers)


def test_the_description_names_every_path_and_no_other() -> None:
    paths = set(APP.openapi()["paths"])
    assert paths == {
        "/indexes",
        "/health",
        "/ready",
        "/metrics",
        *(
            f"/indexes/{{name}}/{what}"
            for what in (
                *("search", "recommend", "status", "history", "facets", "commits"),
                *("quarantine", "jobs"),
            )
        ),
    }


def test_every_operation_has_a_typed_answer_and_typed_errors() -> None:
    described = APP.openapi()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            answers = operation["responses"]
            assert {"200", "429", "504"} <= set(answers), path
            if path != "/metrics":
                content = answers["200"]["content"]["application/json"]["schema"]
                assert "$ref" in content, path
            assert answers["422"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "/Refusal"
            )
