"""A real `lakewake serve` with tokens, remote MCP and an audit file, from its configuration."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from lakewake.config.file import parse_config
from lakewake.errors import ConfigError
from support.serving import DiskLake, serving
from support.tokens import AUDIENCE, ISSUER, RSA, public, token

INDEX = '[[index]]\nname = "a"\ntable = "t"\ntext = "{x}"\n'
TOKENS = f"""
[serve]
mcp = true
rate = 50
audit = "audit.log"
[serve.tokens]
jwks = "jwks.json"
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
where = "num < :most"
"""


def test_a_server_checks_tokens_answers_mcp_and_writes_its_audit_file(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.write()
    lake.config.write_text(lake.config.read_text() + TOKENS)
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(RSA, "one")]}))
    with serving(lake.config, "--host", "0.0.0.0") as server, server.client() as client:
        assert server.started["keys"] is True
        body = {"text": "wine", "k": 9}
        assert client.post("/indexes/sample/search", json=body).status_code == 401
        client.headers["Authorization"] = f"Bearer {token(most=25)}"
        hits = client.post("/indexes/sample/search", json=body).json()["hits"]
        assert sorted(hit["key"] for hit in hits) == ["fresh", "sweet"]
        call = {"name": "search", "arguments": {"text": "wine", "k": 9}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accept = {"Accept": "application/json, text/event-stream"}
        found = client.post("/mcp", json=asked, headers=accept).json()["result"]
        assert len(found["structuredContent"]["hits"]) == 2
    audit = tmp_path / "audit.log"
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    lines = [json.loads(line[line.index("{") :]) for line in audit.read_text().splitlines()]
    assert [line["asked"] for line in lines] == ["search", "mcp search"]
    assert {line["caller"] for line in lines} == {"token ana"}
    assert "Bearer" not in audit.read_text()


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ('algorithms = ["HS256"]', "`algorithms`"),
        ('algorithms = ["none"]', "`algorithms`"),
        ("algorithms = []", "`algorithms`"),
        ("leeway = 4000", "`leeway`"),
        ('jwks = "http://login.example/keys"', "without https"),
        ('where = ""', "blank"),
        ('secret = "x"', "unknown key"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused(tmp_path: Path, line: str, fact: str) -> None:
    name = line.partition(" ")[0]
    kept = [one for one in TOKENS.splitlines() if not one.startswith(f"{name} =")]
    text = INDEX + "\n".join([*kept, line])
    with pytest.raises(ConfigError, match=fact) as refused:
        parse_config(text, tmp_path / "lakewake.toml")
    assert refused.value.hint


def test_tokens_without_a_filter_are_refused(tmp_path: Path) -> None:
    text = INDEX + TOKENS.replace('where = "num < :most"', "")
    with pytest.raises(ConfigError, match="`where` is missing"):
        parse_config(text, tmp_path / "lakewake.toml")
