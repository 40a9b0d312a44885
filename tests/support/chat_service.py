"""A chat service on this machine that speaks the protocol and misbehaves on request."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from lakewake.config.settings import RecommendSettings
from lakewake.model.query import Hit, SearchResult
from support.http_server import listening

KEY_ENV = "CHAT_SERVICE_KEY"


def make_hit(key: str, text: str | None, score: float = 0.5, **payload: Any) -> Hit:
    return Hit(
        key=key,
        partition="p",
        score=score,
        similarity=score,
        text=text,  # type: ignore[arg-type]
        field="text",
        chunk=0,
        payload=payload,
    )


def make_result(*hits: Hit) -> SearchResult:
    return SearchResult(index="shop", instant="20250301120000000", hits=hits)


JACKET = make_hit(
    "j1", "A warm waterproof jacket. It has a hood.", 0.9, name="Gale Jacket", price=120.0, stock=4
)
TENT = make_hit("t1", "A roomy tent for families.", 0.6, name="Wren Tent", price=300.0, stock=2)
BOOTS = make_hit("b1", "Sturdy boots for scree.", 0.3, name="Ridge Boots", price=150.0, stock=9)


@dataclass
class Service:
    """How each request is answered, in turn (the last answer repeats), and what was sent."""

    port: int = 0
    script: list[Callable[[Handler], None]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    #: Set to release answers that stall.
    released: threading.Event = field(default_factory=threading.Event)
    #: Set when a client hung up on an answer.
    hung_up: threading.Event = field(default_factory=threading.Event)

    def settings(self, **given: Any) -> RecommendSettings:
        own = {"name": "tiny", "key_env": KEY_ENV, "timeout": 20.0, **given}
        return RecommendSettings(url=f"http://127.0.0.1:{self.port}/v1", **own)

    @property
    def prompt(self) -> str:
        """The last message with rows."""
        content: str = self.requests[-1]["messages"][-1]["content"]
        return content


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as real services do."""

    protocol_version = "HTTP/1.1"
    service: Service
    body: dict[str, Any]

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.service
        service.requests.append(self.body)
        service.headers.append(dict(self.headers))
        step = service.script[min(len(service.requests), len(service.script)) - 1]
        try:
            step(self)
        except OSError:
            self.close_connection = True
            service.hung_up.set()

    @property
    def rows(self) -> list[str]:
        """The rows of the prompt, found by the nonce that only real markers carry."""
        nonce = re.search(r"the word (\w+) are real", self.body["messages"][0]["content"])
        assert nonce
        marked = rf"<<row \d+ {nonce[1]}>>\n(.*?)\n<<end \d+ {nonce[1]}>>"
        return re.findall(marked, self.body["messages"][1]["content"], re.DOTALL)

    def reply(self, status: int, body: bytes, kind: str = "application/json", **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, kind: str = "text/event-stream") -> None:
        """Begin an answer of unknown length."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, text: str | None, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        self.data(json.dumps({"choices": [choice]}))

    def data(self, text: str) -> None:
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


Answer = Callable[[Handler], None]


def says(message: str | None, finish: str = "stop", pieces: int = 3) -> Answer:
    """Answer as requested: at once, or streamed in this many parts."""

    def answer(handler: Handler) -> None:
        if not handler.body["stream"]:
            choice = {"message": {"content": message}, "finish_reason": finish}
            handler.reply(200, json.dumps({"choices": [choice]}).encode())
            return
        handler.begin()
        handler.event(None)
        size = -(-len(message or "") // pieces) or 1
        for start in range(0, len(message or ""), size):
            handler.event((message or "")[start : start + size])
        handler.event(None, finish)
        handler.data("[DONE]")

    return answer


def status(code: int, text: str = "", **headers: str) -> Answer:
    return lambda handler: handler.reply(code, text.encode(), **headers)


def sends(body: bytes, kind: str = "application/json", **headers: str) -> Answer:
    return lambda handler: handler.reply(200, body, kind, **headers)


def stalls(handler: Handler) -> None:
    handler.begin()
    handler.service.released.wait(30)


def stalls_midway(handler: Handler) -> None:
    handler.begin()
    handler.event("The Gale Jacket is ")
    handler.service.released.wait(30)


def stalls_after(message: str) -> Answer:
    """Stream the whole message, and end the stream once released."""

    def answer(handler: Handler) -> None:
        handler.begin()
        handler.event(message)
        handler.service.released.wait(30)
        handler.event(None, "stop")
        handler.data("[DONE]")

    return answer


def drips(handler: Handler) -> None:
    """Send a byte now and then, so that no limit on a single wait ever expires."""
    handler.begin()
    while not handler.service.released.wait(0.02):
        handler.wfile.write(b":\n")


def breaks_off(handler: Handler) -> None:
    handler.begin()
    handler.event("The Gale Jacket is ")
    handler.event("warm [1], and it")


def hangs_up_midway(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.event("The Gale Jacket is ")
    hangs_up(handler)


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def never_ends(handler: Handler) -> None:
    handler.begin()
    while True:
        handler.event("and on and on " * 50)


def never_ends_in_one(handler: Handler) -> None:
    handler.begin("application/json")
    while True:
        handler.wfile.write(b'{"choices": [' + b" " * 100_000)


@contextmanager
def serving() -> Iterator[Service]:
    """Run the service."""
    service = Service()
    with listening(type("Own", (Handler,), {"service": service})) as service.port:
        try:
            yield service
        finally:
            service.released.set()
