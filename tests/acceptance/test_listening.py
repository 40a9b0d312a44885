"""No process of ours listens beyond loopback while the commands run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from support.listening import Listening, is_loopback
from support.serving import serving, wait_until

CONFIG = """
[[index]]
name = "wines"
table = "lake"
text = "{txt}"
model = {provider = "hashing", dimension = 32}

[spark]
ui.enabled = true
"""
#: Whole commands in one process, so that one JVM serves all, and the Spark work of `setup`.
COMMANDS = """
import sys
from lakewake.spark import session
from lakewake.cli import run
from lakewake.setup.exercise import exercise

# Each command would end the JVM.
session.stop_session = lambda: None
for line in sys.argv[2:]:
    assert run(line.split()) == 0, line
exercise(session.start_session({}), sys.argv[1])
"""
#: Listens on all interfaces until its stdin ends.
CARELESS = """
import socket, sys
with socket.create_server((sys.argv[1], 0), family=getattr(socket, sys.argv[2])):
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("0100007F", True),
        ("3500007F", True),
        ("00000000", False),
        ("0200A8C0", False),
        ("00000000000000000000000001000000", True),
        ("0000000000000000FFFF00000100007F", True),
        ("00000000000000000000000000000000", False),
        ("0000000000000000FFFF000000000000", False),
    ],
)
def test_loopback_addresses_are_distinguished_from_others(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize(("host", "family"), [("0.0.0.0", "AF_INET"), ("::", "AF_INET6")])
def test_a_process_that_listens_on_all_interfaces_is_seen(host: str, family: str) -> None:
    with Listening() as watched:
        process = subprocess.Popen(
            [sys.executable, "-c", CARELESS, host, family],
            stdin=subprocess.PIPE,
            env={**os.environ, **watched.environment},
        )
        wait_until(lambda: bool(watched.open_ports) or process.poll() is not None)
        process.communicate()
    if process.returncode:
        pytest.skip(f"this machine has no {family}")
    assert [CARELESS in port.command for port in watched.open_ports] == [True]


@pytest.mark.spark
def test_no_command_listens_beyond_loopback(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"id": f"k{n}", "txt": f"text {n}", "ts": 1}) + "\n" for n in range(20))
    )
    (tmp_path / "lakewake.toml").write_text(CONFIG)
    commands = [
        "ingest rows.jsonl lake --key id --ordering ts --type mor -c lakewake.toml --quiet",
        "plan --quiet",
        "sync --quiet",
        "ingest rows.jsonl lake --quiet",
        "sync --quiet",
        "verify --quiet",
    ]
    with Listening() as watched:
        environment = {**os.environ, **watched.environment}
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, str(tmp_path / "exercise"), *commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        with (
            serving(tmp_path / "lakewake.toml", "--watch", env=watched.environment) as server,
            server.client() as client,
        ):
            assert client.get("/ready").status_code == 200
            wait_until(lambda: bool(client.get("/indexes").json()["watch"]["running"]))
        assert anyio.run(_tools, tmp_path, environment) != []
    assert watched.open_ports == []


async def _tools(folder: Path, environment: dict[str, str]) -> list[str]:
    program = "from lakewake.cli import main; main()"
    server = StdioServerParameters(
        command=sys.executable, args=["-c", program, "mcp"], env=environment, cwd=folder
    )
    with anyio.fail_after(60):
        async with Client(server) as client:
            return sorted(tool.name for tool in (await client.list_tools()).tools)
