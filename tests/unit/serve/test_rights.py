"""A key with a filter sees its rows and nothing of the others, whatever it asks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakewake.errors import ConfigError
from lakewake.serve.callers import CALLER, Caller, Rates, Views
from lakewake.serve.keys import KeyRing, add_key, read_keys
from lakewake.serve.refusals import Refused
from support.rights import World
from support.serving import asking
from support.tenants import THEIRS, WHERE, index_of


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = [World(tmp_path_factory.mktemp("world"), index_of(theirs)) for theirs in THEIRS]
    yield made
    for world in made:
        world.close()


conditions = st.sampled_from(
    [
        {"tenant": "zeta"},
        {"tenant": {"!=": "acme"}},
        {"tenant": {"is_null": True}},
        {"num": {">": 50}},
        {"num": {"<": 3}},
        {"acl": {"contains": "HIDDEN"}},
        {"acl": {"contains_any": ["sales", "HIDDEN"]}},
        {"_key": {"like": "theirs%"}},
        {"nowhere": 1},
        {"tenant": 1},
    ]
)
written = st.sampled_from(
    [
        "tenant = 'zeta' OR num > 50",
        "NOT (tenant = 'acme' AND acl CONTAINS ANY ('sales', 'press'))",
        "tenant IS NULL OR acl IS NULL",
        "NOT acl CONTAINS 'sales'",
        "tenant LIKE '%' OR NOT tenant LIKE 'acme'",
        "num BETWEEN -100 AND 100",
        "tenant NOT IN ('acme') OR tenant IN ('zeta')",
        "_text LIKE '%HIDDEN%'",
        "num > 0) OR (tenant = 'zeta'",
        '"TENANT" = 1',
    ]
)
joined = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(lambda one: {"not": one}, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"or": some}),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"and": some}),
    ),
    max_leaves=4,
)
filters = st.one_of(st.none(), joined, written)
texts = st.sampled_from(["HIDDEN plum of zeta", "smoky red with leather", "honey", "zeta"])
words = st.sampled_from(["HIDDEN plum honey", "hid* honey*", "zeta~ leather~", '"with honey"'])
rows = st.sampled_from(["ours 1", "theirs 1", "theirs 4", "nobody"]).map(
    lambda key: {"key": key, "partition": "p"}
)
asked = st.fixed_dictionaries(
    {"k": st.integers(1, 9), "where": filters},
    optional={
        "offset": st.integers(0, 3),
        "exact": st.booleans(),
        "diversity": st.sampled_from([0.3, 1.0]),
        "min_score": st.sampled_from([-1.0, 0.2]),
        "max_age": st.just(1e9),
    },
)
targets = st.one_of(
    texts.map(lambda text: {"text": text}),
    rows.map(lambda row: {"like": row}),
    st.sampled_from([0, 7]).map(lambda n: {"vector": [float(i == n) for i in range(32)]}),
)
by_words = st.builds(
    lambda text, mode, where: {"text": text, "mode": mode, "where": where, "k": 9},
    st.one_of(texts, words),
    st.sampled_from(["keyword", "hybrid"]),
    filters,
)
searches = st.one_of(st.builds(lambda one, other: {**one, **other}, asked, targets), by_words)
recommended = st.fixed_dictionaries(
    {"k": st.integers(1, 9), "where": filters, "query": texts},
    optional={
        "min_score": st.sampled_from([-1.0, 0.2, 0.9]),
        "conversation": texts.map(lambda text: [{"role": "user", "content": text}]),
    },
)
shapes = st.fixed_dictionaries({}, optional={"stream": st.booleans(), "plain": st.booleans()})
filtered = st.fixed_dictionaries({"where": filters})
tools = st.one_of(
    st.builds(lambda w, text: ("search", {**w, "text": text, "k": 9}), filtered, texts),
    st.builds(lambda w, row: ("similar", {**w, **row}), filtered, rows),
    rows.map(lambda row: ("read", row)),
    rows.map(lambda row: ("read", {**row, "column": "acl"})),
    recommended.map(lambda given: ("recommend", given)),
    st.sampled_from([("status", {}), ("list_indexes", {})]),
).map(lambda call: {"name": call[0], "arguments": call[1]})
paths = st.one_of(
    st.tuples(st.just("POST"), st.just("/indexes/sample/search"), searches),
    st.tuples(
        st.just("POST"),
        st.just("/indexes/sample/recommend"),
        st.builds(lambda one, other: {**one, **other}, recommended, shapes),
    ),
    st.tuples(
        st.just("POST"),
        st.just("/mcp"),
        tools.map(lambda c: {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": c}),
    ),
    st.tuples(
        st.just("POST"),
        st.just("/indexes/sample/facets"),
        st.fixed_dictionaries({"where": filters}, optional={"text": texts}),
    ),
    st.tuples(st.just("POST"), st.just("/indexes/sample/jobs"), st.just({"kind": "verify"})),
    st.tuples(
        st.just("GET"),
        st.sampled_from(
            [
                "/indexes",
                "/ready",
                "/metrics",
                *(f"/indexes/sample/{of}" for of in ("facets", "status", "history", "commits")),
                "/indexes/sample/jobs",
                "/indexes/sample/quarantine",
            ]
        ),
        st.none(),
    ),
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(question=paths)
def test_no_answer_depends_on_rows_that_the_key_may_not_see(worlds: Any, question: Any) -> None:
    one, other = (world.ask(*question) for world in worlds)
    assert one == other


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_a_search_by_words_shows_the_same_rows_whatever_is_hidden(worlds: Any, mode: str) -> None:
    # The scores differ: how rare a word is counts the rows of everybody (docs/security.md).
    for text in ("honey HIDDEN plum", "smoky red with leather", "zeta HIDDEN"):
        body = {"text": text, "mode": mode, "k": 9}
        found = [world.ask("POST", "/indexes/sample/search", body)[1] for world in worlds]
        one, other = ({hit["key"] for hit in answer["hits"]} for answer in found)
        assert one == other


def test_an_answer_is_not_empty_by_mistake(worlds: Any) -> None:
    for world in worlds:
        body = {"text": "wine", "k": 9}
        hits = world.ask("POST", "/indexes/sample/search", body)[1]["hits"]
        assert sorted(hit["key"] for hit in hits) == ["ours 1", "ours 2", "ours 3"]
        status = world.ask("GET", "/indexes/sample/status")[1]
        assert (status["rows"], status["table"], status["last_sync"]) == (3, "", None)
        facets = world.ask("GET", "/indexes/sample/facets")[1]["facets"]
        assert [f["max"] for f in facets if f["column"] == "num"] == [3]
        assert world.ask("GET", "/metrics")[0] == 403
        assert world.ask("GET", "/indexes/sample/history")[1]["history"] == []


def test_an_earlier_state_is_refused_because_rights_are_those_of_now(worlds: Any) -> None:
    body = {"text": "wine", "as_of": "20990101000000000"}
    assert worlds[1].client.post("/indexes/sample/search", json=body).status_code == 400


def test_keys_with_other_filters_share_no_facets(tmp_path: Path) -> None:
    file, index = tmp_path / "keys.json", index_of(THEIRS[1])
    wheres = {"all": "", "acme": WHERE, "zeta": "tenant = 'zeta'", "none": "tenant = 'x'"}
    keys = {name: add_key(file, name, "read", where) for name, where in wheres.items()}
    seen = {}
    with asking(index, keys=KeyRing(file)) as client:
        for _ in range(2):
            for name, key in keys.items():
                bearer = {"Authorization": f"Bearer {key}"}
                facets = client.get("/indexes/sample/facets", headers=bearer).json()["facets"]
                rows = client.get("/indexes", headers=bearer).json()["indexes"][0]["rows"]
                seen[name] = rows, [(f["min"], f["max"]) for f in facets if f["column"] == "num"]
    assert seen["all"] == (8, [(-99, 99)])
    assert seen["acme"] == (3, [(1, 3)])
    assert seen["zeta"] == (2, [(-99, 99)])
    assert seen["none"] == (0, [(None, None)])


def test_values_that_are_equal_in_python_are_different_rights() -> None:
    index = index_of({})
    views = Views({"sample": index}, keyed=True)
    found = []
    for where in ("num = 1", "num = true"):
        from lakewake.search.where import parse_where

        token = CALLER.set(Caller("key a", parse_where(where)))
        found.append(len(views["sample"].search("wine", k=9).hits))
        CALLER.reset(token)
    assert found == [1, 0]


def test_nobody_is_let_in_if_the_check_of_keys_was_skipped() -> None:
    with pytest.raises(Refused) as refused:
        Views({"sample": index_of({})}, keyed=True)["sample"]
    assert refused.value.status == 401


def test_a_filter_in_the_key_file_that_does_not_parse_refuses_every_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = add_key(file, "acme", "read", WHERE)
    ring = KeyRing(file)
    assert ring.find(key) is not None
    file.write_text(file.read_text().replace("CONTAINS ANY", "CONTAINS EVERY"))
    assert ring.find(key) is None
    with pytest.raises(ConfigError):
        read_keys(file)


def test_a_key_with_a_filter_is_never_an_admin_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="scope read") as refused:
        add_key(file, "acme", "admin", WHERE)
    assert "--scope admin" in refused.value.hint
    with pytest.raises(ConfigError):
        add_key(file, "acme", "read", "tenant = ")
    assert not file.exists()
    key = add_key(file, "acme", "read", WHERE)
    file.write_text(file.read_text().replace('"read"', '"admin"'))
    with asking(index_of({}), keys=KeyRing(file)) as client:
        bearer = {"Authorization": f"Bearer {key}"}
        assert client.get("/metrics", headers=bearer).status_code == 403


def test_each_question_has_a_line_in_the_audit_log(tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "keys.json"
    key = add_key(file, "acme", "read", WHERE)
    with asking(index_of(THEIRS[1]), keys=KeyRing(file)) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        with caplog.at_level(logging.INFO, "lakewake.audit"):
            client.post("/indexes/sample/search", json={"text": "red", "mode": "keyword"})
            client.post("/indexes/sample/recommend", json={"query": "red", "where": "no column"})
            client.get("/indexes/sample/facets")
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "lakewake.audit"]
    assert [line["asked"] for line in lines] == ["search", "recommend", "facets"]
    assert [line["outcome"] for line in lines] == ["answered", "FilterError", "answered"]
    assert {line["caller"] for line in lines} == {"key acme"}
    assert lines[0]["text"] == "red"
    assert lines[0]["limited"] is True
    assert key not in caplog.text


def test_a_line_of_the_audit_log_has_the_whole_question_within_bounds(
    tmp_path: Path, caplog: Any
) -> None:
    file = tmp_path / "keys.json"
    key = add_key(file, "acme", "read", WHERE)
    talk = [{"role": "user", "content": "HIDDEN plum"}, {"role": "assistant", "content": "x" * 999}]
    with asking(index_of(THEIRS[1]), keys=KeyRing(file), mcp=True) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        client.headers["Accept"] = "application/json, text/event-stream"
        with caplog.at_level(logging.INFO, "lakewake.audit"):
            search, recommend = "/indexes/sample/search", "/indexes/sample/recommend"
            client.post(search, json={"like": {"key": "theirs 1", "partition": "p"}})
            client.post(search, json={"text": "red", "where": {"a" * 100_000: 1}})
            client.post(search, json={"text": "red", "where": {"num": {">": 1}}})
            client.post(recommend, json={"query": "it", "conversation": talk})
            for name, given in (
                ("read", {"key": "theirs 1", "partition": "p"}),
                ("search", {"text": "red", "where": "no column"}),
            ):
                params = {"name": name, "arguments": given}
                call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                client.post("/mcp", json=call)
    said = [r.getMessage() for r in caplog.records if r.name == "lakewake.audit"]
    assert max(map(len, said)) < 2_000
    lines = [json.loads(one) for one in said]
    row = ["p", "theirs 1"]
    assert [line.get("row") for line in lines] == [row, None, None, None, row, None]
    assert lines[1]["where"].startswith('{"aaa')
    assert lines[2]["where"] == {"num": {">": 1}}
    assert "HIDDEN plum" in lines[3]["conversation"]
    assert [line["outcome"] for line in lines] == [
        "ConfigError",
        "FilterError",
        "answered",
        "answered",
        "ConfigError",
        "FilterError",
    ]


def test_a_key_that_sends_too_many_requests_waits_and_others_do_not(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    slow, fast = add_key(file, "slow", "read", rate=0.01), add_key(file, "fast", "read")
    with asking(index_of({}), keys=KeyRing(file)) as client:
        statuses = [
            client.get("/indexes", headers={"Authorization": f"Bearer {key}"})
            for key in (slow, slow, fast, fast, fast)
        ]
    assert [answer.status_code for answer in statuses] == [200, 429, 200, 200, 200]
    assert int(statuses[1].headers["Retry-After"]) > 1


def test_a_rate_allows_the_requests_of_two_seconds_at_once_and_then_its_pace() -> None:
    now = [0.0]
    rates = Rates(5, clock=lambda: now[0])
    caller = Caller("key a")
    for _ in range(10):
        rates.take(caller)
    with pytest.raises(Refused):
        rates.take(caller)
    now[0] = 0.2
    rates.take(caller)
    with pytest.raises(Refused):
        rates.take(caller)
    rates.take(Caller("key b"))
