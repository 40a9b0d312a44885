"""The worker processes of a server: one parent starts them, restarts them and stops them.

The parent answers no request. It binds the socket on which all workers accept connections, opens
the memory that they share, and owns the syncing process. Workers are new interpreters, not forks.
A worker writes one line of JSON on its standard output: that it is ready, or why it cannot serve.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from lakewake import errors
from lakewake.config.settings import ServeSettings
from lakewake.errors import LakewakeError
from lakewake.serve.alive import KeptAlive, Program
from lakewake.serve.following import Follower, FollowerState
from lakewake.serve.logs import dated
from lakewake.serve.opening import Part, ServeOptions, Started, listening
from lakewake.serve.shared import Shared, open_memory

if TYPE_CHECKING:
    from lakewake.progress import Reporter

#: A worker ends within four seconds by itself, and the server within five.
STOPS = ((4.5, signal.SIGKILL),)
#: The most seconds from a signal until the parent reacts.
LOOK = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Keys of the line that a worker writes.
READY, FAILED = "ready", "failed"


@dataclass(frozen=True)
class Event:
    """Something that the parent reacts to.

    Attributes:
        worker: whom it is about; None: the syncing process, or a signal.
        line: what the worker wrote, or what is said about its death.
        died: whether the worker died.
        stop: whether the server is to end.
    """

    worker: Worker | None = None
    line: str = ""
    died: bool = False
    stop: bool = False


class Worker(KeptAlive):
    """One worker process, as its parent sees it.

    Attributes:
        started: what it reported when it was ready; None: it is not ready.
        failure: why it cannot serve, if it said so.
    """

    def __init__(
        self, part: Part, command: tuple[str, ...], notify: Callable[[Event], None]
    ) -> None:
        self.number, self._notify = part.number, notify
        self.started: Mapping[str, Any] | None = None
        self.failure: LakewakeError | None = None
        files = part.listener, part.memory
        name = f"worker {part.number + 1}"
        super().__init__(Program(name, (*command, str(part)), STOPS, files, merged=False))

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._program.name

    def hear(self, line: str) -> None:
        """Pass a line on to the parent's main thread."""
        self._notify(Event(self, line.rstrip()))

    def died(self, line: str) -> None:
        """Let the parent's main thread know."""
        self._notify(Event(self, line, died=True))


class Crew:
    """All processes of a server. Everything but starting them happens in the main thread.

    Args:
        part: what every worker gets, besides its number.
        say: shows a line.
    """

    def __init__(
        self, workers: int, part: Part, options: ServeOptions, say: Callable[[str], None]
    ) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._shared, self._say = Shared(part.memory), say
        for number in range(workers):
            self._shared.forget(number)
        parts = (Part(n, part.listener, part.memory) for n in range(workers))
        self._workers = [Worker(p, options.worker, self._events.put) for p in parts]
        self._follower: Follower | None = None
        if options.follow:
            self._follower = Follower(options.follow, say)
            self._follower.on_change = lambda: self._events.put(Event())
        self._was_ready = False

    def start(self) -> None:
        """Start all processes."""
        for worker in self._workers:
            worker.start()
        if self._follower:
            self._follower.start()

    def until_ready(self) -> Mapping[str, Any]:
        """Wait until every worker is ready, and return what one of them reported.

        Raises:
            LakewakeError: one of them cannot serve.
        """
        while not all(worker.started for worker in self._workers):
            event = self._next()
            self._note(event)
            if event.worker and event.died:
                raise event.worker.failure or LakewakeError(
                    f"{event.worker.name} ended before it was ready",
                    hint="see what it wrote above, or serve with `--workers 1`",
                )
        self._was_ready = True
        self._report()
        return self._workers[0].started or {}

    def until_stopped(self) -> None:
        """React to what happens until a signal arrives."""
        while not (event := self._next()).stop:
            self._note(event)

    def _next(self) -> Event:
        # A signal that arrives just before it waits would be handled after it has waited.
        while True:
            with suppress(Empty):
                return self._events.get(timeout=LOOK)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take signals as the wish to end, also while it ends."""

        def stop(number: int, frame: FrameType | None) -> None:
            # It may interrupt a `get` or `put` of the same queue, which is allowed.
            self._events.put(Event(stop=True))

        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Stop all processes at the same time, gently at first."""
        every = [*self._workers, *([self._follower] if self._follower else [])]
        for one in every:
            one.ask_to_stop()
        for one in every:
            one.stop()

    def _note(self, event: Event) -> None:
        worker = event.worker
        if worker and event.died:
            worker.started = None
            self._shared.forget(worker.number)
            if self._was_ready:
                why = f": {worker.failure.fact}" if worker.failure else ""
                self._say(f"{event.line}{why}")
        elif worker and event.line:
            self._heard(worker, event.line)
        self._report()

    def _heard(self, worker: Worker, line: str) -> None:
        given = {}
        with suppress(ValueError):
            given = json.loads(line)
        if not isinstance(given, dict) or not {READY, FAILED} & given.keys():
            self._say(f"{worker.name}: {line}")
        elif FAILED in given:
            worker.failure = _as_error(given[FAILED])
        else:
            worker.started, worker.failure = given[READY], None

    def _report(self) -> None:
        """Let the workers know the state of all."""
        state: dict[str, Any] = {
            "ready": self._was_ready,
            "workers": sum(worker.started is not None for worker in self._workers),
            "restarts": sum(worker.restarts for worker in self._workers),
        }
        if self._follower:
            state["watch"] = self._follower.state.as_dict()
        self._shared.report(state)


class Reported:
    """The syncing process, as the parent reported it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    @property
    def state(self) -> FollowerState:
        """The state of the process now."""
        given = self._shared.state.get("watch")
        return FollowerState.of(given) if given else FollowerState(False, 0, ())


def was_ready(shared: Shared) -> bool:
    """Whether the server has answered already, so that this worker takes another one's place."""
    return bool(shared.state.get("ready"))


def supervise(
    settings: ServeSettings,
    options: ServeOptions,
    reporter: Reporter,
    announce: Callable[[Started], None],
) -> None:
    """Serve with several workers until SIGTERM or Ctrl-C.

    Raises:
        LakewakeError: the address cannot be used, or a worker cannot serve.
    """
    workers = settings.workers
    with listening(settings.host, settings.port) as listener, _memory(workers) as memory:
        crew = Crew(workers, Part(0, listener.fileno(), memory), options, dated(reporter))
        try:
            crew.start()
            with reporter.stage(f"start {workers} workers"):
                ready = crew.until_ready()
            started = Started(
                settings.host,
                listener.getsockname()[1],
                tuple(ready["indexes"]),
                bool(options.follow),
                settings.has_callers,
                workers,
                tuple(ready["unshared"]),
            )
            with crew.signals():
                announce(started)
                crew.until_stopped()
                # With the last of its owners the socket refuses connections.
                listener.close()
                crew.stop()
        finally:
            crew.stop()


@contextmanager
def _memory(workers: int) -> Iterator[int]:
    memory = open_memory(workers)
    try:
        yield memory
    finally:
        os.close(memory)


def _as_error(given: Mapping[str, Any]) -> LakewakeError:
    """The error that a worker described, of the same kind."""
    kind = getattr(errors, str(given["error"]), LakewakeError)
    error: LakewakeError = kind.__new__(kind)
    LakewakeError.__init__(error, given["fact"], hint=given["hint"], landed=given["landed"])
    return error
