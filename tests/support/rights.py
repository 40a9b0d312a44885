"""What a caller with limited rows sees over HTTP: the same, whatever rows are hidden from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakewake.api import Index
from lakewake.config.settings import TokenSettings
from lakewake.serve.keys import KeyRing, add_key
from lakewake.serve.tokens import Tokens
from support.serving import asking
from support.tenants import WHERE
from support.tokens import AUDIENCE, ISSUER, RSA, public, token

#: The filter of a token; that of the key is `WHERE`.
BY_TOKEN = "tenant = :tenant AND acl CONTAINS ANY :groups"
SEARCH, FACETS = "/indexes/sample/search", "/indexes/sample/facets"
#: Filters of a caller that ask for the rows of others.
FILTERS: tuple[Any, ...] = (
    None,
    {"tenant": "zeta"},
    {"or": [{"tenant": {"is_null": True}}, {"num": {">": 50}}]},
    {"not": {"tenant": "acme"}},
    "tenant = 'zeta' OR num > 50",
    "NOT (tenant = 'acme' AND acl CONTAINS ANY ('sales', 'press'))",
    "NOT acl CONTAINS 'sales'",
    "tenant LIKE '%' OR NOT tenant LIKE 'acme'",
    "_text LIKE '%HIDDEN%'",
    "num > 0) OR (tenant = 'zeta'",
)
TARGETS: tuple[dict[str, Any], ...] = (
    {"text": "HIDDEN plum of zeta"},
    {"text": "honey", "exact": True},
    {"text": "honey", "diversity": 0.3, "offset": 1},
    {"text": "hid* honey*", "mode": "keyword"},
    {"text": "smoky red with leather", "mode": "hybrid"},
    {"like": {"key": "ours 1", "partition": "p"}},
    {"like": {"key": "theirs 1", "partition": "p"}},
    {"vector": [float(n == 7) for n in range(32)]},
)
TOOLS = (
    ("search", {"text": "HIDDEN plum of zeta", "k": 9}),
    ("similar", {"key": "theirs 1", "partition": "p"}),
    ("read", {"key": "theirs 1", "partition": "p"}),
    ("read", {"key": "ours 1", "partition": "p", "column": "acl"}),
    ("status", {}),
    ("list_indexes", {}),
)
READ = ("status", "history", "commits", "jobs", "quarantine")


class World:
    """A server over one set of hidden rows, asked with a key that may not see them."""

    def __init__(self, folder: Path, index: Index) -> None:
        file, published = folder / "keys.json", folder / "jwks.json"
        published.write_text(json.dumps({"keys": [public(RSA, "one")]}))
        tokens = Tokens(TokenSettings(str(published), ISSUER, AUDIENCE, BY_TOKEN))
        key = add_key(file, "acme", "read", WHERE)
        self._asking = asking(index, keys=KeyRing(file), mcp=True, app={"tokens": tokens})
        self.client = self._asking.__enter__()
        self.client.headers["Authorization"] = f"Bearer {key}"
        self.client.headers["Accept"] = "application/json, text/event-stream"

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.client.request(method, path, json=body)
        shown = _without_question(answer, body or {})
        assert not {word for word in ("HIDDEN", "theirs", "zeta") if word in shown}, shown
        return answer.status_code, _comparable(_content(answer))

    def close(self) -> None:
        self._asking.__exit__(None, None, None)


def _without_question(answer: Any, body: Any) -> str:
    """The answer's text, without what it repeats of the question."""
    asked = body.get("params", {}).get("arguments", body)
    repeated = [(asked.get("like") or {}).get("key"), asked.get("key"), asked.get("query")]
    repeated += [turn["content"] for turn in asked.get("conversation", ())]
    shown: str = answer.text
    # An error may show the place of a filter at which it does not parse.
    repeated += [asked["where"]] if isinstance(asked.get("where"), str) else []
    for text in sorted(filter(None, repeated), key=len, reverse=True):
        shown = shown.replace(text, "").replace(json.dumps(text)[1:-1], "")
    return shown


def _content(answer: Any) -> Any:
    """What an answer holds, also one in events."""
    if not answer.headers["Content-Type"].startswith("text/event-stream"):
        return answer.json()
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def _comparable(answer: Any) -> Any:
    """The answer without what describes the whole index by design: instants and ages."""
    if isinstance(answer, dict) and answer.get("mode") in ("keyword", "hybrid"):
        # How rare a word is counts the rows of everybody (docs/security.md).
        hits = [{**hit, "score": None} for hit in answer["hits"]]
        answer = {**answer, "mode": "", "hits": sorted(hits, key=lambda hit: hit["key"])}
    if isinstance(answer, dict) and "structuredContent" in answer:
        answer = answer["structuredContent"]
    if isinstance(answer, dict):
        return {
            name: _comparable(value)
            for name, value in answer.items()
            if name not in ("instant", "newest_instant", "lag_seconds", "ahead_seconds")
        }
    return [_comparable(one) for one in answer] if isinstance(answer, list) else answer


class RightsContract:
    """The tests of a store. The fixture `worlds` is two worlds that differ in hidden rows only."""

    @pytest.mark.parametrize("where", FILTERS, ids=str)
    def test_no_search_depends_on_rows_that_the_key_may_not_see(
        self, worlds: Any, where: Any
    ) -> None:
        for target in TARGETS:
            body = {**target, "where": where, "k": 9}
            one, other = (world.ask("POST", SEARCH, body) for world in worlds)
            assert one == other, target
        one, other = (world.ask("POST", FACETS, {"where": where}) for world in worlds)
        assert one == other

    def test_nothing_else_depends_on_them(self, worlds: Any) -> None:
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}
            for given in ({"name": name, "arguments": of} for name, of in TOOLS)
        ]
        questions = [
            *(("POST", "/mcp", call) for call in calls),
            ("POST", "/indexes/sample/recommend", {"query": "HIDDEN honey", "k": 9}),
            ("POST", "/indexes/sample/jobs", {"kind": "verify"}),
            *(("GET", f"/indexes/sample/{of}", None) for of in READ),
            *(("GET", path, None) for path in ("/indexes", "/ready", "/metrics")),
        ]
        for question in questions:
            one, other = (world.ask(*question) for world in worlds)
            assert one == other, question

    def test_an_answer_is_not_empty_by_mistake(self, worlds: Any) -> None:
        for world in worlds:
            for mode in ({}, {"mode": "keyword"}, {"mode": "hybrid"}):
                body = {"text": "smoky fresh sweet", "k": 9, **mode}
                hits = world.ask("POST", SEARCH, body)[1]["hits"]
                assert {hit["key"] for hit in hits} == {"ours 1", "ours 2", "ours 3"}
            assert world.ask("GET", "/indexes/sample/status")[1]["rows"] == 3
            facets = world.ask("GET", FACETS)[1]["facets"]
            assert [f["max"] for f in facets if f["column"] == "num"] == [3]

    def test_callers_see_the_rows_of_their_tokens(self, worlds: Any) -> None:
        seen = {}
        bearers = {
            "acme": token(),
            "press": token(groups="press"),
            "zeta": token(tenant="zeta"),
            "none": token(groups=[]),
        }
        for name, bearer in bearers.items():
            headers = {"Authorization": f"Bearer {bearer}"}
            answer = worlds[1].client.post(SEARCH, json={"text": "wine", "k": 9}, headers=headers)
            seen[name] = sorted(hit["key"] for hit in answer.json()["hits"])
        assert seen == {
            "acme": ["ours 1", "ours 2", "ours 3"],
            "press": ["ours 2"],
            "zeta": ["theirs 1"],
            "none": [],
        }
