"""What a server is asked for, where it listens, and what it reports once it is ready."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakewake.config.settings import ServeSettings
from lakewake.errors import ConfigError
from lakewake.serve.headers import is_loopback

#: Stores that Qdrant's client opens in a folder which it locks.
ALONE = "qdrant+local://"


@dataclass(frozen=True)
class Part:
    """What a worker gets from its parent.

    Attributes:
        number: which of the workers it is, from 0.
        listener: the open file of the socket that all of them listen on.
        memory: the open file of the memory that all of them share.
    """

    number: int
    listener: int
    memory: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """The part that `str` wrote."""
        return cls(*(int(number) for number in text.split(":")))

    def __str__(self) -> str:
        return f"{self.number}:{self.listener}:{self.memory}"


def share_of(whole: int, number: int, workers: int) -> int:
    """How much of a limit a worker gets: all together get the whole, but each at least 1."""
    return max(whole // workers + (number < whole % workers), 1)


@dataclass(frozen=True)
class ServeOptions:
    """What a caller may ask of a server besides its settings.

    Attributes:
        follow: the command that keeps the indexes up to date while the server runs; empty: none.
        insecure: serve other machines without keys.
        verbose: log every request.
        worker: the command of a worker process, which gets a `Part` as its last argument; empty:
            this process serves alone, however many workers the settings ask for.
        part: this process is a worker, and this is its part.
    """

    follow: tuple[str, ...] = ()
    insecure: bool = False
    verbose: bool = False
    worker: tuple[str, ...] = ()
    part: Part | None = None


@dataclass(frozen=True)
class Started:
    """A server that accepts requests now.

    Attributes:
        unshared: the indexes that each worker holds in memory for itself.
    """

    host: str
    port: int
    indexes: tuple[dict[str, Any], ...]
    watch: bool
    keys: bool
    workers: int = 1
    unshared: tuple[str, ...] = ()

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
            "workers": self.workers,
        }


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


def check_workers(stores: Mapping[str, str], settings: ServeSettings) -> None:
    """Raise if several processes cannot open an index.

    Args:
        stores: the name of each index → where it is stored.

    Raises:
        ConfigError: one of them is in a folder that a single process may open.
    """
    alone = [name for name, store in stores.items() if store.startswith(ALONE)]
    if settings.workers > 1 and alone:
        raise ConfigError(
            f"several workers cannot open index '{alone[0]}': only one process can open its folder",
            hint="serve with `--workers 1`, or keep the index in a Qdrant server or in Lance",
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
