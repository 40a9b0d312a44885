"""The application: its paths, and the checks in front of them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakewake.config.settings import ServeSettings
from lakewake.errors import LakewakeError
from lakewake.model.shapes import Job, SearchAnswer
from lakewake.serve import asking, shapes
from lakewake.serve.callers import Rates, Views, audited
from lakewake.serve.headers import KeyCheck, KnownHosts, SecurityHeaders, hosts_of, is_loopback
from lakewake.serve.keys import KeyRing
from lakewake.serve.limits import (
    BodyLimit,
    Gate,
    check_facets,
    check_recommend,
    check_search,
    replay,
)
from lakewake.serve.metrics import CONTENT_TYPE, Metrics
from lakewake.serve.page import PageFile, read_page
from lakewake.serve.refusals import Json, Refused, misshapen, refusal, refused_by
from lakewake.serve.remote import Remote
from lakewake.serve.shared import Shared
from lakewake.show.plain import json_value
from lakewake.show.redact import without_secrets

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.serve.following import Followed
    from lakewake.serve.tokens import Tokens

_log = logging.getLogger("lakewake.serve")
T = TypeVar("T")

#: Threads for status, history and metrics, so that stalled searches do not stall these.
LOOKING = 4
#: Threads for facets, which read whole columns, so that readiness does not wait for them.
COUNTING = 2
#: A recommendation may take this many times the time limit, because a model writes it.
WRITING = 4
Limit = Annotated[int, Query(ge=1, le=1000, description="The most entries to return.")]
EVENTS = "text/event-stream"
#: The path of a search, around the name of the index.
BEFORE, AFTER = "/indexes/", "/search"
BUSY_MODEL = "too many searches are waiting for the model"

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": shapes.Refusal, "description": text}
    for status, text in {
        400: "The question or the Host header is not valid.",
        401: "A key is needed.",
        403: "The key lacks the scope, or the request comes from a page of another site.",
        422: "The request does not have this shape, or asks for too much.",
        429: "Too many requests at once; `Retry-After` says when to try again.",
        503: "The index is missing or damaged, or the model cannot be reached.",
        504: "The answer took longer than the time limit.",
    }.items()
}
_ONE = _REFUSALS | {
    404: {"model": shapes.Refusal, "description": "There is no index with that name."}
}
_ASK = _ONE | {
    408: {"model": shapes.Refusal, "description": "The body arrived too slowly."},
    413: {"model": shapes.Refusal, "description": "The body is too large."},
}
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["piece", "answer", "error"]},
        "data": {"type": "string", "description": "JSON: a text, the whole answer, or a refusal."},
    },
}
_STREAM = _ASK | {200: {"content": {EVENTS: {"schema": _EVENT}}}}
_TEXT = _REFUSALS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


def build_app(
    indexes: Mapping[str, Index],
    settings: ServeSettings,
    keys: KeyRing | None,
    *,
    tokens: Tokens | None = None,
    follower: Followed | None = None,
    shared: Shared | None = None,
    page: Mapping[str, PageFile] | None = None,
) -> FastAPI:
    """The application for the indexes of a configuration.

    Args:
        keys: the accepted API keys; None: no key is needed, unless there are tokens.
        tokens: the accepted tokens; None: there are none.
        follower: the process that keeps the indexes up to date; None: there is none.
        shared: the memory of all processes of the server; None: this is the only one.
        page: path → file; by default the page that comes with the package.
    """
    keyed = keys is not None or tokens is not None
    views = Views(indexes, keyed=keyed)
    shared = shared or Shared()
    desk = Desk(views, settings, follower, shared, shows=keyed or is_loopback(settings.host))
    app = FastAPI(
        title="Lakewake",
        summary="Vector indexes that follow Apache Hudi tables, commit by commit.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.desk = desk
    app.router.route_class = _Route
    _add_routes(app, desk)
    if settings.mcp:
        gates = desk.recommending, desk.modelling
        app.router.routes.append(Remote(views, gates, settings.max_body_bytes).route)
    files = read_page() if page is None else page
    for path, file in files.items():
        app.add_route(path, _endpoint(file), include_in_schema=False)
    _add_handlers(app, desk)
    # The middleware added last sees a request first.
    app.add_middleware(SearchDoor, desk)
    app.add_middleware(BodyLimit, settings.max_body_bytes, settings.timeout)
    if keyed:
        needs = partial(scope_for, frozenset({"/health", *files}))
        rates = Rates(settings.rate, shared=shared)
        app.add_middleware(KeyCheck, keys, needs, rates, tokens)
    hosts = hosts_of(settings.host, settings.allowed_hosts, keyed=keyed)
    app.add_middleware(KnownHosts, hosts, numbers=not is_loopback(settings.host))
    app.add_middleware(LastResort, desk)
    app.add_middleware(SecurityHeaders)
    _describe(app, indexes, keyed=keyed)
    return app


def scope_for(open_paths: frozenset[str], path: str) -> str | None:
    """The scope that a path needs; None if it needs no key."""
    if path in open_paths:
        return None
    return "admin" if path == "/metrics" else "read"


class Desk:
    """Receives the requests and answers them in threads, for what the caller may see."""

    def __init__(
        self,
        views: Views,
        settings: ServeSettings,
        follower: Followed | None,
        shared: Shared,
        *,
        shows: bool,
    ) -> None:
        self._views, self._limits, self._follower = views, settings, follower
        self._shows_metrics, self._shared = shows, shared
        self._noting = threading.Lock()
        seconds, gate = settings.timeout, partial(Gate, changed=self._note_running)
        self.searching = gate(settings.concurrent, seconds)
        # A separate gate: if the model is slow or gone, searches that do not need it go on.
        self.modelling = gate(settings.concurrent, seconds, busy=BUSY_MODEL)
        self.recommending = gate(settings.concurrent, seconds * WRITING)
        self.looking, self.counting = gate(LOOKING, seconds), gate(COUNTING, seconds)
        self.metrics = Metrics(views.unlimited, shared, self._restarts)

    @property
    def running(self) -> int:
        """How many threads are working."""
        return sum(gate.running for gate in self._gates)

    @property
    def _gates(self) -> tuple[Gate, ...]:
        return self.searching, self.modelling, self.recommending, self.looking, self.counting

    def _note_running(self) -> None:
        # Counted under the lock, so that the last one that writes has seen all others.
        with self._noting:
            self._shared.set_running(self.running)

    def close(self) -> None:
        """Accept no more work. Does not wait for running work."""
        for gate in self._gates:
            gate.close()

    async def search(self, name: str, body: shapes.SearchBody) -> Response:
        """The best rows of an index, and the table commit that they are from."""
        index = self._index(name)
        check_search(body, self._limits)
        began = perf_counter()
        gate = self.modelling if asking.needs_model(index, body) else self.searching
        row = [body.like.partition, body.like.key] if body.like else None
        more = {"row": row, "where": body.where, "mode": body.mode}
        with audited(self._views, "search", name, body.text, **more):
            answer = await gate.run(lambda: Json(asking.search(index, body)))
        self.metrics.searched(name, body.mode, perf_counter() - began)
        return answer

    async def refused(self, request: str, work: Coroutine[Any, Any, Response]) -> Response:
        """The answer of some work, or the refusal if it fails as expected."""
        try:
            return await work
        except LakewakeError as error:
            return self.refuse(refused_by(error), request)
        except Refused as error:
            return self.refuse(error, request)

    async def recommend(self, name: str, body: shapes.RecommendBody) -> Response:
        """A message based on the best rows; with `stream`, sent while it is written."""
        index = self._index(name)
        check_recommend(body, self._limits)
        said = [turn.content for turn in body.conversation] or None
        more = {"conversation": said, "where": body.where, "mode": body.mode}
        with audited(self._views, "recommend", name, body.query, **more):
            if not body.stream:
                return await self.recommending.run(lambda: Json(asking.recommend(index, body)))
            items = self.recommending.stream(partial(asking.recommend_stream, index, body))
            # A failure before the first item is still an ordinary refusal.
            first = await anext(items)
        return StreamingResponse(self._events(first, items), media_type=EVENTS)

    async def list_indexes(self) -> Response:
        """All indexes: their size, their commit, and whether they are fresh."""
        views = list(self._views.values())
        found = await self._look(lambda: [asking.summary(i) for i in views])
        return Json({"indexes": found, "watch": self._watch()})

    async def status(self, name: str) -> Response:
        """What an index holds, and how far it is behind its table."""
        index = self._index(name)
        report = await self._look(lambda: asking.status(index))
        return Json({**report, "watch": self._watch()})

    async def history(self, name: str, limit: Limit = 20) -> Response:
        """What the last syncs of an index did, newest first."""
        index = self._index(name)
        return await self._look(lambda: Json(asking.history(index, limit)))

    async def facets(self, name: str) -> Response:
        """What the payload columns of an index hold, for filters."""
        return await self.count_facets(name, shapes.FacetsBody(text=None))

    async def count_facets(self, name: str, body: shapes.FacetsBody) -> Response:
        """The same for the rows that pass a filter, or are best for a text."""
        index = self._index(name)
        check_facets(body, self._limits)
        with audited(self._views, "facets", name, body.text, where=body.where):
            return await self.counting.run(lambda: Json(asking.facets(index, body)))

    async def commits(self, name: str, limit: Limit = 50) -> Response:
        """The table's newest commits, and the sync that brought each into the index."""
        index = self._index(name)
        return await self._look(lambda: Json(asking.commits(index, limit)))

    async def quarantine(self, name: str, limit: Limit = 100) -> Response:
        """Rows that could not be embedded, and why."""
        self._views.check_whole()
        index = self._index(name)
        return await self._look(lambda: Json(asking.quarantine(index, limit)))

    async def jobs(self, name: str, limit: Limit = 20) -> Response:
        """What the syncing process was asked to do, newest first."""
        self._views.check_whole()
        index, may_ask = self._index(name), self._views.caller.admin
        return await self._look(lambda: Json({**asking.jobs(index, limit), "may_ask": may_ask}))

    async def ask_for_job(self, name: str, body: shapes.JobBody) -> Response:
        """Ask the syncing process for a job. Needs a key with the scope admin."""
        with audited(self._views, "job", name, body.kind):
            self._views.check_admin()
            index, by = self._index(name), self._views.caller.name
            return await self._look(lambda: Json(index.ask_for(body.kind, by).as_dict()))

    async def health(self) -> Response:
        """Whether the server is running. Needs no key, and reads no index."""
        return Json({"ok": True})

    async def ready(self) -> Response:
        """Whether every index exists and is within its freshness limit: 200 if so, else 503."""
        views = list(self._views.values())
        found = await self._look(lambda: [asking.freshness(i) for i in views])
        ready = all(f["fresh"] for f in found)
        return Json({"ready": ready, "indexes": found}, 200 if ready else 503)

    async def show_metrics(self) -> Response:
        """Lag, rows, work of syncs, search times and errors, in the format of Prometheus."""
        if not self._shows_metrics:
            raise Refused(403, "scope", "metrics need a key", "start the server with `--keys FILE`")
        return Response(await self._look(self.metrics.text), headers={"Content-Type": CONTENT_TYPE})

    def refuse(self, refused: Refused, what: str = "") -> Response:
        """The refusal as a response. It is counted, and logged if the client is not at fault."""
        self.metrics.refused(refused.kind)
        if refused.status >= 500:
            _log.warning("%s: %d: %s", what, refused.status, without_secrets(refused.fact))
        return refusal(refused)

    def _index(self, name: str) -> Index:
        if name not in self._views:
            hint = f"use one of {', '.join(self._views)}"
            raise Refused(404, "unknown_index", f"there is no index {name[:80]!r} here", hint)
        return self._views[name]

    async def _look(self, work: Callable[[], T]) -> T:
        return await self.looking.run(work)

    async def _events(self, first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        """Server-sent events: each part of the message, then the whole answer, or an error."""
        yield _event(first)
        try:
            async for item in rest:
                yield _event(item)
        except LakewakeError as error:
            yield self._failed(refused_by(error))
        except Refused as refused:
            yield self._failed(refused)

    def _failed(self, refused: Refused) -> bytes:
        return b"event: error\ndata: " + self.refuse(refused, "stream").body + b"\n\n"

    def _watch(self) -> dict[str, Any] | None:
        # Its output may name rows of everybody.
        if self._follower is None or self._views.are_limited:
            return None
        return self._follower.state.as_dict()

    def _restarts(self) -> int:
        return self._follower.state.restarts if self._follower else 0


def _event(item: Any) -> bytes:
    name, value = ("piece", {"text": item}) if isinstance(item, str) else ("answer", item)
    data = json.dumps(json_value(value), ensure_ascii=False).encode("utf-8", "replace")
    return f"event: {name}\ndata: ".encode() + data + b"\n\n"


def _add_routes(app: FastAPI, desk: Desk) -> None:
    def get(path: str, endpoint: Callable[..., Any], answer: Any, refusals: Any = _ONE) -> None:
        app.add_api_route(path, endpoint, response_model=answer, responses=refusals)

    def post(path: str, endpoint: Callable[..., Any], answer: Any, refusals: Any = _ASK) -> None:
        app.add_api_route(
            path, endpoint, methods=["POST"], response_model=answer, responses=refusals
        )

    post("/indexes/{name}/search", desk.search, SearchAnswer)
    post("/indexes/{name}/recommend", desk.recommend, shapes.Recommended, _STREAM)
    get("/indexes", desk.list_indexes, shapes.Indexes, _REFUSALS)
    get("/indexes/{name}/status", desk.status, shapes.Status)
    get("/indexes/{name}/history", desk.history, shapes.History)
    get("/indexes/{name}/facets", desk.facets, shapes.Facets)
    post("/indexes/{name}/facets", desk.count_facets, shapes.Facets)
    get("/indexes/{name}/commits", desk.commits, shapes.Commits)
    get("/indexes/{name}/quarantine", desk.quarantine, shapes.Quarantine)
    get("/indexes/{name}/jobs", desk.jobs, shapes.Jobs)
    post("/indexes/{name}/jobs", desk.ask_for_job, Job)
    get("/health", desk.health, shapes.Health, _REFUSALS)
    get("/ready", desk.ready, shapes.Readiness, {**_REFUSALS, 503: {"model": shapes.Readiness}})
    app.add_api_route("/metrics", desk.show_metrics, response_class=Response, responses=_TEXT)


class _Request(Request):
    """Parses JSON six times as fast for vectors."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body())
        except ValueError:
            # FastAPI's own parser reports the error in its way, and accepts a lone surrogate.
            return await super().json()


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, with our own parser of bodies."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return read


def _endpoint(file: PageFile) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return file.answer(request)

    return answer


def _add_handlers(app: FastAPI, desk: Desk) -> None:
    def handle(kind: type[Exception], refused: Callable[[Any], Refused]) -> None:
        async def answer(request: Request, error: Exception) -> Response:
            return desk.refuse(refused(error), f"{request.method} {request.url.path}")

        app.add_exception_handler(kind, answer)

    handle(LakewakeError, refused_by)
    handle(Refused, lambda refused: refused)
    handle(RequestValidationError, lambda error: misshapen(error.errors()))
    handle(HTTPException, _of_http)


def _of_http(error: HTTPException) -> Refused:
    """An unknown path, an unknown method, or a body that is not JSON."""
    headers = {k: v for k, v in (error.headers or {}).items() if k.lower() == "allow"}
    hint = "see /openapi.json for all paths" if error.status_code in (404, 405) else ""
    fact = "the body cannot be read" if error.status_code == 400 else str(error.detail)
    return Refused(error.status_code, f"http_{error.status_code}", fact, hint, headers)


def _describe(app: FastAPI, names: Iterable[str], *, keyed: bool) -> None:
    """Add to OpenAPI the names of the indexes, and whether keys are needed."""
    described, known = app.openapi, sorted(names)

    def openapi() -> dict[str, Any]:
        schema = described()
        for operations in schema["paths"].values():
            for operation in operations.values():
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path" and known:
                        parameter["schema"]["enum"] = known
        if keyed:
            parts = schema.setdefault("components", {})
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}]
            schema["paths"]["/health"]["get"]["security"] = []
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


class SearchDoor:
    """Takes sound searches straight to the desk.

    FastAPI's own way to an endpoint takes longer than a search in memory. It describes searches in
    OpenAPI, and it still answers every request that is not a search of the documented shape.
    """

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request if it is a search, or pass it on."""
        app, name = self._app, _searched(scope)
        if name is not None:
            message = await receive()
            if (body := _search_body(message.get("body", b""))) is not None:
                what = f"POST {scope['path']}"
                app = await self._desk.refused(what, self._desk.search(name, body))
            else:
                receive = replay(message, receive)
        await app(scope, receive, send)


def _searched(scope: Scope) -> str | None:
    """The index that a request searches, if it is a search whose body is called JSON."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    name = path.removeprefix(BEFORE).removesuffix(AFTER)
    if not name or "/" in name or path != f"{BEFORE}{name}{AFTER}":
        return None
    given = next((value for key, value in scope["headers"] if key == b"content-type"), b"")
    kind: bytes = given.partition(b";")[0].strip().lower()
    return name if kind == b"application/json" else None


def _search_body(content: bytes) -> shapes.SearchBody | None:
    try:
        return shapes.SearchBody.model_validate(from_json(content))
    except ValueError:
        return None


class LastResort:
    """Answers requests that the checks refuse, and requests that fail with an unexpected error."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and make sure that there is an answer."""
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            refused = error if isinstance(error, Refused) else self._unexpected(scope, error)
            answer = self._desk.refuse(refused, f"{scope['method']} {scope['path']}")
            await answer(scope, receive, send)

    def _unexpected(self, scope: Scope, error: Exception) -> Refused:
        _log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        return Refused(500, "bug", "an unexpected error", "see the server's log")
