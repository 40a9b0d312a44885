"""Small lakes to serve: real indexes over the memory table, and lakes for another process.

`DiskTable` keeps its rows in memory and its timeline on disk, as Hudi does, so that a server in
another process can look at a table that Spark did not write.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import numpy as np
from starlette.testclient import TestClient

from lakewake.api import Index, Lakewake, Sessions
from lakewake.config.settings import IndexSettings, ServeSettings, Settings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import Instant, Look
from lakewake.progress import Silent
from lakewake.serve.app import build_app
from lakewake.serve.keys import KeyRing
from lakewake.source.look import look_at, written_at
from lakewake.source.memory import MemoryTable
from lakewake.store import Store
from lakewake.store.lance.store import LanceStore
from lakewake.sync import IndexParts, sync
from support.sampling import HASHING, SCHEMA, rid, sample_parts, sample_recipe, values

URL = "http://127.0.0.1:8377"
WINES = {
    rid("smoky"): values("smoky red with leather", 30),
    rid("fresh"): values("fresh white with citrus", 12),
    rid("sweet"): values("sweet wine with honey", 20),
}
PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.timeline.path": "timeline",
}
COLUMNS = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "txt", "type": ["null", "string"]}, {"name": "num", "type": "long"}],
}
CONFIG = """
[[index]]
name = "sample"
table = "table"
text = "{txt}"
payload = ["num"]
model = {provider = "hashing", name = "hashing", dimension = 32}
"""


class Stalling(HashingEmbedder):
    """An embedder that stalls on texts that contain `stall`, until it is released.

    Attributes:
        stalled: one permit per stalled text.
    """

    def __init__(self) -> None:
        super().__init__(HASHING)
        self.let_go = threading.Event()
        self.stalled = threading.Semaphore(0)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if any("stall" in text for text in texts):
            self.stalled.release()
            assert self.let_go.wait(30)
        return super().embed(texts)


class DiskTable(MemoryTable):
    """A memory table whose timeline is in a folder, as Hudi writes it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(sample_recipe(), SCHEMA)
        self._folder = folder
        (folder / ".hoodie" / "timeline").mkdir(parents=True)
        text = "".join(f"{k}={v}\n" for k, v in PROPERTIES.items())
        (folder / ".hoodie" / "hoodie.properties").write_text(text)

    def _commit(self, requested: str, operation: str, rows: Mapping[RowId, Any]) -> str:
        super()._commit(requested, operation, rows)
        done = self.history.commits[-1].instant
        content = {"operationType": operation, "extraMetadata": {"schema": json.dumps(COLUMNS)}}
        file = self._folder / ".hoodie" / "timeline" / f"{requested}_{done.completed}.commit"
        file.with_suffix(".new").write_text(json.dumps(content))
        file.with_suffix(".new").rename(file)
        return requested

    def look(self, frontier: Frontier | None) -> Look:
        return look_at(str(self._folder), frontier)

    def written(self, look: Look, instant: Instant) -> float | None:
        return written_at(str(self._folder), look, instant)


class DiskLake:
    """A configuration on disk, its table, and an index that `sync` brings to the table's state."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "lakewake.toml"
        self.config.write_text(CONFIG)
        self.table = DiskTable(folder / "table")
        self.store = LanceStore(str(folder / "index"), "sample")
        self.parts = sample_parts(self.table, self.store)

    def write(self, rows: Mapping[RowId, Mapping[str, object]] = WINES) -> None:
        """Commit to the table, and sync the index."""
        self.table.upsert(rows)
        sync(self.parts)


def served_index(
    table: MemoryTable,
    store: Store | None = None,
    *,
    name: str = "sample",
    freshness: float | None = None,
    parts: Callable[[IndexParts], IndexParts] = lambda p: p,
) -> Index:
    """A real `Index` over a memory table."""
    settings = IndexSettings(
        name=name,
        table="/tables/sample",
        store="memory://sample",
        fields=(TextField("text", "{txt}"),),
        payload=("num",),
        model=HASHING,
        freshness=freshness,
    )
    index = Index(settings, Sessions({}, None, False), Silent())
    index.__dict__["parts"] = parts(replace(sample_parts(table, store), name=name))
    return index


def wine_index(**given: Any) -> tuple[Index, MemoryTable]:
    """An index of three wines, in step with its table."""
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert(WINES)
    index = served_index(table, **given)
    index.sync()
    return index, table


def lake_of(*indexes: Index) -> Lakewake:
    """A lake with these indexes."""
    settings = Settings(Path("lakewake.toml"), tuple(i.settings for i in indexes))
    lake = Lakewake(settings, Sessions({}, None, False), Silent())
    lake._indexes = {i.name: i for i in indexes}
    return lake


@contextmanager
def asking(
    *indexes: Index,
    keys: KeyRing | None = None,
    app: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Iterator[TestClient]:
    """A client of an application that serves these indexes."""
    built = build_app(lake_of(*indexes), ServeSettings(**limits), keys, **(app or {}))
    with TestClient(built, base_url=URL) as client:
        yield client


class Server:
    """A real `lakewake serve` on a free port."""

    def __init__(self, config: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "lakewake.cli.tethered", "serve", "--json", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--config", str(config), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.started: dict[str, Any] = json.loads(said) if said else {}

    @property
    def url(self) -> str:
        """The address of the server."""
        return str(self.started["url"]).replace("0.0.0.0", "127.0.0.1")

    def client(self, **given: Any) -> httpx2.Client:
        """An HTTP client of the server that ignores proxies."""
        return httpx2.Client(base_url=self.url, trust_env=False, timeout=30, **given)

    def connect(self) -> socket.socket:
        """A raw connection to the server, for bytes that no client would send."""
        return socket.create_connection(("127.0.0.1", self.started["port"]), 20)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float, str]:
        """Send a signal; return the exit code, the seconds it took, and the server's output."""
        began = monotonic()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, monotonic() - began, said


@contextmanager
def serving(config: Path, *flags: str, **given: Any) -> Iterator[Server]:
    """Run a server, and stop it whatever happens."""
    server = Server(config, *flags, **given)
    try:
        assert server.started, server.process.communicate()[1]
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition holds that another thread or process brings about."""
    give_up = monotonic() + seconds
    pause = threading.Event()
    while not true():
        assert monotonic() < give_up
        pause.wait(0.01)
