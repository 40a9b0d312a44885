"""What a connection may do before its request is read: real sockets, and a real process."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
import uvicorn

from lakewake.serve import protocol
from lakewake.serve.headers import HEADERS
from lakewake.serve.protocol import BoundedProtocol, Room
from support.serving import DiskLake, Server, serving, wait_until

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


class Answering:
    """A server in this process; `/slow` answers once it is released."""

    def __init__(self, room: Room) -> None:
        self.let_go, self.asked = threading.Event(), threading.Semaphore(0)
        config = uvicorn.Config(
            self.app,
            http=partial(BoundedProtocol, room=room),  # type: ignore[arg-type]
            interface="asgi3",
            log_config=None,
            lifespan="off",
        )
        self.room, self.server = room, uvicorn.Server(config)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.listener]))

    async def app(self, scope, receive, send) -> None:
        import asyncio

        if scope["path"] == "/slow":
            self.asked.release()
            while not self.let_go.is_set():
                await asyncio.sleep(0.01)
        if scope["path"] == "/body":
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body"):
                    break
        body = b"x" * 50_000_000 if scope["path"] == "/large" else b"fine"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), 20)

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)


@contextmanager
def answering(**limits) -> Iterator[Answering]:
    made = Answering(Room(**limits))
    made.thread.start()
    try:
        wait_until(lambda: made.server.started)
        yield made
    finally:
        made.let_go.set()
        made.server.should_exit = True
        made.thread.join()
        made.listener.close()


@pytest.fixture
def server() -> Iterator[Answering]:
    with answering() as made:
        yield made


def whole(connection: socket.socket) -> bytes:
    """Everything received until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def asked(server: Answering, request: bytes) -> bytes:
    with server.connect() as connection:
        connection.sendall(request)
        return whole(connection)


def head(size: int) -> bytes:
    """A request with headers of exactly this many bytes, counted as the limit does."""
    fixed = len(b"/health") + len(b"host" + b"localhost") + 4 + len(b"connection" + b"close") + 4
    value = b"v" * (size - fixed - len(b"x-long") - 4)
    return GET + b"Connection: close\r\nX-Long: " + value + b"\r\n\r\n"


def test_headers_up_to_the_limit_are_read_and_one_byte_more_is_431(server: Answering) -> None:
    assert status_of(asked(server, head(protocol.MAX_HEAD))) == 200
    assert status_of(asked(server, head(protocol.MAX_HEAD + 1))) == 431


def test_a_hundred_headers_are_read_and_one_more_is_431(server: Answering) -> None:
    def with_headers(count: int) -> bytes:
        more = b"".join(b"X-%d: v\r\n" % n for n in range(count - 2))
        return GET + b"Connection: close\r\n" + more + b"\r\n"

    assert status_of(asked(server, with_headers(protocol.MAX_HEADERS))) == 200
    assert status_of(asked(server, with_headers(protocol.MAX_HEADERS + 1))) == 431


def test_a_long_url_counts_towards_the_header_limit(server: Answering) -> None:
    request = b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert status_of(asked(server, request)) == 431


def test_a_refusal_is_json_with_security_headers_and_closes_the_connection(
    server: Answering,
) -> None:
    answer = asked(server, GET + b"X: " + b"v" * 200_000)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert "65,536 bytes" in json.loads(body)["error"]
    for name, value in HEADERS.items():
        assert f"{name}: {value}".encode() in head
    assert b"Connection: close" in head


def test_bytes_that_are_not_http_get_the_usual_error_shape(server: Answering) -> None:
    answer = asked(server, b"\x16\x03\x01 hello\r\n\r\n")
    assert status_of(answer) == 400
    assert "not an HTTP request" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize(
    "tail",
    [
        b"0\r\nX-Trailer: " + b"v" * 400_000,
        b"0\r\n" + b"".join(b"X-%d: v\r\n" % n for n in range(500)),
        b"1;extension=" + b"v" * 400_000,
    ],
    ids=["one long trailer", "many trailers", "a long chunk extension"],
)
def test_data_after_a_body_is_bounded_too(server: Answering, tail: bytes) -> None:
    start = b"POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
    assert status_of(asked(server, start + tail)) == 431


def test_a_refused_request_does_not_cut_into_the_answer_before_it(server: Answering) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        assert server.asked.acquire(timeout=20)
        connection.sendall(b"GET /health HTTP/1.1\r\nX: " + b"v" * 200_000)
        server.let_go.set()
        answer = whole(connection)
    first, second = answer.split(b"fine")
    assert status_of(first) == 200
    assert status_of(second) == 431


def test_requests_sent_ahead_are_answered_in_order_up_to_a_limit(server: Answering) -> None:
    request, last = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", GET + b"Connection: close\r\n\r\n"
    assert asked(server, request * 20 + last).count(b"fine") == 21
    assert asked(server, b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n" + request * 5000) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: h\r\nX-Slow: "])
