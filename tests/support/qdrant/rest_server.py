"""A server with the part of Qdrant's REST API that the store uses; it misbehaves on request.

The client's local mode is behind it, so Qdrant's own code makes the answers.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, TypeAdapter
from qdrant_client import QdrantClient, models

from lakewake.store.qdrant.location import QdrantServer

#: What may be done to a request, given its number, method and path, and how to continue.
Mischief = Callable[["Request"], None]
_ALIASES = TypeAdapter(list[models.AliasOperations])


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, status: int, said: str = "no", **headers: str) -> None:
        super().__init__(said)
        self.status, self.headers = status, {k.replace("_", "-"): v for k, v in headers.items()}


class Hangup(Exception):
    """No answer at all."""


class Request:
    """A request in flight; `do` applies it, once."""

    def __init__(self, number: int, method: str, path: str, do: Callable[[], Any]) -> None:
        self.number, self.method, self.path, self.do = number, method, path, do


def honest(request: Request) -> None:
    """Apply the request normally."""


class RestServer:
    """A running server on this machine.

    Attributes:
        mischief: called for each request that is not about its version.
        requests: method and path of those, in order.
    """

    def __init__(
        self, folder: Path | None = None, *, key: str = "", certificate: Path | None = None
    ) -> None:
        self.client = (
            QdrantClient(path=str(folder), force_disable_check_same_thread=True)
            if folder
            else QdrantClient(":memory:")
        )
        self.version, self.key = "1.20.0", key
        self.mischief: Mischief = honest
        self.requests: list[tuple[str, str]] = []
        self.released = threading.Event()
        self.lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def location(self, timeout: int = 60) -> QdrantServer:
        return QdrantServer(f"{self.scheme}://127.0.0.1:{self.port}", timeout)

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self.client.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: RestServer

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server, path = self.server_of, unquote(urlsplit(self.path).path)
        status, said, headers = 200, None, {}
        try:
            if server.key and self.headers.get("api-key") != server.key:
                raise Refused(401)
            said = self._answer(server, path, body)
        except Refused as refused:
            status, said, headers = refused.status, {"error": str(refused)}, refused.headers
        except Hangup:
            # With a reset, as if the other side had died.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            with suppress(OSError):
                self.connection.close()
            return
        self._send(status, said, headers)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _answer(self, server: RestServer, path: str, body: bytes) -> Any:
        if path == "/":
            return {"title": "qdrant", "version": server.version}
        done: list[Any] = []

        def do() -> Any:
            if not done:
                with server.lock:
                    done.append(_apply(server.client, self.command, path, body))
            return done[0]

        server.requests.append((self.command, path))
        server.mischief(Request(len(server.requests), self.command, path, do))
        return {"result": _plain(do()), "status": "ok", "time": 0.0}

    def _send(self, status: int, said: Any, headers: dict[str, str]) -> None:
        text = json.dumps(said).encode()
        with suppress(OSError):
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)


def _plain(value: Any) -> Any:
    return json.loads(value.model_dump_json()) if isinstance(value, BaseModel) else value


def _apply(client: QdrantClient, method: str, path: str, body: bytes) -> Any:
    """Apply a request to the local mode.

    Raises:
        Refused: the collection does not exist, or exists already.
    """
    match path.strip("/").split("/"):
        case ["collections"]:
            return client.get_collections()
        case ["aliases"]:
            return client.get_aliases()
        case ["collections", "aliases"]:
            return client.update_collection_aliases(
                _ALIASES.validate_python(json.loads(body)["actions"])
            )
        case ["collections", name, "exists"]:
            return {"exists": client.collection_exists(name)}
        case ["collections", name]:
            return _collection(client, method, name, body)
        case ["collections", name, *rest]:
            if not client.collection_exists(name):
                raise Refused(404, f"Collection `{name}` doesn't exist!")
            return _points(client, name, method, "/".join(rest), body)
    raise Refused(404, f"no {path}")


def _collection(client: QdrantClient, method: str, name: str, body: bytes) -> Any:
    if method == "GET":
        if not client.collection_exists(name):
            raise Refused(404, f"Collection `{name}` doesn't exist!")
        return client.get_collection(name)
    if method == "DELETE":
        return bool(client.delete_collection(name))
    if client.collection_exists(name):
        raise Refused(409, f"Collection `{name}` already exists!")
    asked = models.CreateCollection.model_validate_json(body)
    return bool(client.create_collection(name, vectors_config=asked.vectors))


DONE = {"operation_id": 1, "status": "completed"}


def _points(client: QdrantClient, name: str, method: str, what: str, body: bytes) -> Any:
    if (method, what) == ("PUT", "index"):
        models.CreateFieldIndex.model_validate_json(body)
        return DONE
    if (method, what) == ("PUT", "points"):
        asked = models.PointsList.model_validate_json(body)
        assert asked.update_filter is not None
        client.upsert(name, asked.points, update_filter=asked.update_filter)
        return DONE
    if what == "points/payload":
        given = models.SetPayload.model_validate_json(body)
        call = client.set_payload if method == "POST" else client.overwrite_payload
        call(name, given.payload, points=given.filter)
        return DONE
    if what == "points/delete":
        client.delete(name, models.FilterSelector.model_validate_json(body))
        return DONE
    return _found(client, name, what, body)


def _each(batch: models.QueryRequestBatch) -> list[bytes]:
    return [one.model_dump_json(exclude_none=True).encode() for one in batch.searches]


def _found(client: QdrantClient, name: str, what: str, body: bytes) -> Any:
    if what == "points":
        wanted = models.PointRequest.model_validate_json(body)
        found = client.retrieve(name, wanted.ids, wanted.with_payload, bool(wanted.with_vector))
        return [_plain(record) for record in found]
    if what == "points/count":
        return client.count(name, models.CountRequest.model_validate_json(body).filter)
    if what == "points/scroll":
        scroll = models.ScrollRequest.model_validate_json(body)
        page, after = client.scroll(
            name,
            scroll.filter,
            scroll.limit or 10,
            offset=scroll.offset,
            with_payload=scroll.with_payload,
            with_vectors=scroll.with_vector or False,
        )
        return {"points": [_plain(r) for r in page], "next_page_offset": after}
    if what == "points/query/batch":
        batch = models.QueryRequestBatch.model_validate_json(body)
        return [_plain(_found(client, name, "points/query", one)) for one in _each(batch)]
    assert what == "points/query"
    query = models.QueryRequest.model_validate_json(body)
    return client.query_points(
        name,
        query=query.query,
        query_filter=query.filter,
        limit=query.limit or 10,
        with_payload=query.with_payload,
        with_vectors=query.with_vector or False,
    )
