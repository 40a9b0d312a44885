"""An embedding service that a test controls: a real HTTP server on this machine."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeVar

from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder
from support.http_server import listening

#: The server refuses this text.
BAD = "bad"


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 0.5]


def answer(texts: list[str]) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": vector(t)} for n, t in enumerate(texts)]}


@dataclass
class Service:
    """How each request is answered, in turn (the last answer repeats), and what was sent."""

    port: int = 0
    script: list[Callable[[Handler, list[str]], None]] = field(default_factory=list)
    requests: list[list[str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    encodings: list[str | None] = field(default_factory=list)
    #: Set when a client hung up on an answer.
    hung_up: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def embedder(self, **settings: Any) -> HttpEmbedder:
        given = {
            "name": "tiny",
            "dimension": 3,
            "key_env": "SERVICE_KEY",
            "timeout": 10,
            # One request at a time: a test then knows their order.
            "concurrency": 1,
            **settings,
        }
        url = f"http://127.0.0.1:{self.port}/v1"
        self.waits: list[float] = []
        return HttpEmbedder(ModelSettings(provider="http", url=url, **given), self.waits.append)


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as real services do."""

    protocol_version = "HTTP/1.1"
    service: Service

    def do_POST(self) -> None:
        assert self.path == "/v1/embeddings"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.service
        service.requests.append(body["input"])
        service.models.append(body["model"])
        service.keys.append(self.headers["Authorization"])
        service.encodings.append(self.headers["Accept-Encoding"])
        step = service.script[min(len(service.requests), len(service.script)) - 1]
        step(self, body["input"])

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def fine(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, json.dumps(answer(texts)).encode())


def status(code: int, text: str = "", **headers: str) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.reply(code, text.encode(), **headers)


def says(body: object) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.reply(200, json.dumps(body).encode())


def backwards(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, json.dumps({"data": answer(texts)["data"][::-1]}).encode())


def refuses_bad(handler: Handler, texts: list[str]) -> None:
    if any(BAD in text for text in texts):
        handler.reply(400, b'{"error": {"message": "I do not read that"}}')
    else:
        fine(handler, texts)


def hangs_up(handler: Handler, texts: list[str]) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def breaks_off(handler: Handler, texts: list[str]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    hangs_up(handler, texts)


def stalls(handler: Handler, texts: list[str]) -> None:
    handler.service.released.wait(30)
    handler.close_connection = True


def send_while_heard(handler: Handler, head: bytes, part: bytes, pause: float) -> None:
    handler.close_connection = True
    try:
        handler.wfile.write(head)
        while not handler.service.released.wait(pause):
            handler.wfile.write(part)
    except OSError:
        handler.service.hung_up.set()


def drips(handler: Handler, texts: list[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    send_while_heard(handler, head, b" ", 0.02)


def drips_headers(handler: Handler, texts: list[str]) -> None:
    send_while_heard(handler, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.02)


def never_ends(handler: Handler, texts: list[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n"
    send_while_heard(handler, head, b" " * 1_000_000, 0)


def zipped(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, gzip.compress(b" " * 10_000_000), Content_Encoding="gzip")


S = TypeVar("S", bound=Service)


@contextmanager
def running(service: S) -> Iterator[S]:
    """Run the service on a port of this machine while the context lasts."""
    with listening(type("Own", (Handler,), {"service": service})) as service.port:
        try:
            yield service
        finally:
            service.released.set()
