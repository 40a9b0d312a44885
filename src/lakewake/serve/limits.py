"""What one request may cost: bytes, characters, rows, threads and seconds."""

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
from lakewake.serve.shapes import RecommendBody, SearchBody

T = TypeVar("T")

#: How long a request waits for a free thread, and when one that got none may come again: seconds.
PATIENCE, RETRY_AFTER = 2.0, 1


@dataclass(frozen=True)
class _Ended:
    """The end of a stream, with the error that ended it."""

    error: BaseException | None = None


class Gate:
    """Runs blocking work in so many threads: no more at once, and nobody waits longer than told.

    A thread cannot be stopped. Work that takes too long keeps its thread until it ends by itself,
    so that what stalls cannot pile up either.

    Args:
        seconds: how long one piece of work is waited for.
        patience: how long a request waits for a thread.
        busy: what is said when there is none.
    """

    def __init__(
        self,
        threads: int,
        seconds: float,
        patience: float = PATIENCE,
        busy: str = "too many searches run at once",
    ) -> None:
        self.seconds = seconds
        self._patience, self._busy = patience, busy
        self._pool = ThreadPoolExecutor(threads, "lakewake-serve")
        self._free = asyncio.Semaphore(threads)
        self._running: set[Future[Any]] = set()

    @property
    def running(self) -> int:
        """How many threads are at work."""
        return len(self._running)

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns.

        Raises:
            Refused: no thread was free (429), or it took too long (504).
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        await self._begin(work, partial(_tell, answer))
        # Not `wait_for`: the work's own TimeoutError would look like ours.
        late = loop.call_later(self.seconds, _give_up, answer, self._too_slow())
        try:
            return await answer
        finally:
            late.cancel()

    async def stream(self, items: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Each item as soon as it is there; the thread stops at the next one when nobody listens.

        Raises:
            Refused: as `run` does.
        """
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[T | _Ended]()
        left = threading.Event()

        def put(item: T | _Ended) -> None:
            # The loop may be gone by the time that a slow source has its next item.
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
        """Take no more work; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _begin(self, work: Callable[[], T], tell: Callable[[Future[T]], None]) -> None:
        await self._thread()
        try:
            future = self._pool.submit(partial(_timed, self.seconds, work))
        except BaseException:
            self._free.release()
            raise
        self._running.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda f: self._over(f, loop, tell))

    async def _thread(self) -> None:
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
        tell: Callable[[Future[T]], None],
    ) -> None:
        """In the thread: its work is done, somebody else may have it."""
        self._running.discard(future)

        def over() -> None:
            self._free.release()
            tell(future)

        # Once for both: to wake the loop takes longer than what it then does.
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
    """In the thread: no service is waited for once nobody waits for the work."""
    with at_most(seconds):
        return work()


def _tell(answer: asyncio.Future[T], future: Future[T]) -> None:
    """What became of the work, where somebody still waits for it."""
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
    """Reads each body whole before anything else looks at it, up to so many bytes and seconds."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self._app, self._max_bytes, self._seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or len(told) > 18 or int(told) > self._max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                whole = await self._read(receive)
        except TimeoutError:
            fact = f"the body did not come within {self._seconds:g} s"
            raise Refused(408, "slow_body", fact) from None
        # Left already, while it was sending: there is nobody to answer.
        return None if whole is None else await self._app(scope, _replay(whole, receive), send)

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
            413, "too_large", f"the body is larger than {self._max_bytes:,} bytes", "ask for less"
        )


def _replay(whole: Message, receive: Receive) -> Receive:
    """The body once, then whatever comes after it."""
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


def check_recommend(body: RecommendBody, limits: ServeSettings) -> None:
    """Refuse a wish that asks for too much.

    Raises:
        Refused: 422.
    """
    _check_k(body.k, limits)
    _check_length("query", body.query, limits)
    _check_length("where", body.where, limits)


def _check_k(k: int, limits: ServeSettings) -> None:
    if k > limits.max_k:
        hint = "page on with `offset`, or raise `max_k` in [serve]"
        raise Refused(422, "shape", f"k is {k}, at most {limits.max_k} are told", hint)


def _check_length(name: str, text: object, limits: ServeSettings) -> None:
    if isinstance(text, str) and len(text) > limits.max_query_chars:
        fact = f"`{name}` has {len(text):,} characters, at most {limits.max_query_chars:,} are read"
        raise Refused(422, "shape", fact, "say it shorter, or raise `max_query_chars` in [serve]")
