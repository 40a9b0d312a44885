"""MCP over HTTP: the same tools, under the keys and rights of the server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

from lakewake.serve.keys import KeyRing, add_key
from support.serving import asking
from support.tenants import THEIRS, WHERE, index_of

HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


class Asking(NamedTuple):
    """A server, and the keys of who asks it."""

    http: TestClient
    keys: dict[str, str]

    @property
    def bearer(self) -> dict[str, str]:
        return {**HEADERS, "Authorization": f"Bearer {self.keys['acme']}"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    file = tmp_path_factory.mktemp("remote") / "keys.json"
    keys = {"all": add_key(file, "all", "read"), "acme": add_key(file, "acme", "read", WHERE)}
    with asking(index_of(THEIRS[1]), keys=KeyRing(file), mcp=True) as made:
        yield Asking(made, keys)


def ask(client: Asking, who: str, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {**HEADERS, "Authorization": f"Bearer {client.keys[who]}"}
    answer = client.http.post("/mcp", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def call(client: Asking, who: str, tool: str, **arguments: Any) -> Any:
    return ask(client, who, "tools/call", name=tool, arguments=arguments)


def keys_of(result: Any) -> list[str]:
    return sorted(hit["key"] for hit in result["structuredContent"]["hits"])


def test_a_request_without_a_key_is_refused(client: Asking) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert client.http.post("/mcp", json=body, headers=HEADERS).status_code == 401


def test_the_tools_are_those_of_the_command(client: Asking) -> None:
    tools = {tool["name"] for tool in ask(client, "acme", "tools/list")["tools"]}
    assert tools == {"search", "similar", "read", "recommend", "status", "list_indexes"}


def test_every_tool_sees_the_rows_of_its_caller_and_no_others(client: Asking) -> None:
    # In turn, so that an answer of one caller could not be that of the other.
    for who, shown in (("all", 8), ("acme", 3), ("all", 8), ("acme", 3)):
        assert len(keys_of(call(client, who, "search", text="wine", k=9))) == shown
        listing = call(client, who, "list_indexes")["structuredContent"]["indexes"][0]
        assert listing["rows"] == shown
        assert call(client, who, "status")["structuredContent"]["indexes"][0]["rows"] == shown
        assert len(keys_of(call(client, who, "recommend", query="honey", k=9))) == shown
    hidden = {"key": "theirs 1", "partition": "p"}
    assert call(client, "all", "read", **hidden)["structuredContent"]["text"]
    for tool in ("read", "similar"):
        seen = call(client, "acme", tool, **hidden)
        unknown = call(client, "acme", tool, key="nobody 1", partition="p")
        assert seen["isError"]
        assert json.dumps(seen).replace("theirs", "nobody") == json.dumps(unknown)


def test_the_name_of_an_index_that_is_not_there_shows_no_path(client: Asking) -> None:
    found = call(client, "acme", "search", text="red", index="other")
    assert found["isError"]
    text = found["content"][0]["text"]
    assert "there is no index 'other' here" in text
    assert ".toml" not in text


def test_several_calls_in_one_request_are_refused(client: Asking) -> None:
    # Otherwise one request could ask as often as the caller likes, whatever its rate.
    one = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = client.http.post("/mcp", json=[one, one], headers=client.bearer)
    assert answer.status_code == 400


def test_each_call_has_a_line_in_the_audit_log(client: Asking, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "lakewake.audit"):
        call(client, "acme", "search", text="red")
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "lakewake.audit"]
    assert [(line["caller"], line["asked"], line["text"]) for line in lines] == [
        ("key acme", "mcp search", "red")
    ]


def test_there_is_no_stream_and_no_session_to_take_over(client: Asking) -> None:
    assert client.http.get("/mcp", headers=client.bearer).status_code == 405
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = client.http.post("/mcp", json=body, headers=client.bearer)
    assert "mcp-session-id" not in answer.headers


def test_it_is_off_unless_configured(tmp_path: Path) -> None:
    with asking(index_of({})) as http:
        assert http.post("/mcp", json={}).status_code == 404
