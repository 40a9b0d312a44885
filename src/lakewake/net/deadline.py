"""A time limit for a whole operation, not only for each wait inside it."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

T = TypeVar("T")
_ENDS: ContextVar[float] = ContextVar("lakewake-ends", default=math.inf)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limit all requests to services inside to this many seconds in total, or to what is left."""
    token = _ENDS.set(min(_ENDS.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS.reset(token)


def ends() -> float:
    """When the caller's time is over, by the monotonic clock; infinite if there is no limit."""
    return _ENDS.get()


#: A request to remote storage that is not answered within this time has failed.
LOOK_SECONDS = 60.0


class TooLate(Exception):
    """The time is over."""


_given_up: list[threading.Thread] = []


def still_asking() -> bool:
    """Whether an abandoned request is still waiting for its answer."""
    return any(thread.is_alive() for thread in _given_up)


def look(question: Callable[[], T]) -> T:
    """What a request to remote storage returns, if that does not take too long.

    It runs in a thread of its own: Arrow waits outside Python, where no signal reaches it and its
    own retries can take many minutes. The thread of an abandoned request is left behind, so this
    is only for reads, never for a write.

    Raises:
        TimeoutError: no answer came in time. What `question` raises is raised as well.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((question(), None))
        except BaseException as error:
            answers.put((None, error))

    thread = threading.Thread(target=ask, daemon=True)
    try:
        # A signal may come while the thread starts: it is left behind then, too.
        thread.start()
        answer, error = answers.get(timeout=LOOK_SECONDS)
    except BaseException as stopped:
        _given_up[:] = [*(t for t in _given_up if t.is_alive()), thread]
        if isinstance(stopped, queue.Empty):
            raise TimeoutError(f"no answer within {LOOK_SECONDS:g} s") from None
        raise
    if error is not None:
        raise error
    return cast(T, answer)


class _End:
    """No more items; the error that ended them, if one did."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


def within(seconds: float, source: Iterator[T], stop: Callable[[], None]) -> Iterator[T]:
    """The items of `source` as they come, for `seconds` in total.

    They are made in a thread of their own: a socket's time limit starts again with every byte, so a
    peer that sends one now and then could hold us forever.

    Args:
        stop: called when no more items are wanted; makes the thread fail at its next step.

    Raises:
        TooLate: the time is over. What `source` raises is raised as well.
    """
    items: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    ends = time.monotonic() + seconds
    threading.Thread(target=_pass_on, args=(source, items), daemon=True).start()
    try:
        while True:
            item = _next(items, ends)
            if not isinstance(item, _End):
                yield item
            elif item.error is None:
                return
            else:
                raise item.error
    finally:
        stop()


def _next(items: queue.SimpleQueue[T | _End], ends: float) -> T | _End:
    try:
        return items.get(timeout=max(ends - time.monotonic(), 0))
    except queue.Empty:
        raise TooLate from None


def _pass_on(source: Iterator[T], items: queue.SimpleQueue[T | _End]) -> None:
    try:
        for item in source:
            items.put(item)
    except Exception as error:
        items.put(_End(error))
    else:
        items.put(_End())
