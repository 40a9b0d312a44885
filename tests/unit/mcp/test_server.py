"""The MCP server: a real client in this process, and one with a real `lakewake mcp` process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, Tool

import lakewake
from lakewake.api import Index
from lakewake.mcp import MAX_K, MAX_QUERY, build_server
from support.cellar import FIRST, SECOND, WINES, commit, make_cellar

QUERY = "smoky red with leather and old wood"
COMMAND = "from lakewake.cli import main; main()"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cellar(tmp_path_factory.mktemp("cellar"))


def process(config: Path) -> StdioServerParameters:
    """A real `lakewake mcp`, to be started by a client."""
    arguments = ["-c", COMMAND, "mcp", "--config", str(config)]
    source = str(Path(lakewake.__file__).parents[1])
    return StdioServerParameters(
        command=sys.executable, args=arguments, env={"PYTHONPATH": source}, cwd=config.parent
    )


def talk(server: Any, speech: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    """What a client receives from a server."""

    async def run() -> Any:
        with anyio.fail_after(60):
            async with Client(server) as client:
                return await speech(client)

    return anyio.run(run)


def call(lake: Mapping[str, Index], tool: str, **arguments: Any) -> CallToolResult:
    return talk(build_server(lake), lambda client: client.call_tool(tool, arguments))


def answer_of(result: CallToolResult) -> dict[str, Any]:
    """The structured answer; its text must be the same."""
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def refusal(result: CallToolResult) -> str:
    assert result.is_error
    assert result.structured_content is None
    return str(result.content[0].text)


@pytest.fixture
def lake(config: Path) -> lakewake.Lakewake:
    return lakewake.open(config)


def test_a_client_of_a_real_process_lists_searches_and_asks_for_the_status(config: Path) -> None:
    async def speech(client: Client) -> tuple[list[Tool], dict[str, CallToolResult]]:
        tools = (await client.list_tools()).tools
        where = {"country": "Italy", "price": {"<": 40}}
        return tools, {
            "found": await client.call_tool("search", {"text": QUERY, "k": 2, "where": where}),
            "listed": await client.call_tool("list_indexes", {}),
            "status": await client.call_tool("status", {}),
            "refused": await client.call_tool("search", {"text": QUERY, "where": "price <"}),
        }

    tools, answers = talk(process(config), speech)
    names = ["search", "similar", "read", "recommend", "status", "list_indexes"]
    assert [tool.name for tool in tools] == names
    found = answer_of(answers["found"])
    assert (found["index"], found["instant"]) == ("wines", FIRST)
    assert [hit["key"] for hit in found["hits"]] == ["smoky", "smokier"]
    assert answer_of(answers["listed"])["indexes"][0]["rows"] == len(WINES)
    assert answer_of(answers["status"])["indexes"][0]["in_step"] is True
    assert "does not parse" in refusal(answers["refused"])


def test_stdout_of_the_process_holds_nothing_but_the_protocol(config: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client = {"clientInfo": {"name": "test", "version": "1"}}
    lines: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {**hello, **client}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"text": QUERY}},
        },
    ]
    server = process(config)
    # Line by line: requests unanswered when stdin ends are dropped.
    with subprocess.Popen(
        [server.command, *server.args],
        env={**os.environ, **(server.env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        answers = []
        for line in lines:
            running.stdin.write(json.dumps(line) + "\n")
            running.stdin.flush()
            if "id" in line:
                answers.append(json.loads(running.stdout.readline()))
        rest, _ = running.communicate(timeout=60)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[0]["result"]["serverInfo"]["name"] == "lakewake"
    assert answers[1]["result"]["structuredContent"]["hits"][0]["key"] == "smoky"
    assert (rest, running.returncode) == ("", 0)


def test_a_missing_configuration_ends_the_process_with_an_error(tmp_path: Path) -> None:
    server = process(tmp_path / "lakewake.toml")
    done = subprocess.run(
        [server.command, *server.args],
        env={**os.environ, **(server.env or {})},
        input="",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "error:" in done.stderr
    assert "lakewake.toml" in done.stderr


def test_every_tool_is_marked_read_only_and_describes_its_arguments(
    lake: lakewake.Lakewake,
) -> None:
    tools = {t.name: t for t in talk(build_server(lake), Client.list_tools).tools}
    for tool in tools.values():
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
        assert tool.description
        assert tool.output_schema["type"] == "object"
    taken = tools["search"].input_schema["properties"]
    assert tools["search"].input_schema["required"] == ["text"]
    assert (taken["k"]["minimum"], taken["k"]["maximum"]) == (1, MAX_K)
    assert taken["text"]["maxLength"] == MAX_QUERY
    assert all("description" in argument for argument in taken.values())


def test_a_hit_carries_the_payload_in_json_types(lake: lakewake.Lakewake) -> None:
    (hit,) = answer_of(call(lake, "search", text=WINES["fresh"][0], index="wines", k=1))["hits"]
    assert (hit["key"], hit["partition"], hit["field"], hit["chunk"]) == ("fresh", "red", "text", 0)
    assert hit["payload"] == {"country": "France", "price": 12.0, "day": "2024-01-03", "score": 92}
    assert hit["text"] == WINES["fresh"][0]
    assert hit["similarity"] == pytest.approx(1.0)


def test_a_search_by_words_has_pages_and_marks_the_sentence(lake: lakewake.Lakewake) -> None:
    asked = {"text": "tobacco", "mode": "keyword", "k": 1}
    first = answer_of(call(lake, "search", **asked))
    second = answer_of(call(lake, "search", **asked, offset=1))
    assert (first["mode"], first["more"], second["offset"], second["more"]) == (
        "keyword",
        True,
        1,
        False,
    )
    (one,), (other,) = first["hits"], second["hits"]
    assert {one["key"], other["key"]} == {"smoky", "smokier"}
    assert one["similarity"] is None
    start, end = one["highlight"]
    assert one["text"][start:end] == "It ends on tobacco."
    best = one["score"]
    assert answer_of(call(lake, "search", **asked, min_score=best + 1.0))["hits"] == []


def test_rows_like_a_row_are_found_without_it(lake: lakewake.Lakewake) -> None:
    found = answer_of(call(lake, "similar", key="smoky", partition="red", k=2))
    assert found["hits"][0]["key"] == "smokier"
    assert "smoky" not in [hit["key"] for hit in found["hits"]]
    assert "holds nothing of row 'gone'" in refusal(call(lake, "similar", key="gone"))


@pytest.mark.parametrize(
    "where",
    [
        "country = 'France'",
        {"country": "France"},
        '{"country": "France"}',
        {"day": {"between": [{"date": "2024-01-03"}, {"date": "2024-01-03"}]}},
    ],
)
def test_rows_are_filtered_by_text_and_by_json(lake: lakewake.Lakewake, where: Any) -> None:
    found = answer_of(call(lake, "search", text=QUERY, where=where))
    assert [hit["key"] for hit in found["hits"]] == ["fresh"]


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"text": QUERY, "k": 0}, "greater than or equal to 1"),
        ({"text": QUERY, "k": MAX_K + 1}, f"less than or equal to {MAX_K}"),
        ({"text": ""}, "at least 1 character"),
        ({"text": "x" * (MAX_QUERY + 1)}, f"at most {MAX_QUERY} characters"),
        ({"text": QUERY, "offset": -1}, "greater than or equal to 0"),
        ({"text": QUERY, "mode": "magic"}, "'vector', 'keyword' or 'hybrid'"),
        ({}, "text"),
        ({"text": " "}, "blank"),
        ({"text": QUERY, "index": "wine"}, "did you mean 'wines'?"),
        ({"text": QUERY, "where": "contry = 'x'"}, "did you mean 'country'?"),
        ({"text": QUERY, "where": {"contry": "x"}}, "did you mean 'country'?"),
        ({"text": QUERY, "where": {"price": {"$lt": 4}}}, "did you mean '<'?"),
        ({"text": QUERY, "where": "price < 1; DROP TABLE wines"}, "several statements"),
    ],
)
def test_an_invalid_request_is_a_tool_error_with_the_reason(
    lake: lakewake.Lakewake, arguments: dict[str, Any], fact: str
) -> None:
    assert fact in refusal(call(lake, "search", **arguments))


def test_an_error_has_its_fact_and_its_hint(lake: lakewake.Lakewake) -> None:
    said = refusal(call(lake, "search", text=QUERY, where="price = 'x'"))
    assert "column 'price' holds number" in said
    assert "\nhint: write it as in: price = 40" in said


def test_an_unexpected_error_shows_the_model_no_details(config: Path) -> None:
    class Broken(Index):
        def search(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("secret")

    (index,) = lakewake.open(config).values()
    broken = Broken(index.settings, index._sessions, index._reporter)
    assert refusal(call({"wines": broken}, "search", text=QUERY)) == "Error executing tool search"


def test_the_status_reports_how_far_the_index_is_behind(tmp_path: Path) -> None:
    lake = lakewake.open(make_cellar(tmp_path))
    (status,) = answer_of(call(lake, "status"))["indexes"]
    assert (status["in_step"], status["lag_commits"], status["would"]) == (True, 0, "nothing")
    commit(tmp_path / "lake" / "wines", SECOND)
    (status,) = answer_of(call(lake, "status", index="wines"))["indexes"]
    assert (status["in_step"], status["lag_commits"], status["would"]) == (False, 1, "follow")
    assert (status["instant"], status["newest_instant"]) == (FIRST, SECOND)
    assert status["model"]["provider"] == "hashing"


def test_an_index_whose_status_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    config = make_cellar(tmp_path)
    one = config.read_text()
    other = one.replace('"wines"', '"ales"').replace('"lake/wines"', '"lake/ales"')
    config.write_text(f"{one}\n{other}")
    lake = lakewake.open(config)
    answer = answer_of(call(lake, "status"))
    assert [status["index"] for status in answer["indexes"]] == ["wines"]
    (failure,) = answer["failures"]
    assert failure["index"] == "ales"
    assert "no table at" in failure["error"]
    assert "ingest" in failure["hint"]
    assert "no table at" in refusal(call(lake, "status", index="ales"))
    assert "name one: wines, ales" in refusal(call(lake, "search", text=QUERY))
    assert "no index 'ales' yet" in refusal(call(lake, "search", text=QUERY, index="ales"))


def test_the_list_describes_what_each_index_can_be_asked(lake: lakewake.Lakewake) -> None:
    (index,) = answer_of(call(lake, "list_indexes"))["indexes"]
    assert index == {
        "name": "wines",
        "instant": FIRST,
        "rows": len(WINES),
        "chunks": len(WINES),
        "texts": ["{description}"],
        "payload": {
            "country": "string",
            "price": "double",
            "day": "date32[day]",
            "score": "int64",
        },
    }


def test_the_list_names_an_index_that_is_not_built_yet(tmp_path: Path, config: Path) -> None:
    (tmp_path / "lakewake.toml").write_text(config.read_text())
    (index,) = answer_of(call(lakewake.open(tmp_path / "lakewake.toml"), "list_indexes"))["indexes"]
    assert (index["name"], index["instant"], index["rows"]) == ("wines", "", 0)


def test_a_recommendation_names_the_rows_it_used(lake: lakewake.Lakewake) -> None:
    answer = answer_of(call(lake, "recommend", query="tobacco", k=3, where={"country": "Italy"}))
    assert (answer["query"], answer["answered_by"], answer["instant"]) == (
        "tobacco",
        "extract",
        FIRST,
    )
    assert "It ends on tobacco." in answer["message"]
    found = {hit["key"] for hit in answer["hits"]}
    assert found == {"smoky", "smokier", "sweet"}
    assert {row["key"] for row in answer["used"]} <= found
    assert answer["used"]


def test_concurrent_calls_are_all_answered(lake: lakewake.Lakewake) -> None:
    async def speech(client: Client) -> list[str]:
        found: dict[str, str] = {}

        async def ask(key: str) -> None:
            result = await client.call_tool("search", {"text": WINES[key][0], "k": 1})
            found[key] = answer_of(result)["hits"][0]["key"]

        async with anyio.create_task_group() as group:
            for key in WINES:
                group.start_soon(ask, key)
        return [key for key, best in found.items() if best == key]

    assert sorted(talk(build_server(lake), speech)) == sorted(WINES)
