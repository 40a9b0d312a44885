"""The process of the server: check, listen, announce, serve, and stop within five seconds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from lakewake.api.hot import is_held_alone
from lakewake.config.settings import ServeSettings
from lakewake.errors import IndexMissing
from lakewake.serve import asking
from lakewake.serve.accepting import Acceptor
from lakewake.serve.app import build_app
from lakewake.serve.following import Followed, Follower
from lakewake.serve.keys import KeyRing
from lakewake.serve.logs import dated, start_audit, start_log
from lakewake.serve.opening import (
    ServeOptions,
    Started,
    check_exposure,
    check_workers,
    listening,
    share_of,
)
from lakewake.serve.protocol import BoundedProtocol, Room, make_room
from lakewake.serve.shared import Shared
from lakewake.serve.workers import Reported, supervise, was_ready

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake
    from lakewake.progress import Reporter
    from lakewake.serve.tokens import Tokens

#: Seconds that running requests get after the server is asked to stop.
GRACE = 4
#: Models that run in this process. They are loaded before the first search.
LOADED = ("onnx", "sentence-transformers", "cross-encoder")


def serve(
    lake: Lakewake,
    settings: ServeSettings,
    options: ServeOptions,
    reporter: Reporter,
    announce: Callable[[Started], None],
) -> bool:
    """Serve until SIGTERM or Ctrl-C. Returns False if a stalled search is still in its thread.

    With several workers, this process starts them and answers nothing itself.

    Args:
        announce: called once, as soon as requests are accepted.

    Raises:
        ConfigError: the address cannot be used, or would be open to other machines without keys.
        IndexMissing: an index is not built, and `options.follow` does not build it.
        SetupError: a model is missing.
    """
    check_exposure(settings, options)
    if options.part is not None:
        return _work(lake, settings, options, reporter, announce)
    check_workers({index.name: index.settings.store for index in lake.values()}, settings)
    if settings.workers > 1 and options.worker:
        supervise(settings, options, reporter, announce)
        return True
    follower = Follower(options.follow, dated(reporter)) if options.follow else None
    with listening(settings.host, settings.port) as listener:
        place = _Place(listener, Shared(), follower, announce, needed=not options.follow)
        return _answer(lake, settings, options, reporter, place)


@dataclass(frozen=True)
class _Place:
    """Where the answers of this process come and go.

    Attributes:
        followed: the syncing process, if there is one. This process owns it if it is a `Follower`.
        announce: called once, as soon as requests are accepted.
        needed: whether an index that is not built is an error.
    """

    listener: socket.socket
    shared: Shared
    followed: Followed | None
    announce: Callable[[Started], None]
    needed: bool

    @property
    def follower(self) -> Follower | None:
        """The syncing process, if this process owns it."""
        return self.followed if isinstance(self.followed, Follower) else None


def _work(
    lake: Lakewake,
    settings: ServeSettings,
    options: ServeOptions,
    reporter: Reporter,
    announce: Callable[[Started], None],
) -> bool:
    """Serve as one of several workers."""
    part = options.part
    assert part is not None
    shared = Shared(part.memory, part.number)
    share = share_of(settings.concurrent, part.number, shared.workers)
    followed = Reported(shared) if options.follow else None
    # A worker that is started again serves whatever is there, as the one before it did.
    needed = not options.follow and not was_ready(shared)
    with socket.socket(fileno=part.listener) as listener:
        place = _Place(listener, shared, followed, announce, needed)
        return _answer(lake, replace(settings, concurrent=share), options, reporter, place)


def _answer(
    lake: Lakewake,
    settings: ServeSettings,
    options: ServeOptions,
    reporter: Reporter,
    place: _Place,
) -> bool:
    """Answer requests until a signal. Returns False if a stalled search is still in its thread."""
    keys = KeyRing(Path(settings.keys)) if settings.keys else None
    tokens = load_tokens(settings)
    for index in lake.values():
        prepare(index, reporter, needed=place.needed)
    if settings.audit or settings.has_callers:
        start_audit(settings.audit)
    followed, shared = place.followed, place.shared
    app = build_app(lake, settings, keys, tokens=tokens, follower=followed, shared=shared)
    room = make_room()
    config = _config(app, options, room)
    if options.part is None:
        server = _Server(config, place.follower)
    else:
        server = _Worker(config, place, room)
    server.on_start = lambda: place.announce(_started(lake, settings, options, place))
    try:
        if place.follower:
            place.follower.start()
        server.run(sockets=[place.listener])
    finally:
        app.state.desk.close()
        if place.follower:
            place.follower.stop()
    return not app.state.desk.running


def _started(
    lake: Lakewake, settings: ServeSettings, options: ServeOptions, place: _Place
) -> Started:
    found = tuple(asking.summary(index) for index in lake.values())
    return Started(
        settings.host,
        place.listener.getsockname()[1],
        found,
        bool(options.follow),
        settings.has_callers,
        unshared=() if options.part is None else _unshared(lake, found),
    )


def _unshared(lake: Lakewake, found: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The indexes that this worker holds in memory for itself."""
    sizes = {summary["name"]: summary["chunks"] for summary in found}
    return tuple(n for n, chunks in sizes.items() if is_held_alone(lake[n].settings, chunks))


