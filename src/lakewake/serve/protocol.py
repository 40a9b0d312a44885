"""Limits of connections: the size of a request's head, the time it may take, their number.

They apply before a key is checked. uvicorn and httptools have no such limits: the parser keeps an
unfinished header whole, and copies it with every packet.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakewake.serve.headers import CACHE, HEADERS
from lakewake.serve.logs import CLIENT

#: The most bytes of the request line and headers of one request, and the most headers.
MAX_HEAD, MAX_HEADERS = 65_536, 100
#: Bytes that an unfinished head may have beyond that, for method, version and blanks.
MARGIN = 1_000
#: The most bytes that the parser gets at once, so that it never holds more than MAX_HEAD and this.
SLICE = 65_536
#: Seconds for the head of a request, counted from the connection or the previous answer.
HEAD_SECONDS = 10.0
#: Seconds that a client may leave an answer unread.
UNREAD_SECONDS = 30.0
#: Seconds that a refused client may go on sending. Closed at once, it might lose the refusal.
LINGER_SECONDS = 2.0
#: The most connections at a time, and those beyond them that may only ask for `/health`.
CONNECTIONS, RESERVE = 1000, 100
#: Files that the process may open for purposes other than connections.
FILES = 256
#: Requests that one connection may send before the first of them is answered.
MAX_AHEAD = 32
OPEN = b"/health"


@dataclass
class Room:
    """What the connections of one server share.

    Attributes:
        waiting: connections without a complete request, the longest waiting first.
        changed: called whenever a connection begins or ends.
    """

    connections: int = CONNECTIONS
    head_seconds: float = HEAD_SECONDS
    unread_seconds: float = UNREAD_SECONDS
    waiting: dict[BoundedProtocol, None] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None


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
    """One connection, with limits on what may come before the application sees a request.

    A connection over the limit takes the place of the one that has waited longest without a
    request. If all others have one, it gets 503, unless it asks for `/health`.
    """

    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room = room
        #: Bytes that the parser took since its last callback.
        self._unseen = 0
        self._heading, self._reading = False, False
        self._header_count = 0
        self._refusal = b""
        self._refusal_sent = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, if necessary in place of another one."""
        super().connection_made(transport)
        if len(self.connections) > self._room.connections:
            self._take_a_place()
        self._room.changed()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_waiting()
        self._stop_unread()
        super().connection_lost(exc)
        self._room.changed()

    def _take_a_place(self) -> None:
        longest = next(iter(self._room.waiting), None)
        if longest is not None:
            longest._leave()
        elif len(self.connections) > self._room.connections + RESERVE:
            self.transport.abort()

    def _leave(self) -> None:
        """Make room for another connection."""
        self._stop_waiting()
        # Closing takes a turn of the loop. New connections must not count this one.
        self.connections.discard(self)
        self.transport.abort()

    # Input

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on to the parser, and stop if there are too many."""
        # Tasks that start here inherit it.
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
        """A header, or a trailer after the body, which is ignored."""
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._too_large()
        elif self._heading:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete: let the application answer, or refuse if there is no room."""
        self._unseen, self._heading = 0, False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD:
            self._too_large()
        if len(self.pipeline) >= MAX_AHEAD:
            self.transport.abort()
        if self._refusal or self.transport.is_closing():
            return
        # It may still lose its place to others until its body is complete.
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
        # `tasks` does not include the one that is about to start.
        crowd = len(self.connections) > limit or len(self.tasks) >= limit
        return not crowd or self.url.partition(b"?")[0] == OPEN

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """The bytes are not HTTP."""
        self._refuse(400, "this is not an HTTP request", "")

    def _too_large(self) -> None:
        fact = f"more than {MAX_HEAD:,} bytes of request line and headers, or {MAX_HEADERS} headers"
        self._refuse(431, fact, "send fewer and shorter headers")

    def _refuse(self, status: int, fact: str, hint: str) -> None:
        """Read nothing more, and send the refusal after the answers before it."""
        if self._refusal:
            return
        self._refusal = refusal_bytes(status, fact, hint)
        if self._answered:
            self._send_refusal()
        elif self._reading and not self._heading:
            self._break_off()

    def _break_off(self) -> None:
        """Refuse the request that is being answered, because its body is at fault."""
        if self.pipeline or self.cycle.response_started:
            self.transport.abort()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._send_refusal()

    @property
    def _answered(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _send_refusal(self) -> None:
        if self._refusal_sent or self.transport.is_closing():
            return
        self._refusal_sent = True
        self._stop_waiting()
        self.transport.write(self._refusal)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Ignore further input. If the connection closed at once, the refusal might not arrive.
        self._room.waiting[self] = None
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # Output

    def on_response_complete(self) -> None:
        """An answer is sent: wait for the next request, or send a pending refusal."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._answered:
            return
        if self._refusal:
            self._send_refusal()
        else:
            self._await_head()

    def _await_next(self) -> None:
        """Wait for the next request, if this one was answered before its body was complete."""
        if self._answered and self.cycle is not None and not self.transport.is_closing():
            self._await_head()

    def pause_writing(self) -> None:
        """The client does not read: close the connection after a while."""
        super().pause_writing()
        self._stop_unread()
        self._unread = self.loop.call_later(self._room.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_unread()
        super().resume_writing()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # Waiting for a request

    def _await_head(self) -> None:
        """Start the time limit for a complete head."""
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
            fact = f"the headers did not arrive within {self._room.head_seconds:g} s"
            self._refuse(408, fact, "send them in one go")
        elif not self.transport.is_closing():
            self.transport.close()


def refusal_bytes(status: int, fact: str, hint: str) -> bytes:
    """A complete response, after which the connection closes."""
    body = json.dumps({"error": fact, "hint": hint}).encode()
    headers = {**_plain_headers(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _plain_headers(length: int) -> Mapping[str, str]:
    content = {"Content-Type": "application/json", "Content-Length": str(length)}
    return {**HEADERS, "Cache-Control": CACHE, **content}


async def crowded(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The application that answers if there are too many connections."""
    body = json.dumps({"error": "too many connections", "hint": "try again in a moment"}).encode()
    plain = {**_plain_headers(len(body)), "Connection": "close", "Retry-After": "1"}
    headers = [(name.lower().encode(), value.encode()) for name, value in plain.items()]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
