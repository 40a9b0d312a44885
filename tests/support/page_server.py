"""The real server over a small index of the sample's wines, and a front that delays or fails.

Rows, commits, syncs, searches and answers are Lakewake's own. The front only does what a healthy
server does not do, if a test needs it: it holds an answer back, or refuses instead.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lakewake.api import Index, Sessions
from lakewake.cli.sync import JobDesk
from lakewake.config.settings import IndexSettings, ModelSettings, ServeSettings
from lakewake.embed.cache import MemoryVectorCache
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import EmbedError, TextRefused
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.progress import Silent
from lakewake.sample import wines
from lakewake.serve.app import build_app
from lakewake.serve.keys import KeyRing, add_key
from lakewake.source.memory import MemoryTable
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts
from support import chat_service
from support.serving import lake_of, wait_until

INDEX = "wines"
FIELDS = (TextField("text", "{title}. {description}"),)
PAYLOAD = ("title", "country", "variety", "points", "price")
MODEL = ModelSettings(provider="hashing", name="hashing", dimension=256)
RECIPE = Recipe(HashingEmbedder(MODEL).identity, FIELDS, payload=PAYLOAD)


class DatedTable(MemoryTable):
    """A memory table whose commits are dated by the real clock."""

    def _tick(self) -> str:
        now = datetime.datetime.now(datetime.UTC)
        # Instants are unique, but two commits of a test may fall into one millisecond.
        self._clock = max(self._clock + 1, int(now.strftime("%Y%m%d%H%M%S%f")[:17]))
        return str(self._clock)


class Moody(HashingEmbedder):
    """An embedder that fails while a reason is set, and refuses texts with a word."""

    failure = ""
    refused, reason = "", ""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.failure:
            raise EmbedError(self.failure, hint="try again")
        vectors = super().embed(texts)
        if odd := {
            n: self.reason for n, t in enumerate(texts) if self.refused and self.refused in t
        }:
            raise TextRefused("some are refused", odd, vectors)
        return vectors


@dataclass
class Fault:
    """An answer sent instead of the real one."""

    path: str
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Front:
    """Pass requests to the application, unless a test asks for something else.

    Attributes:
        asked: the searches received, as JSON.
        held: the answer to this query waits for its event.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.fault: Fault | None = None
        self.asked: list[dict[str, Any]] = []
        self.held: dict[str, threading.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self.fault
        if fault and scope["path"].endswith(fault.path):
            refusal = JSONResponse(dict(fault.body), fault.status, dict(fault.headers))
            await refusal(scope, receive, send)
        elif scope["path"].endswith("/search"):
            await self.app(scope, await self._noted(receive), send)
        else:
            await self.app(scope, receive, send)

    async def _noted(self, receive: Receive) -> Receive:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        question = json.loads(body)
        self.asked.append(question)
        if held := self.held.get(question.get("text") or ""):
            await asyncio.to_thread(held.wait, 20)
        first: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return first.pop() if first else await receive()

        return again


class PageServer:
    """`lakewake serve` in a thread, with methods and attributes for what a test changes."""

    def __init__(self, rows: int = 60) -> None:
        everything = wines(rows)
        self._rows = {row["wine_id"]: row for row in everything.to_pylist()}
        self._table = DatedTable(RECIPE, everything.schema)
        self._table.upsert({RowId("", key): row for key, row in self._rows.items()})
        self.embedder = Moody(MODEL)
        self._index = self._make_index()
        self.sync()
        self._front = Front(build_app(lake_of(self._index), ServeSettings(), None))
        self._closing = ExitStack()
        self._port = 0
        self.start()

    def _make_index(self) -> Index:
        # A history in memory belongs to its address, so each server needs its own.
        store = f"memory://{uuid4()}"
        settings = IndexSettings(INDEX, "lake", store, FIELDS, payload=PAYLOAD, model=MODEL)
        index = Index(settings, Sessions({}, None, False), Silent())
        cache = MemoryVectorCache()
        parts = IndexParts(INDEX, self._table, MemoryStore(), RECIPE, self.embedder, cache)
        index.__dict__["parts"] = parts
        return index

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        """Start the server, again at the same address."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(self._front, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        run = {"sockets": [listener]}
        self._thread = threading.Thread(target=self._server.run, kwargs=run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        """Stop listening."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)

    def close(self) -> None:
        """Stop the server and the model's service for good."""
        self.stop()
        self._closing.close()

    def change(self, key: str, **columns: Any) -> None:
        """Commit a change of one row to the table, and sync the index."""
        self.commit(key, **columns)
        self.sync()

    def commit(self, key: str, **columns: Any) -> None:
        """Commit a change of one row; the index stays behind."""
        none = dict.fromkeys(self._table._next_schema.names)
        self._rows[key] = {**none, **self._rows.get(key, {}), "wine_id": key, **columns}
        self._table.upsert({RowId("", key): self._rows[key]})

    def delete(self, key: str) -> None:
        """Delete a row from the table, and sync the index."""
        self._table.delete([RowId("", key)])
        self.sync()

    def sync(self) -> None:
        """Sync the index; a failure of the embedder is recorded in the history."""
        with suppress(EmbedError):
            self._index.sync()

    def attend(self) -> None:
        """Do a job that an operator asked for, as `lakewake sync --watch` does between rounds."""
        JobDesk(self._index, lambda _: None, None).attend()

    def lose_the_index(self) -> None:
        """Remove the index, as if it had not been built yet."""
        self._index.__dict__["parts"] = replace(self._index.parts, store=MemoryStore())

    def ask_for_a_key(self, file: Path, scope: str = "read", where: str = "") -> str:
        """Require an API key, and return it."""
        key = add_key(file, "reader", scope, where)
        self._front.app = build_app(lake_of(self._index), ServeSettings(), KeyRing(file))
        return key

    def recommend_by(self, answer: chat_service.Answer) -> chat_service.Service:
        """Have a chat service that answers like this write the recommendations."""
        service = self._closing.enter_context(chat_service.serving())
        service.script = [answer]
        self._index._chat = service.settings(key_env="")
        return service

    def hold(self, text: str) -> threading.Event:
        """Hold the answer to this query until the event is set."""
        return self._front.held.setdefault(text, threading.Event())

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The searches received, as JSON."""
        return self._front.asked

    def fail(self, fault: Fault | None) -> None:
        """Send this fault instead of matching answers; None: answer normally."""
        self._front.fault = fault
