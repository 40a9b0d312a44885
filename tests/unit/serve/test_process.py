"""A real server in its own process: start, refusals to start, signals, keys, hosts."""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lakewake.cli import run
from lakewake.serve.keys import add_key, read_keys
from lakewake.serve.logs import Lines
from lakewake.serve.opening import listening
from support.sampling import rid, values
from support.serving import CONFIG, DiskLake, serving

SEARCH = "/indexes/sample/search"


@pytest.fixture
def lake(tmp_path: Path) -> DiskLake:
    lake = DiskLake(tmp_path)
    lake.write()
    return lake


def test_a_server_prints_its_address_answers_and_ends_with_ctrl_c(lake: DiskLake) -> None:
    with serving(lake.config) as server:
        assert server.started["host"] == "127.0.0.1"
        assert server.started["port"] > 0
        assert [i["rows"] for i in server.started["indexes"]] == [3]
        assert (server.started["watch"], server.started["keys"]) == (False, False)
        with server.client() as client:
            found = client.post(SEARCH, json={"text": "smoky red with leather", "k": 1}).json()
            assert found["hits"][0]["key"] == "smoky"
            assert found["instant"] == lake.table.look(None).newest
            assert client.get("/ready").json()["ready"] is True
            assert "server" not in client.get("/health").headers
        code, seconds, said = server.end(signal.SIGINT)
    assert (code, said) == (0, "")
    assert seconds < 5


def test_commits_of_another_process_are_seen_without_a_restart(lake: DiskLake) -> None:
    with serving(lake.config) as server, server.client() as client:
        for n in range(3):
            lake.write({rid("smoky"): values(f"smoky red, take {n}", n)})
            found = client.post(SEARCH, json={"text": f"smoky red, take {n}", "k": 1}).json()
            assert found["instant"] == lake.table.look(None).newest
            assert found["hits"][0]["payload"] == {"num": n}


