"""Where a Qdrant is, and one client for it in each process.

    qdrant://host:6333/wines    a server; qdrants:// and qdrant+https:// are the same over TLS
    qdrant+local://folder       the client's own mode, in a folder that one process uses at a time

The key is read from the environment when a client is made, so no address and no pickle holds it.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from lakewake.errors import ConfigError, StoreError
from lakewake.net.address import check_address

KEY_VARIABLE = "QDRANT_API_KEY"
PORT = 6333
#: How many seconds an answer may take.
TIMEOUT = 60
#: The first version with conditional writes: older servers would overwrite silently.
OLDEST_SERVER = (1, 16)
LOCAL_FOLDER = "qdrant"
_COLLECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class QdrantLocation(Protocol):
    """A Qdrant that can be connected to; can be pickled and compared."""

    @property
    def address(self) -> str:
        """Its address, for messages."""

    @property
    def reached_by_all(self) -> bool:
        """Whether other processes and machines can use it at the same time."""

    @property
    def has_indexes(self) -> bool:
        """Whether payload fields can be indexed."""

    def connect(self) -> Any:
        """A client: `qdrant_client.QdrantClient`, or an object with the methods that we use."""


@dataclass(frozen=True)
class QdrantServer:
    """A server, given the address of its REST API."""

    url: str
    timeout: int = TIMEOUT

    @property
    def address(self) -> str:
        return self.url

    @property
    def reached_by_all(self) -> bool:
        return True

    @property
    def has_indexes(self) -> bool:
        return True

    def connect(self) -> Any:
        """A client with the key from the environment.

        Raises:
            StoreError: the server is too old.
        """
        from qdrant_client import QdrantClient

        key = os.environ.get(KEY_VARIABLE) or None
        client = QdrantClient(
            url=self.url, api_key=key, timeout=self.timeout, check_compatibility=False
        )
        version = re.match(r"(\d+)\.(\d+)", client.info().version)
        if version and (int(version[1]), int(version[2])) < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise StoreError(
                f"Qdrant at {self.url} is version {version[0]}, an index needs {oldest} or newer",
                hint="update the server; older versions have no conditional writes",
            )
        return client


@dataclass(frozen=True)
class QdrantFolder:
    """The client's own mode: an index in a folder, for trials and small tables."""

    folder: str

    @property
    def address(self) -> str:
        return self.folder

    @property
    def reached_by_all(self) -> bool:
        return False

    @property
    def has_indexes(self) -> bool:
        return False

    def connect(self) -> Any:
        """A client that holds the folder until the process ends.

        Raises:
            StoreError: another process uses it.
        """
        from qdrant_client import QdrantClient

        try:
            return QdrantClient(path=self.folder, force_disable_check_same_thread=True)
        except RuntimeError as error:
            raise StoreError(
                f"the Qdrant folder {self.folder} is in use by another process",
                hint="wait until that process ends, or run a Qdrant server: qdrant://host:6333",
            ) from error


class Connections:
    """The clients of this process, one for each location, each with a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, QdrantLocation], tuple[Any, threading.RLock]] = {}

    def get(self, location: QdrantLocation) -> tuple[Any, threading.RLock]:
        """A client and its lock; a forked process has its own."""
        with self._lock:
            key = os.getpid(), location
            if key not in self._open:
                self._open[key] = location.connect(), threading.RLock()
            return self._open[key]

    def close(self, location: QdrantLocation) -> None:
        """Close the client of a location, if there is one."""
        with self._lock:
            client, _ = self._open.pop((os.getpid(), location), (None, None))
        if client is not None:
            client.close()

    def close_all(self) -> None:
        """Close all clients of this process."""
        for process, location in list(self._open):
            if process == os.getpid():
                self.close(location)


CONNECTIONS = Connections()
# To release a folder the client needs modules that are gone when the interpreter ends.
atexit.register(CONNECTIONS.close_all)


def local_folder(location: str, name: str) -> tuple[QdrantFolder, str]:
    """The folder of `qdrant+local://FOLDER`, and the name of the index's collections in it."""
    return QdrantFolder(str(Path(location) / LOCAL_FOLDER)), name


def server(scheme: str, location: str, name: str) -> tuple[QdrantServer, str]:
    """The server and the name of the collections of `qdrant://HOST:PORT/COLLECTION`.

    Without a collection, the index's name is used.

    Raises:
        ConfigError: the address has another form.
    """
    url = f"{scheme}://{location}"
    check_address(url, "the Qdrant store")
    parts = urlsplit(url)
    collection = parts.path.strip("/") or name
    try:
        port = parts.port or PORT
    except ValueError:
        port = 0
    sound = parts.hostname and port and not parts.query and not parts.fragment
    if not sound or not _COLLECTION.fullmatch(collection):
        raise ConfigError(
            f"store '{url}' is not an address of Qdrant",
            hint=f"write it as in {scheme}://host:{PORT}/wines",
        )
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    transport = "http" if scheme == "qdrant" else "https"
    return QdrantServer(f"{transport}://{host}:{port}"), collection
