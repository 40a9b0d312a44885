"""The connection: how large the head of a request may be, how long it may take, how many there are.

All of it is decided before a key is looked at. uvicorn and httptools have no such limits: the
parser keeps an unfinished header whole, and copies it with every packet.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakewake.serve.headers import CACHE, HEADERS
from lakewake.serve.logs import CLIENT

#: Of one request: bytes of its request line and headers, and how many headers.
MAX_HEAD, MAX_HEADERS = 65_536, 100
#: What an unfinished head may have beyond that: a method, a version, blanks.
MARGIN = 1_000
#: The parser gets no more at once, so that it never holds more than MAX_HEAD and this.
SLICE = 65_536
#: Seconds for the head of a request: from the connection, or from the answer before it.
HEAD_SECONDS = 10.0
#: Seconds that a client may leave an answer unread.
UNREAD_SECONDS = 30.0
#: Seconds in which a refused client may still send: else the refusal would be lost with it.
LINGER_SECONDS = 2.0
#: Connections open at the same time, and those beyond them that only ask for `/health`.
CONNECTIONS, RESERVE = 1000, 100
#: Files that the process opens for other things than connections.
FILES = 256
#: Requests that one connection may send before the first of them is answered.
MAX_AHEAD = 32
OPEN = b"/health"


@dataclass
class Room:
    """What the connections of one server share.

    Attributes:
        waiting: connections without a whole request, the one that waits longest first.
    """

    connections: int = CONNECTIONS
    head_seconds: float = HEAD_SECONDS
    unread_seconds: float = UNREAD_SECONDS
    waiting: dict[BoundedProtocol, None] = field(default_factory=dict)


def make_room() -> Room:
    """Room for as many connections as this process may open files for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + RESERVE + FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = wanted if soft == resource.RLIM_INFINITY else soft
    return Room(max(min(CONNECTIONS, files - RESERVE - FILES), 1))


class BoundedProtocol(HttpToolsProtocol):
    """One connection, with bounds on what may come before the application sees a request.

    A connection past the limit takes the place of the one that has waited longest without a
    request. When all others run one, it is answered 503, unless it asks for `/health`.
    """

    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room = room
        #: Bytes that the parser took without a sign of what they are.
        self._unseen = 0
        self._heading, self._reading = False, False
        self._header_count = 0
        self._refusal = b""
        self._said = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, where need be in place of another one."""
        super().connection_made(transport)
        if len(self.connections) > self._room.connections:
            self._take_a_place()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_waiting()
        self._stop_unread()
        super().connection_lost(exc)

    def _take_a_place(self) -> None:
        longest = next(iter(self._room.waiting), None)
        if longest is not None:
            longest._leave()
        elif len(self.connections) > self._room.connections + RESERVE:
            self.transport.abort()

    def _leave(self) -> None:
        """Make place for another connection."""
        self._stop_waiting()
        # Closing takes a turn of the loop; connections that arrive meanwhile must not count it.
        self.connections.discard(self)
        self.transport.abort()

    # What comes in

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on to the parser, and stop where they are too many."""
        # Tasks that begin here take it with them.
        CLIENT.set(f"{self.client[0]}:{self.client[1]}" if self.client else "-")
        for start in range(0, len(data), SLICE):
            if self._refusal or self.transport.is_closing():
                return
            part = data[start : start + SLICE]
            self._unseen += len(part)
            super().data_received(part)
            if self._unseen > MAX_HEAD + MARGIN and not self._refusal:
                self._too_large()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._unseen, self._header_count = 0, 0
        self._heading, self._reading = True, True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer behind the body, which nobody reads."""
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._too_large()
        elif self._heading:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: let the application answer, or another where it may not."""
        self._unseen, self._heading = 0, False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD:
            self._too_large()
        if len(self.pipeline) >= MAX_AHEAD:
            self.transport.abort()
        if self._refusal or self.transport.is_closing():
            return
        # It may still lose its place to others until its body is there, too.
        self._stop_timer()
        self.app = self.config.loaded_app if self._has_room() else crowded
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body."""
        self._unseen = 0
        if not self._refusal:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._unseen, self._reading = 0, False
        if not self._refusal:
            self._stop_waiting()
            super().on_message_complete()
            self._await_next()

    def _has_room(self) -> bool:
        limit = self._room.connections
        # The task that is about to start is not among them yet.
        crowd = len(self.connections) > limit or len(self.tasks) >= limit
        return not crowd or self.url.partition(b"?")[0] == OPEN

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        self._refuse(400, "what was sent is not an HTTP request", "")

    def _too_large(self) -> None:
        fact = f"the request line and headers are more than {MAX_HEAD:,} bytes or {MAX_HEADERS}"
        self._refuse(431, fact, "send fewer and shorter headers")

    def _refuse(self, status: int, fact: str, hint: str) -> None:
        """Read nothing more, and say why once the answers before it are sent."""
        if self._refusal:
            return
        self._refusal = refusal_bytes(status, fact, hint)
        if self._answered:
            self._say_and_close()
        elif self._reading and not self._heading:
            self._break_off()

    def _break_off(self) -> None:
        """Refuse the very request that is being answered, its body is at fault."""
        if self.pipeline or self.cycle.response_started:
            self.transport.abort()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._say_and_close()

    @property
    def _answered(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _say_and_close(self) -> None:
        if self._said or self.transport.is_closing():
            return
        self._said = True
        self._stop_waiting()
        self.transport.write(self._refusal)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # What it still sends is thrown away: closed at once, the refusal might not arrive.
        self._room.waiting[self] = None
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # What goes out

    def on_response_complete(self) -> None:
        """An answer is sent: the next request may come, or the refusal that was held back."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._answered:
            return
        if self._refusal:
            self._say_and_close()
        else:
            self._await_head()

    def _await_next(self) -> None:
        """A request was answered before its body was there: only now can the next one come."""
        if self._answered and self.cycle is not None and not self.transport.is_closing():
            self._await_head()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._stop_unread()
        self._unread = self.loop.call_later(self._room.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads on."""
        self._stop_unread()
        super().resume_writing()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # Waiting for a request

    def _await_head(self) -> None:
        """Wait for a whole head from now on, whatever comes meanwhile."""
        self._stop_waiting()
        self._room.waiting[self] = None
        self._timer = self.loop.call_later(self._room.head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        self._room.waiting.pop(self, None)
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._stop_waiting()
        if self._heading:
            fact = f"the headers did not come within {self._room.head_seconds:g} s"
            self._refuse(408, fact, "send them at once")
        elif not self.transport.is_closing():
            self.transport.close()


def refusal_bytes(status: int, fact: str, hint: str) -> bytes:
    """A whole answer, for a connection that ends with it."""
    body = json.dumps({"error": fact, "hint": hint}).encode()
    headers = {**_plain_headers(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _plain_headers(length: int) -> Mapping[str, str]:
    content = {"Content-Type": "application/json", "Content-Length": str(length)}
    return {**HEADERS, "Cache-Control": CACHE, **content}


async def crowded(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The application while there are more connections than the limit."""
    body = json.dumps({"error": "too many connections", "hint": "try again in a moment"}).encode()
    told = {**_plain_headers(len(body)), "Connection": "close", "Retry-After": "1"}
    headers = [(name.lower().encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