def test_the_start_message_shows_the_address_and_the_features(lake: DiskLake) -> None:
    command = [sys.executable, "-m", "lakewake.cli.tethered", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--config", str(lake.config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert lines[0].startswith("serving http://127.0.0.1:")
    assert lines[1].startswith("sample  3 rows, table at 2025-01-01")
    assert lines[2].startswith("keys    off")
    assert lines[3].startswith("watch   off")
    assert process.returncode == 0


def test_a_server_starts_no_jvm(lake: DiskLake) -> None:
    nowhere = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    with serving(lake.config, env=nowhere) as server, server.client() as client:
        assert client.post(SEARCH, json={"text": "x"}).status_code == 200
        assert client.get("/indexes/sample/status").json()["in_step"] is True


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_missing_index_is_an_error_that_names_sync(
    workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = DiskLake(tmp_path)
    args = ["serve", "--config", str(lake.config), "--port", "0", "--workers", workers]
    assert run(args) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: there is no index 'sample' yet" in shown.err
    assert "`lakewake sync sample`" in shown.err


def test_a_port_in_use_is_named_in_the_error(
    lake: DiskLake, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", "--config", str(lake.config), "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["no such host", "x" * 300, "192.0.2.1"])
def test_an_address_of_another_machine_is_named_in_the_error(
    lake: DiskLake, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["serve", "--config", str(lake.config), "--host", host, "--insecure-no-auth"]
    assert run([*args, "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "search.example"])
def test_listening_beyond_loopback_needs_keys(
    lake: DiskLake, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--config", str(lake.config), "--host", host]) == 2
    shown = capsys.readouterr().err
    assert "without a key" in shown
    assert "--insecure-no-auth" in shown


def test_the_server_is_open_without_keys_only_if_no_keys_is_passed(lake: DiskLake) -> None:
    flags = ("--host", "0.0.0.0", "--insecure-no-auth")
    with serving(lake.config, *flags) as server, server.client() as client:
        assert client.get("/indexes").status_code == 200
        assert client.get("/metrics").status_code == 403


def test_an_open_server_refuses_a_rebound_host_and_accepts_an_allowed_one(lake: DiskLake) -> None:
    flags = ("--host", "0.0.0.0", "--insecure-no-auth", "--allowed-host", "search.example")
    with serving(lake.config, *flags) as server, server.client() as client:
        for name, status in (("evil.example", 400), ("search.example", 200)):
            answer = client.get("/indexes", headers={"Host": name})
            assert answer.status_code == status


def test_an_invalid_allowed_host_is_a_usage_error(
    lake: DiskLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--config", str(lake.config), "--allowed-host", "http://x"]) == 2
    assert "expected a host name" in capsys.readouterr().err


def test_a_body_that_arrives_too_slowly_is_refused(lake: DiskLake) -> None:
    lake.config.write_text(CONFIG + "\n[serve]\ntimeout = 0.5\n")
    with serving(lake.config) as server, server.connect() as connection:
        head = f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) 127\.0\.0\.1:\d+ "


def test_log_lines_have_a_time_and_the_client(lake: DiskLake) -> None:
    with serving(lake.config, "--verbose") as server:
        with server.client() as client:
            assert client.get("/health").status_code == 200
            assert client.get("/nowhere%0AERROR%1b[2Jforged").status_code == 404
        with server.connect() as connection:
            connection.sendall(b"\x00\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
        shutil.rmtree(lake.config.parent / "index")
        with server.client() as client:
            assert client.post(SEARCH, json={"text": "x"}).status_code == 503
        _, _, said = server.end()
    lines = [line for line in said.splitlines() if "Z " in line]
    for what in ('"GET /health HTTP/1.1" 200', "Invalid HTTP request", f"POST {SEARCH}: 503: "):
        (line,) = (line for line in lines if what in line)
        assert re.match(LINE, line)
    assert not any(line.startswith("ERROR") for line in said.splitlines())
    assert "\x1b" not in said


def test_a_client_cannot_forge_a_line_of_the_log() -> None:
    record = logging.LogRecord("n", logging.ERROR, "f", 1, "GET /%s", ("x\nERROR\x1b[2J",), None)
    line = Lines().format(record)
    assert line.endswith(r" ERROR - GET /x\nERROR\x1b[2J")
    record.args = ("x\u2028y\u202ez\u2066",)
    assert Lines().format(record).endswith(r"/x\u2028y\u202ez\u2066")


def test_keys_and_no_keys_cannot_be_combined(
    lake: DiskLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_key(tmp_path / "keys.json", "one", "read")
    args = ["serve", "--config", str(lake.config), "--keys", str(tmp_path / "keys.json")]
    assert run([*args, "--insecure-no-auth"]) == 2
    assert "cannot be combined" in capsys.readouterr().err


def test_a_server_with_keys_asks_for_them_and_forgets_removed_ones(
    lake: DiskLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"
    key = add_key(file, "one", "admin")
    with serving(lake.config, "--host", "0.0.0.0", "--keys", str(file)) as server:
        with server.client(headers={"Authorization": f"Bearer {key}"}) as client:
            assert client.get("/indexes").status_code == 200
            metrics = client.get("/metrics").text
            assert client.get("/health", headers={"Authorization": ""}).status_code == 200
            assert client.get("/indexes", headers={"Authorization": ""}).status_code == 401
            add_key(file, "two", "read")
            assert run(["keys", "remove", str(file), "one"]) == 0
            assert client.get("/indexes").status_code == 401
        code, _, said = server.end()
    assert code == 0
    assert key not in metrics + said


def test_a_key_file_that_cannot_be_used_stops_the_start(
    lake: DiskLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["serve", "--config", str(lake.config), "--keys", str(tmp_path / "none.json")]
    assert run(args) == 2
    assert "lakewake keys add" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--scope", "admin"], ["--where", "a = 1"], ["--rate", "1"]])
@pytest.mark.parametrize("action", ["list", "remove"])
def test_what_only_a_new_key_can_be_given_is_refused(
    action: str, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"
    add_key(file, "one", "read")
    assert run(["keys", action, str(file), "one", *given]) == 2
    assert f"`keys {action}` takes no {given[0]}" in capsys.readouterr().err
    assert [key.name for key in read_keys(file)] == ["one"]


def test_settings_come_from_the_file_and_flags_win(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.write()
    lake.config.write_text(CONFIG + '\n[serve]\nmax_k = 2\nhost = "localhost"\nport = 1\n')
    with serving(lake.config) as server, server.client() as client:
        assert server.started["host"] == "localhost"
        assert client.post(SEARCH, json={"text": "x", "k": 3}).status_code == 422
        assert client.post(SEARCH, json={"text": "x", "k": 2}).status_code == 200


def test_another_name_for_this_machine_is_refused(lake: DiskLake) -> None:
    with serving(lake.config) as server, server.client() as client:
        answer = client.get("/indexes", headers={"Host": "rebound.example"})
        assert answer.status_code == 400
        assert "Host" in answer.json()["error"]


class Slow(BaseHTTPRequestHandler):
    """An embedding service that answers once it is released."""

    protocol_version = "HTTP/1.1"
    asked = threading.Semaphore(0)
    let_go = threading.Event()

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.asked.release()
        self.let_go.wait(60)
        data = [{"index": n, "embedding": [1.0] * 32} for n in range(len(texts))]
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow_lake(tmp_path: Path):
    """A lake whose embedder is a service that stalls."""
    from dataclasses import replace

    from lakewake.config.settings import ModelSettings
    from lakewake.embed.http import HttpEmbedder

    class Handler(Slow):
        asked, let_go = threading.Semaphore(0), threading.Event()

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{service.server_port}/v1"
    model = ModelSettings(provider="http", name="m", url=url, dimension=32)
    lake = DiskLake(tmp_path)
    embedder = HttpEmbedder(model)
    recipe = replace(lake.parts.recipe, model=embedder.identity)
    lake.parts = replace(lake.parts, embedder=embedder, recipe=recipe)
    lake.config.write_text(
        CONFIG.replace('{provider = "hashing", name = "hashing", dimension = 32}',
                       f'{{provider = "http", name = "m", url = "{url}", dimension = 32}}')
    )  # fmt: skip
    Handler.let_go.set()
    lake.write()
    Handler.let_go.clear()
    while Handler.asked.acquire(blocking=False):
        pass
    yield lake, Handler
    Handler.let_go.set()
    service.shutdown()
    service.server_close()
    thread.join()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_after_a_stop_signal_running_requests_finish_and_new_ones_are_refused(
    slow_lake, workers: str
) -> None:
    lake, service = slow_lake
    with serving(lake.config, "--workers", workers) as server, ThreadPoolExecutor(4) as pool:

        def ask() -> int:
            with server.client() as client:
                return client.post(SEARCH, json={"text": "wine"}).status_code

        running = [pool.submit(ask) for _ in range(4)]
        for _ in running:
            assert service.asked.acquire(timeout=20)
        server.process.send_signal(signal.SIGTERM)
        port = server.started["port"]
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                break
            threading.Event().wait(0.01)
        else:
            pytest.fail("it still takes requests")
        service.let_go.set()
        assert [r.result() for r in running] == [200] * 4
        assert server.process.wait(5) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stalled_search_does_not_keep_a_stopping_server_alive(slow_lake, workers: str) -> None:
    lake, service = slow_lake
    with serving(lake.config, "--workers", workers) as server, ThreadPoolExecutor(1) as pool:

        def ask() -> str:
            import httpx2

            try:
                with server.client() as client:
                    return str(client.post(SEARCH, json={"text": "wine"}).status_code)
            except httpx2.TransportError as error:
                return type(error).__name__

        running = pool.submit(ask)
        assert service.asked.acquire(timeout=20)
        code, seconds, _ = server.end()
        assert code == 0
        assert seconds <= 5
        assert running.result() != "200"


def test_a_missing_serve_extra_is_named(
    lake: DiskLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [n for n in sys.modules if n.startswith(("lakewake.serve.", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", "--config", str(lake.config)]) == 2
    assert "pip install 'lakewake[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_are_sent_without_tcp_delay(host: str) -> None:
    # asyncio disables Nagle's algorithm only if the socket reports the TCP protocol.
    with listening(host, 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