def test_a_connection_without_complete_headers_is_closed_in_time(sent: bytes) -> None:
    with answering(head_seconds=0.3) as server, server.connect() as connection:
        connection.sendall(sent)
        answer = whole(connection)
        wait_until(lambda: server.open == 0)
    assert (status_of(answer) == 408) if sent else (answer == b"")


def test_headers_that_arrive_byte_by_byte_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(head_seconds=0.5) as server, server.connect() as connection:
        connection.sendall(GET)
        began = monotonic()
        connection.settimeout(0.05)
        answer = b""
        while not answer:
            assert monotonic() - began < 10
            connection.sendall(b"X: y\r\n" if monotonic() - began < 0.4 else b"")
            try:
                answer = connection.recv(10_000)
            except TimeoutError:
                continue
    assert status_of(answer) == 408


@pytest.mark.parametrize("sent", [b"GET /he", b"\r\n\r\n"])
def test_the_next_request_of_a_connection_has_the_same_time_limit(sent: bytes) -> None:
    with answering(head_seconds=0.4) as server, server.connect() as connection:
        connection.sendall(GET + b"\r\n")
        answer = b""
        while not answer.endswith(b"fine"):
            answer += connection.recv(10_000)
        connection.sendall(sent)
        assert status_of(whole(connection) or b"HTTP/1.1 408 ") == 408


def test_a_body_that_continues_after_its_answer_does_not_hold_the_connection() -> None:
    with answering(head_seconds=0.4) as server, server.connect() as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\nx")
        assert whole(connection).endswith(b"fine")
        wait_until(lambda: server.open == 0)


def test_an_unread_answer_is_given_up() -> None:
    with answering(unread_seconds=0.3) as server, server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        assert connection.recv(1) == b"H"
        wait_until(lambda: server.open == 0)


def test_a_new_connection_replaces_the_one_idle_longest() -> None:
    with answering(connections=3) as server, ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(3)]
        wait_until(lambda: server.open == 3)
        for _ in range(20):
            with server.connect() as connection:
                connection.sendall(GET + b"Connection: close\r\n\r\n")
                assert status_of(whole(connection)) == 200
        assert whole(idle[0]) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /body HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"v" * 70_000,
    ],
    ids=["bodies that never arrive", "refused requests that linger"],
)
def test_idle_connections_give_way_to_others(sent: bytes) -> None:
    with answering(connections=2) as server, ExitStack() as stack:
        for _ in range(2 * protocol.RESERVE):
            stack.enter_context(server.connect()).sendall(sent)
        assert status_of(asked(server, GET + b"Connection: close\r\n\r\n")) == 200


def test_a_connection_goes_on_after_an_answer_that_came_before_its_body(server: Answering) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n")
        answer = b""
        while not answer.endswith(b"fine"):
            answer += connection.recv(10_000)
        connection.sendall(b"body" + GET + b"Connection: close\r\n\r\n")
        assert status_of(whole(connection)) == 200


def test_while_all_connections_are_busy_only_health_is_answered() -> None:
    with answering(connections=2) as server, ExitStack() as stack:
        for _ in range(2):
            busy = stack.enter_context(server.connect())
            busy.sendall(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            assert server.asked.acquire(timeout=20)
        assert status_of(asked(server, GET + b"Connection: close\r\n\r\n")) == 200
        other = asked(server, b"GET /search HTTP/1.1\r\nHost: h\r\n\r\n")
        assert status_of(other) == 503
        assert b"retry-after: 1" in other


@contextmanager
def many_files(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, before[0]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def peak_memory(server: Server) -> int:
    """The peak memory of a process, in MB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def flood(server: Server, parts: Iterator[bytes]) -> int:
    """Send until the server refuses; return the status of its answer."""
    with socket.create_connection(("127.0.0.1", server.started["port"]), 20) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:
            pass
        return status_of(whole(connection))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    lake = DiskLake(tmp_path_factory.mktemp("lake"))
    lake.write()
    with serving(lake.config) as server:
        yield server


@pytest.mark.parametrize(
    "part",
    [lambda n: b"v" * 1_000_000, lambda n: b"X-%d: v\r\n" % n * 50_000],
    ids=["one header of 100 MB", "endless headers"],
)
def test_endless_headers_cost_no_memory(process: Server, part: Callable[[int], bytes]) -> None:
    before = peak_memory(process)
    assert flood(process, (GET + b"X: " if n == 0 else part(n) for n in range(101))) == 431
    assert peak_memory(process) - before < 20
    with process.client() as client:
        assert client.get("/health").status_code == 200


def test_health_is_answered_while_more_than_a_thousand_connections_are_idle(
    process: Server,
) -> None:
    address = ("127.0.0.1", process.started["port"])
    with many_files(4096), ExitStack() as stack:
        for _ in range(protocol.CONNECTIONS + 105):
            stack.enter_context(socket.create_connection(address, 20))
        with process.client() as client:
            for _ in range(3):
                assert client.get("/health").status_code == 200
                assert client.get("/ready").status_code == 200
