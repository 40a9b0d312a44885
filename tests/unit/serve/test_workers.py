"""A server of several processes: real ones, which are stopped, killed and asked one at a time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

import lakewake
from lakewake.api.hot import is_held_alone
from lakewake.cli import run
from lakewake.cli.serve import show_started
from lakewake.progress import SILENT
from lakewake.serve.keys import add_key, remove_key
from lakewake.serve.opening import Part, Started, share_of
from lakewake.store.hot.base import CELLS_MIN_CHUNKS
from support.sampling import rid, values
from support.serving import DiskLake, Server, serving, wait_until, wine_index

SEARCH = "/indexes/sample/search"
#: There is no Java, so a sync that needs it would fail.
NOWHERE = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
MCP = {"Accept": "application/json, text/event-stream"}


def made(folder: Path, text: str = "") -> DiskLake:
    lake = DiskLake(folder)
    lake.write()
    lake.config.write_text(lake.config.read_text() + f"\n[serve]\nworkers = 2\n{text}")
    return lake


def children(pid: int, word: str) -> set[int]:
    """The processes that this one has started with the word in their command line."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and word.encode() in line:
            found.add(int(folder.name))
    return found


def workers_of(server: Server) -> set[int]:
    return children(server.process.pid, "--part")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def one_at_a_time(server: Server, pid: int, **given: Any) -> Iterator[httpx2.Client]:
    """A client that only this worker can answer: the others do not run meanwhile."""
    others = workers_of(server) - {pid}
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        with server.client(**given) as client:
            yield client
    finally:
        for other in others:
            os.kill(other, signal.SIGCONT)


def metrics_of(client: httpx2.Client) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def search(client: httpx2.Client) -> int:
    return client.post(SEARCH, json={"vector": [1.0] * 32, "k": 1}).status_code


