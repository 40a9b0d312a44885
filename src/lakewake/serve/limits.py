"""Limits of one request: bytes, characters, rows, threads and seconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakewake.config.settings import ServeSettings
from lakewake.net.deadline import at_most
from lakewake.serve.refusals import Refused
from lakewake.serve.shapes import FacetsBody, RecommendBody, SearchBody

T = TypeVar("T")

#: Seconds that a request waits for a free thread, and after which a refused one may try again.
PATIENCE, RETRY_AFTER = 2.0, 1


@dataclass(frozen=True)
class _Ended:
    """The end of a stream, and the error that ended it, if any."""

    error: BaseException | None = None


class Gate:
    """Runs blocking work in a fixed number of threads, and limits how long a request waits.

    A thread cannot be stopped. Work that takes too long keeps its thread until it ends by itself,
    so stalled work cannot pile up.

    Args:
        seconds: how long a request waits for its work.
        patience: how long a request waits for a thread.
        busy: the error if no thread becomes free.
        changed: called whenever the number of working threads is another one.
    """

    def __init__(
        self,
        threads: int,
        seconds: float,
        patience: float = PATIENCE,
        busy: str = "too many searches are running",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.seconds = seconds
        self._patience, self._busy = patience, busy
        self._pool = ThreadPoolExecutor(threads, "lakewake-serve")
        self._free = asyncio.Semaphore(threads)
        self._running: set[Future[Any]] = set()
        self._changed = changed

    @property
    def running(self) -> int:
        """How many threads are working."""
        return len(self._running)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result.

        Raises:
            Refused: no thread became free (429), or the work took too long (504).
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        await self._begin(work, partial(_pass_on, answer))
        # Not `wait_for`: the work's own TimeoutError would look like ours.
        late = loop.call_later(self.seconds, _give_up, answer, self._too_slow())
        try:
            return await answer
        finally:
            late.cancel()

    async def stream(self, items: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Each item as soon as it is ready. If the client leaves, the thread stops at the next.

        Raises:
            Refused: as for `run`.
        """
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[T | _Ended]()
        left = threading.Event()

        def put(item: T | _Ended) -> None:
            # The loop may be closed by the time a slow source has its next item.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(queue.put_nowait, item)

        await self._begin(lambda: _pump(items, put, left), lambda _: None)
        deadline = loop.time() + self.seconds
        try:
            while not isinstance(item := await self._next(queue, deadline - loop.time()), _Ended):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            left.set()

    def close(self) -> None:
        """Accept no more work. Does not wait for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _begin(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        await self._thread()
        try:
            future = self._pool.submit(partial(_timed, self.seconds, work))
        except BaseException:
            self._free.release()
            raise
        self._running.add(future)
        self._changed()
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda f: self._over(f, loop, done))

    async def _thread(self) -> None:
        if not self._free.locked():
            # At once, so no time limit needs to be set.
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            again = {"Retry-After": str(RETRY_AFTER)}
            raise Refused(429, "busy", self._busy, "try again in a moment", again) from None

    def _over(
        self,
        future: Future[T],
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Future[T]], None],
    ) -> None:
        """Free the thread after its work. Called in the thread."""
        self._running.discard(future)
        self._changed()

        def over() -> None:
            self._free.release()
            done(future)

        # One call for both, because waking the loop is the slow part.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(over)

    async def _next(self, queue: asyncio.Queue[T], seconds: float) -> T:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await queue.get()
        except TimeoutError:
            raise self._too_slow() from None

    def _too_slow(self) -> Refused:
        return Refused(
            504,
            "too_slow",
            f"there was no answer within {self.seconds:g} s",
            "ask for less, or raise `timeout` in [serve]",
        )


def _timed(seconds: float, work: Callable[[], T]) -> T:
    """Do the work with a deadline for the services that it calls. Called in the thread."""
    with at_most(seconds):
        return work()


def _pass_on(answer: asyncio.Future[T], future: Future[T]) -> None:
    """Pass on the result of the work, if the request still waits for it."""
    if answer.done():
        return
    if future.cancelled():
        answer.cancel()
    elif error := future.exception():
        answer.set_exception(error)
    else:
        answer.set_result(future.result())


def _give_up(answer: asyncio.Future[Any], refused: Refused) -> None:
    if not answer.done():
        answer.set_exception(refused)


def _pump(
    items: Callable[[], Iterator[T]], put: Callable[[T | _Ended], None], left: threading.Event
) -> None:
    try:
        for item in items():
            if left.is_set():
                return
            put(item)
        put(_Ended())
    except BaseException as error:
        put(_Ended(error))


class BodyLimit:
    """Reads the whole body of each request first, within limits of bytes and seconds."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self._app, self._max_bytes, self._seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self._max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                whole = await self._read(receive)
        except TimeoutError:
            fact = f"the body did not arrive within {self._seconds:g} s"
            raise Refused(408, "slow_body", fact) from None
        # The client left while it was sending, so nobody waits for an answer.
        return None if whole is None else await self._app(scope, replay(whole, receive), send)

    async def _read(self, receive: Receive) -> Message | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return {"type": "http.request", "body": bytes(body), "more_body": False}

    def _too_large(self) -> Refused:
        return Refused(
            413, "too_large", f"the body is larger than {self._max_bytes:,} bytes", "send less"
        )


def replay(whole: Message, receive: Receive) -> Receive:
    """Delivers the body once, then what comes after it."""
    waiting = [whole]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def check_search(body: SearchBody, limits: ServeSettings) -> None:
    """Refuse a search that asks for too much.

    Raises:
        Refused: 422.
    """
    _check_k(body.k, limits)
    _check_length("text", body.text, limits)
    _check_length("where", body.where, limits)


def check_facets(body: FacetsBody, limits: ServeSettings) -> None:
    """Refuse a question that asks for too much.

    Raises:
        Refused: 422.
    """
    _check_length("text", body.text, limits)
    _check_length("where", body.where, limits)


def check_recommend(body: RecommendBody, limits: ServeSettings) -> None:
    """Refuse a question that asks for too much.

    Raises:
        Refused: 422.
    """
    _check_k(body.k, limits)
    _check_length("query", body.query, limits)
    for turn in body.conversation:
        _check_length("content", turn.content, limits)
    _check_length("where", body.where, limits)


def _check_k(k: int, limits: ServeSettings) -> None:
    if k > limits.max_k:
        hint = "get further pages with `offset`, or raise `max_k` in [serve]"
        raise Refused(422, "shape", f"k is {k}; the limit is {limits.max_k}", hint)


def _check_length(name: str, text: object, limits: ServeSettings) -> None:
    if isinstance(text, str) and len(text) > limits.max_query_chars:
        fact = f"`{name}` has {len(text):,} characters; the limit is {limits.max_query_chars:,}"
        raise Refused(422, "shape", fact, "shorten it, or raise `max_query_chars` in [serve]")