def load_tokens(settings: ServeSettings) -> Tokens | None:
    """What checks the tokens of `[serve.tokens]`; None if there is no such section.

    Raises:
        ConfigError: the filter or the file of keys cannot be used.
        SetupError: the extra is not installed.
    """
    if settings.tokens is None:
        return None
    from lakewake.serve.tokens import Tokens, check_tokens

    check_tokens(settings.tokens)
    found = Tokens(settings.tokens)
    # Before the first request: others that come while it waits for the keys would be refused.
    found.refresh()
    return found


def prepare(index: Index, reporter: Reporter, *, needed: bool) -> None:
    """Open the index and load its model before the first search.

    Raises:
        IndexMissing: the index is needed but not built.
    """
    try:
        with index.view():
            # In a thread: until it is done, the store answers.
            index.warm(0)
    except IndexMissing as missing:
        if needed:
            hint = f"build it with `lakewake sync {index.name}` or `lakewake serve --watch`"
            raise IndexMissing(missing.fact, hint=hint) from missing
    model, reranker = index.settings.model, index.settings.rerank
    if model.provider in LOADED:
        with reporter.stage(f"load {model.name}"):
            index.embedder.embed(["ready"])
    if reranker is not None and reranker.provider in LOADED:
        with reporter.stage(f"load {reranker.name}"):
            index.reranker.score("ready", ["ready"])


def _config(app: Any, options: ServeOptions, room: Room) -> uvicorn.Config:
    start_log(verbose=options.verbose)
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=options.verbose,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        http=partial(BoundedProtocol, room=room),  # type: ignore[arg-type]
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    """Announces when it accepts requests, and exits normally after a signal."""

    def __init__(self, config: uvicorn.Config, follower: Follower | None) -> None:
        super().__init__(config)
        self._follower = follower
        self.on_start: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests."""
        await super().startup(sockets=sockets)
        self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let running requests finish, and ask the syncing process to stop meanwhile."""
        super().handle_exit(sig, frame)
        if self._follower:
            self._follower.ask_to_stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals. Unlike uvicorn, do not raise them again at the end."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


class _Worker(_Server):
    """Accepts its share of the connections."""

    def __init__(self, config: uvicorn.Config, place: _Place, room: Room) -> None:
        super().__init__(config, None)
        self._listener, self._shared, self._room = place.listener, place.shared, room

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests."""
        state = self.server_state
        # As uvicorn does, which would take every connection that is waiting.
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        given = {"config": self.config, "server_state": state, "app_state": self.lifespan.state}
        make = partial(kind, **given)
        acceptor = Acceptor(self._listener, make, self._shared, lambda: len(state.connections))
        self._room.changed = acceptor.note
        await super().startup(sockets=[])
        self.servers.append(acceptor)  # type: ignore[arg-type]