class Both:
    """A server of two workers with keys."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.keys = {
            "admin": add_key(self.file, "admin", "admin"),
            "slow": add_key(self.file, "slow", "read", rate=0.001),
            "gone": add_key(self.file, "gone", "read"),
        }
        self.config = made(folder, 'mcp = true\nkeys = "keys.json"\n').config
        self.server: Server

    def asking(self, pid: int, key: str = "admin") -> Any:
        return one_at_a_time(self.server, pid, headers=self.header(key))

    def header(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[key]}"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    both = Both(tmp_path_factory.mktemp("workers"))
    with serving(both.config) as both.server:
        yield both


@pytest.fixture
def pids(both: Both) -> tuple[int, int]:
    first, second = sorted(workers_of(both.server))
    return first, second


def test_each_of_two_workers_answers_at_the_same_address(both: Both, pids: tuple[int, int]) -> None:
    assert both.server.started["workers"] == 2
    for pid in pids:
        with both.asking(pid) as client:
            assert search(client) == 200
            assert client.get("/ready").json()["ready"] is True


def test_metrics_are_those_of_all_workers(both: Both, pids: tuple[int, int]) -> None:
    count = "lakewake_search_seconds_count", "sample", "vector"
    refused = "lakewake_errors_total", "shape"
    with both.asking(pids[0]) as client:
        before = metrics_of(client)
        for _ in range(3):
            assert search(client) == 200
        assert client.post(SEARCH, json={"k": 0}).status_code == 422
    with both.asking(pids[1]) as client:
        for _ in range(2):
            assert search(client) == 200
        assert client.post(SEARCH, json={"k": 0}).status_code == 422
    for pid in pids:
        with both.asking(pid) as client:
            after = metrics_of(client)
        assert after[count] - before.get(count, 0) == 5
        assert after[refused] - before.get(refused, 0) == 2
        assert after["lakewake_syncs_total", "sample"] == before["lakewake_syncs_total", "sample"]
        # The thread that answers this request, and no other.
        assert after["lakewake_running",] == 1
        assert (after["lakewake_workers",], after["lakewake_worker_restarts",]) == (2, 0)


def test_the_rate_of_a_key_holds_for_all_workers_together(
    both: Both, pids: tuple[int, int]
) -> None:
    with both.asking(pids[0], "slow") as client:
        assert search(client) == 200
    for pid in reversed(pids):
        with both.asking(pid, "slow") as client:
            assert search(client) == 429


def test_a_removed_key_is_refused_by_every_worker(both: Both, pids: tuple[int, int]) -> None:
    for pid in pids:
        with both.asking(pid, "gone") as client:
            assert search(client) == 200
    remove_key(both.file, "gone")
    for pid in pids:
        with both.asking(pid, "gone") as client:
            assert search(client) == 401


def test_a_conversation_over_mcp_may_go_on_with_another_worker(
    both: Both, pids: tuple[int, int]
) -> None:
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with both.asking(pids[0]) as client:
        answer = client.post("/mcp", json=body, headers=MCP)
        assert answer.json()["result"]["serverInfo"]["name"] == "lakewake"
        assert "mcp-session-id" not in answer.headers
    call = {"name": "search", "arguments": {"text": "wine", "k": 1}}
    body |= {"id": 2, "method": "tools/call", "params": call}
    with both.asking(pids[1]) as client:
        found = client.post("/mcp", json=body, headers=MCP).json()["result"]
        assert len(found["structuredContent"]["hits"]) == 1


def test_connections_that_are_kept_are_shared_out(both: Both, pids: tuple[int, int]) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(both.server.connect())
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        counts = [connections_of(both.server, pid) for pid in pids]
    assert sum(counts) == 8
    # A worker that is slow to look loses one to the other.
    assert min(counts) >= 2


def connections_of(server: Server, pid: int) -> int:
    """How many connections to the server a worker has open."""
    port, established = f"{server.started['port']:04X}", "01"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(port) and row[3] == established}
    opened = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            opened.append(os.readlink(file))
        except OSError:
            continue
    return sum(name in ours for name in opened)


def test_a_killed_worker_is_replaced_and_the_server_answers_throughout(tmp_path: Path) -> None:
    lake = made(tmp_path)
    with serving(lake.config) as server:
        first, second = sorted(workers_of(server))
        with one_at_a_time(server, first) as client:
            assert search(client) == 200
        until_replaced(server, first, lambda status: status == 200)
        with server.client() as client:
            seen = metrics_of(client)
        # What the killed worker counted is not lost.
        assert seen["lakewake_search_seconds_count", "sample", "vector"] > 1
        assert seen["lakewake_worker_restarts",] == 1
        # One that takes the place of another serves what is there, although an index is gone.
        shutil.rmtree(tmp_path / "index")
        until_replaced(server, second, lambda status: status in (200, 503))
        code, _, said = server.end()
    assert code == 0
    assert "worker 1 ended with code -9; restarting in 1 s" in said


def until_replaced(server: Server, pid: int, fine: Callable[[int], bool]) -> None:
    """Kill a worker, and ask over new connections until the server has two again."""
    before = workers_of(server)
    os.kill(pid, signal.SIGKILL)
    statuses = []

    def is_back() -> bool:
        with server.client() as client:
            statuses.append(search(client))
            ready = metrics_of(client)["lakewake_workers",] == 2
        return ready and len(workers_of(server) - before) == 1

    wait_until(is_back)
    assert all(map(fine, statuses)), statuses


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_processes(tmp_path: Path, number: signal.Signals) -> None:
    with serving(made(tmp_path).config) as server:
        pids = workers_of(server)
        assert len(pids) == 2
        code, seconds, said = server.end(number)
    assert code == 0
    assert seconds < 5
    assert not any(map(lives, pids))
    assert "Traceback" not in said


def test_workers_end_if_their_parent_is_killed(tmp_path: Path) -> None:
    with serving(made(tmp_path).config) as server:
        pids = workers_of(server)
        assert len(pids) == 2
        server.process.kill()
        wait_until(lambda: not any(map(lives, pids)))
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_one_process_follows_the_tables_and_every_worker_shows_its_state(tmp_path: Path) -> None:
    with serving(made(tmp_path).config, "--watch", env=NOWHERE) as server:
        assert server.started["watch"] is True
        pids = workers_of(server)
        (syncing,) = children(server.process.pid, "sync")
        assert not any(children(pid, "sync") for pid in pids)
        os.kill(syncing, signal.SIGKILL)

        def restarted(pid: int) -> bool:
            with one_at_a_time(server, pid) as client:
                watch = client.get("/indexes").json()["watch"]
                samples = metrics_of(client)
            died = "the sync process ended with code -9; restarting in 1 s"
            return (
                watch["restarts"] == samples["lakewake_watch_restarts",] == 1
                and watch["running"] is True
                and died in watch["last_words"]
            )

        for pid in pids:
            wait_until(lambda pid=pid: restarted(pid))
        assert len(children(server.process.pid, "sync")) == 1
        code, seconds, _ = server.end()
    assert code == 0
    assert seconds < 5


def test_all_workers_map_the_files_of_an_index_in_memory(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    # Texts with words in common, so that their vectors are near one another in groups.
    texts = (f"row {n} of {n % 97} wine {n * 7 % 1013}" for n in range(CELLS_MIN_CHUNKS))
    lake.write({rid(f"k{n}"): values(text, n) for n, text in enumerate(texts)})
    with lakewake.open(lake.config) as opened:
        index = opened["sample"]
        assert is_held_alone(index.settings, CELLS_MIN_CHUNKS)
        # As a watch does after a sync.
        index._hot.persist(index._opened(None))
        index._hot.wait(SILENT)
        assert not is_held_alone(index.settings, CELLS_MIN_CHUNKS)
    with serving(lake.config, "--workers", "2") as server:
        pids = workers_of(server)
        wait_until(lambda: all(mapped(pid) for pid in pids))
        first, second = (mapped(pid) for pid in pids)
        assert first == second


def mapped(pid: int) -> set[str]:
    """The files of the hot tier that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = {line.split()[-1] for line in lines if ".hot/" in line}
    # The last one that is mapped comes after all others.
    return found if any(file.endswith("/places") for file in found) else set()


