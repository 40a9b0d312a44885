"""The process of the server: check, listen, announce, serve, and stop within five seconds."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from lakewake.config.settings import ServeSettings
from lakewake.errors import ConfigError, IndexMissing
from lakewake.serve import asking
from lakewake.serve.app import build_app
from lakewake.serve.following import Follower
from lakewake.serve.headers import is_loopback
from lakewake.serve.keys import KeyRing
from lakewake.serve.logs import stamp, start_audit, start_log
from lakewake.serve.protocol import BoundedProtocol, make_room

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake
    from lakewake.progress import Reporter
    from lakewake.serve.tokens import Tokens

#: Seconds that running requests get after the server is asked to stop.
GRACE = 4
#: Models that run in this process. They are loaded before the first search.
LOADED = ("onnx", "sentence-transformers", "cross-encoder")


@dataclass(frozen=True)
class ServeOptions:
    """What a caller may ask of a server besides its settings.

    Attributes:
        follow: the command that keeps the indexes up to date while the server runs; empty: none.
        insecure: serve other machines without keys.
        verbose: log every request.
    """

    follow: tuple[str, ...] = ()
    insecure: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Started:
    """A server that accepts requests now."""

    host: str
    port: int
    indexes: tuple[dict[str, Any], ...]
    watch: bool
    keys: bool

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def as_dict(self) -> dict[str, Any]:
        """The object that `serve --json` prints."""
        return {
            "url": self.url,
            "host": self.host,
            "port": self.port,
            "indexes": list(self.indexes),
            "watch": self.watch,
            "keys": self.keys,
        }


def serve(
    lake: Lakewake,
    settings: ServeSettings,
    options: ServeOptions,
    reporter: Reporter,
    announce: Callable[[Started], None],
) -> bool:
    """Serve until SIGTERM or Ctrl-C. Returns False if a stalled search is still in its thread.

    Args:
        announce: called once, as soon as requests are accepted.

    Raises:
        ConfigError: the address cannot be used, or would be open to other machines without keys.
        IndexMissing: an index is not built, and `options.follow` does not build it.
        SetupError: a model is missing.
    """
    check_exposure(settings, options)
    keys = KeyRing(Path(settings.keys)) if settings.keys else None
    tokens = load_tokens(settings)
    with listening(settings.host, settings.port) as listener:
        for index in lake.values():
            prepare(index, reporter, needed=not options.follow)
        follower = Follower(options.follow, _dated(reporter)) if options.follow else None
        if settings.audit or settings.has_callers:
            start_audit(settings.audit)
        app = build_app(lake, settings, keys, tokens=tokens, follower=follower)
        server = _Server(_config(app, options), follower)
        server.on_start = lambda: announce(
            Started(
                settings.host,
                listener.getsockname()[1],
                tuple(asking.summary(i) for i in lake.values()),
                bool(options.follow),
                settings.has_callers,
            )
        )
        try:
            if follower:
                follower.start()
            server.run(sockets=[listener])
        finally:
            app.state.desk.close()
            if follower:
                follower.stop()
    return not app.state.desk.running


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


def _dated(reporter: Reporter) -> Callable[[str], None]:
    """Add the time to the output of the syncing process, as in the lines of the log."""
    return lambda line: reporter.say(f"{stamp()} {line}")


def check_exposure(settings: ServeSettings, options: ServeOptions) -> None:
    """Raise if the server would be open to other machines by accident.

    Raises:
        ConfigError: an address that other machines can reach needs keys, or `insecure`.
    """
    if settings.keys and options.insecure:
        raise ConfigError("--keys and --insecure-no-auth cannot be combined", hint="choose one")
    if settings.tokens and options.insecure:
        raise ConfigError(
            "--insecure-no-auth and [serve.tokens] cannot be combined", hint="choose one"
        )
    if not (is_loopback(settings.host) or settings.has_callers or options.insecure):
        raise ConfigError(
            f"on {settings.host} other machines could search without a key",
            hint="run `lakewake keys add keys.json NAME` and pass `--keys keys.json`, or pass "
            "--insecure-no-auth if that is intended",
        )


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on this address; port 0: any free port.

    Raises:
        ConfigError: the address or port cannot be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Name the protocol: otherwise asyncio leaves TCP's delay on, 40 ms per answer.
        listener, address = socket.socket(*found[:3]), found[4]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"there is no address {host!r} to listen on: {error}",
            hint="pass an address of this machine, such as --host 127.0.0.1",
        ) from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError as error:
            used = error.errno == errno.EADDRINUSE
            raise ConfigError(
                f"port {port} of {host} {'is in use' if used else f'cannot be used: {error}'}",
                hint="pass another `--port`; 0 takes any free port",
            ) from error
        yield listener


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


def _config(app: Any, options: ServeOptions) -> uvicorn.Config:
    start_log(verbose=options.verbose)
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=options.verbose,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        http=partial(BoundedProtocol, room=make_room()),  # type: ignore[arg-type]
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