def test_a_store_of_one_process_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = made(tmp_path).config
    text = config.read_text()
    config.write_text(text.replace("text =", 'store = "qdrant+local://index"\ntext =', 1))
    assert run(["serve", "--config", str(config), "--port", "0"]) == 2
    shown = capsys.readouterr().err
    assert "several workers cannot open index 'sample'" in shown
    assert "--workers 1" in shown


def test_an_address_in_use_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = made(tmp_path).config
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["serve", "--config", str(config), "--port", port]) == 2
    assert capsys.readouterr().err.count("is in use") == 1


def test_the_start_message_names_indexes_whose_memory_is_not_shared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_started(Started("127.0.0.1", 1, (), False, False, workers=2, unshared=("wines",)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["workers", "2", "processes"] in lines
    (memory,) = (line for line in lines if line[0] == "memory")
    assert memory[1:4] == ["not", "shared:", "wines;"]


@pytest.mark.parametrize(
    ("hot", "store", "recall", "chunks", "alone"),
    [
        ("auto", "lance", 0.95, 20_000, True),
        ("auto", "lance", 0.95, 9_000, False),
        ("auto", "lance", 1.0, 20_000, False),
        ("off", "lance", 0.95, 20_000, False),
        ("auto", "qdrant", 0.95, 20_000, False),
    ],
)
def test_a_large_index_without_files_is_held_by_each_worker(
    tmp_path: Path, hot: str, store: str, recall: float, chunks: int, alone: bool
) -> None:
    given = wine_index()[0].settings
    settings = replace(given, hot=hot, store=f"{store}://{tmp_path}", recall=recall)
    assert is_held_alone(settings, chunks) is alone


def test_a_limit_is_divided_among_the_workers() -> None:
    assert [share_of(8, n, 2) for n in range(2)] == [4, 4]
    assert [share_of(8, n, 3) for n in range(3)] == [3, 3, 2]
    assert [share_of(2, n, 3) for n in range(3)] == [1, 1, 1]


def test_a_part_is_written_as_it_is_read() -> None:
    part = Part(1, 3, 4)
    assert Part.parse(str(part)) == part
