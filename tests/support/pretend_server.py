"""A server that speaks the HTTP interface from rows in memory, and misbehaves when told to.

It stands in for `lakewake serve` where a test of the page needs a commit, an error or a silence at
a moment of its choosing. Searches compare words, nothing more.
"""

from __future__ import annotations

import datetime
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import lakewake
from lakewake.sample import wines

PAGE = Path(lakewake.__file__).parent / "serve" / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
INDEX = "wines"
PAYLOAD = ("title", "country", "variety", "points", "price")

Row = dict[str, Any]
Json = dict[str, Any]


@dataclass
class Commit:
    """A commit of the table, and what it changed."""

    time: datetime.datetime
    changes: Mapping[str, Row | None]
    record: Json | None = None

    @property
    def instant(self) -> str:
        return self.time.strftime("%Y%m%d%H%M%S%f")[:17]

    def as_dict(self) -> Json:
        return {
            "instant": self.instant,
            "action": "commit",
            "completed": _iso(self.time),
            "absorbed": self.record is not None,
            "synced": self.record["time"] if self.record else None,
            "record": self.record,
        }


class Table:
    """A table's rows and commits, and an index that absorbs them when told to."""

    def __init__(self, rows: int) -> None:
        self.rows: dict[str, Row] = {}
        self.commits: list[Commit] = []
        self.failure: str | None = None
        everything = {row["wine_id"]: row for row in wines(rows).to_pylist()}
        began = _now() - datetime.timedelta(minutes=2)
        self.commit(everything, began)
        self.sync("build", "there is no index yet", began + datetime.timedelta(seconds=4))

    def commit(
        self, changes: Mapping[str, Row | None], time: datetime.datetime | None = None
    ) -> None:
        """Write to the table; the index does not know of it yet."""
        made = time or _now()
        if self.commits:
            # Instants are unique; two commits of a test may fall into one millisecond.
            made = max(made, self.commits[-1].time + datetime.timedelta(milliseconds=1))
        self.commits.append(Commit(made, changes))

    def sync(
        self, action: str = "follow", why: str = "", time: datetime.datetime | None = None
    ) -> None:
        """Bring the index to the newest commit."""
        pending = self.pending
        changes = {key: row for commit in pending for key, row in commit.changes.items()}
        why = why or f"new commits: {len(pending)}"
        record = self._record(action, why, time or _now(), changes)
        for key, row in changes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        for commit in pending:
            commit.record = record

    @property
    def pending(self) -> list[Commit]:
        return [commit for commit in self.commits if commit.record is None]

    @property
    def instant(self) -> str:
        return max((c.instant for c in self.commits if c.record is not None), default="")

    def _record(
        self, action: str, why: str, time: datetime.datetime, changes: Mapping[str, Row | None]
    ) -> Json:
        written = {key: row for key, row in changes.items() if row is not None}
        texts = {_text(row) for row in self.rows.values()}
        fresh = sum(_text(row) not in texts for row in written.values())
        spent = {"look": 0.01, "read": 0.41, "embed": 0.002 * fresh, "commit": 0.08}
        return {
            "time": _iso(time),
            "index": INDEX,
            "action": action,
            "why": why,
            "from_instant": self.instant,
            "to_instant": self.commits[-1].instant,
            "rows_changed": len(written),
            "rows_deleted": len(changes) - len(written),
            "chunks_upserted": len(written),
            "chunks_deleted": len(changes) - len(written),
            "embedded": fresh,
            "reused": len(written) - fresh,
            "quarantined": 0,
            "seconds": {**spent, "total": round(sum(spent.values()), 3)},
            "error": None,
        }


@dataclass
class Fault:
    """What is answered instead."""

    path: str
    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


class PretendServer:
    """The server. Everything that a test changes about it is a method or an attribute."""

    def __init__(self, rows: int = 60) -> None:
        self.table = Table(rows)
        self.built = True
        self.key: str | None = None
        self.fault: Fault | None = None
        self.answered_by = "extract"
        self.reason: str | None = None
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.asked: list[Json] = []
        self._held: dict[str, threading.Event] = {}
        self._lock = threading.RLock()
        self._http: ThreadingHTTPServer | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Be there (again), at the same address."""
        handler = type("Bound", (Handler,), {"pretend": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be gone: nobody listens any more."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def change(self, key: str, **columns: Any) -> None:
        """Commit a change of one row to the table, and have the index follow."""
        self.commit(key, **columns)
        self.sync()

    def commit(self, key: str, **columns: Any) -> None:
        """Commit a change of one row; the index stays behind."""
        with self._lock:
            known = self.table.rows.get(key, {"wine_id": key, **dict.fromkeys(PAYLOAD)})
            self.table.commit({key: {**known, **columns}})

    def delete(self, key: str) -> None:
        """Delete a row from the table, and have the index follow."""
        with self._lock:
            self.table.commit({key: None})
            self.table.sync()

    def sync(self) -> None:
        """Have the index follow."""
        with self._lock:
            self.table.sync()

    def hold(self, text: str) -> threading.Event:
        """Keep the answer to this question back until the event is set."""
        return self._held.setdefault(text, threading.Event())

    def answer(self, method: str, path: str, body: Json) -> Json:
        """The answer to a request; KeyError when there is no such path."""
        *_, what = path.strip("/").split("/")
        routes: dict[tuple[str, str], Callable[[Json], Json]] = {
            ("GET", "indexes"): lambda _: {"indexes": [self._summary()]},
            ("GET", "status"): lambda _: self._status(),
            ("GET", "commits"): lambda _: self._dated("commits", self._commits()),
            ("GET", "history"): lambda _: self._dated("history", self._history()),
            ("GET", "facets"): lambda _: self._dated("facets", list(self._facets())),
            ("POST", "search"): self._search,
            ("POST", "recommend"): self._recommend,
        }
        if what == "search" and (held := self._held.get(body.get("text") or "")):
            held.wait(20)
        with self._lock:
            return routes[method, what](body)

    def _dated(self, name: str, value: list[Json]) -> Json:
        return {"index": INDEX, "instant": self.table.instant, name: value}

    def _summary(self) -> Json:
        rows = len(self.table.rows)
        modes = ["vector", "keyword", "hybrid"]
        counts = {"rows": rows, "chunks": rows, "payload": list(PAYLOAD)}
        return {
            "name": INDEX,
            "instant": self.table.instant,
            "modes": modes,
            "fresh": True,
            **counts,
        }

    def _status(self) -> Json:
        pending = self.table.pending
        behind = self.built and bool(pending)
        age = (_now() - pending[0].time).total_seconds() if pending else 0.0
        return {
            "index": INDEX,
            "built": self.built,
            "in_step": self.built and not pending,
            "table": "lake/wine_reviews",
            "store": "lance://index",
            "instant": self.table.instant if self.built else "",
            "newest_instant": self.table.commits[-1].instant,
            "lag_commits": len(pending) if self.built else len(self.table.commits),
            "lag_seconds": round(age, 1),
            "rows": len(self.table.rows) if self.built else 0,
            "chunks": len(self.table.rows) if self.built else 0,
            "generation": 1,
            "duplicates": 0,
            "quarantined": 0,
            "model": {},
            "would": "follow" if behind else "nothing" if self.built else "build",
            "why": f"new commits: {len(pending)}" if pending else "nothing new",
            "fresh": self.built and age < 30,
            "freshness_limit": 30.0,
            "watch": None,
        }

    def _commits(self) -> list[Json]:
        marks = [commit.as_dict() for commit in reversed(self.table.commits)]
        if self.built:
            return marks
        return [{**mark, "absorbed": False, "synced": None, "record": None} for mark in marks]

    def _history(self) -> list[Json]:
        done = [c.record for c in reversed(self.table.commits) if c.record]
        if self.table.failure:
            return [{**done[0], "error": self.table.failure}, *done]
        return done

    def _facets(self) -> Iterator[Json]:
        for column in PAYLOAD[1:]:
            values = [row[column] for row in self.table.rows.values() if row[column] is not None]
            if isinstance(values[0], str):
                common = [{"value": v, "count": n} for v, n in Counter(values).most_common(20)]
                more = len(set(values)) - len(common)
                ends = {"min": None, "max": None, "more": more}
                yield {"column": column, "type": "text", "values": common, **ends}
            else:
                ends = {"min": min(values), "max": max(values)}
                yield {"column": column, "type": "number", "values": None, **ends}

    def _search(self, body: Json) -> Json:
        self.asked.append(body)
        like = body.get("like")
        question = _text(self.table.rows[like["key"]]) if like else body["text"]
        found = sorted(self._hits(question, body), key=lambda hit: -hit["score"])
        if like:
            found = [hit for hit in found if hit["key"] != like["key"]]
        offset, k = body.get("offset", 0), body.get("k", 5)
        page = found[offset : offset + k]
        return {
            "index": INDEX,
            "instant": self.table.instant,
            "mode": body.get("mode", "vector"),
            "hits": page,
            "more": len(found) > offset + k,
        }

    def _hits(self, question: str, body: Json) -> Iterator[Json]:
        words = _words(question)
        for key, row in self.table.rows.items():
            text = _text(row)
            score = _nearness(words, text)
            if score > 0 and _fits(row, body.get("where")):
                payload = {column: row[column] for column in PAYLOAD}
                near = None if body.get("mode") == "keyword" else score
                yield {
                    "key": key,
                    "partition": "",
                    "score": score,
                    "similarity": near,
                    "text": text,
                    "field": "text",
                    "chunk": 0,
                    "highlight": _best_sentence(words, text),
                    "payload": payload,
                }

    def _recommend(self, body: Json) -> Json:
        found = self._search({**body, "text": body["query"], "k": body["k"]})
        used = found["hits"][:2]
        told = " ".join(f"{hit['payload']['title']} fits." for hit in used)
        return {
            "query": body["query"],
            "message": told if self.answered_by != "none" else "",
            "answered_by": self.answered_by,
            "used": [{"key": hit["key"], "partition": ""} for hit in used],
            "hits": found["hits"],
            "instant": found["instant"],
            "reason": self.reason,
        }


class Handler(BaseHTTPRequestHandler):
    """HTTP around it."""

    pretend: PretendServer

    def do_GET(self) -> None:
        """The page, or a question without a body."""
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        if "/" not in name and (PAGE / name).is_file():
            kind = TYPES[(PAGE / name).suffix]
            self._send(200, (PAGE / name).read_bytes(), {"Content-Type": f"{kind}; charset=utf-8"})
        else:
            self._answer({})

    def do_POST(self) -> None:
        """A question with a body."""
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Json) -> None:
        pretend, path = self.pretend, self.path.partition("?")[0]
        fault = pretend.fault
        if pretend.key and self.headers.get("Authorization") != f"Bearer {pretend.key}":
            self._json(401, {"error": "a key is needed", "hint": "ask who runs the server"})
        elif fault and path.endswith(fault.path):
            self._json(fault.status, fault.body, fault.headers)
        elif body.get("stream"):
            self._stream(pretend.answer(self.command, path, body))
        else:
            try:
                self._json(200, pretend.answer(self.command, path, body))
            except KeyError:
                self._json(404, {"error": f"there is nothing at {path}", "hint": ""})

    def _stream(self, answer: Json) -> None:
        self._head(200, {"Content-Type": "text/event-stream"})
        for piece in re.findall(r"\S+\s*", answer["message"]):
            self._event("piece", {"text": piece})
        self.pretend.may_finish.wait(20)
        self._event("answer", answer)

    def _event(self, name: str, data: Json) -> None:
        self.wfile.write(f"event: {name}\r\ndata: {json.dumps(data)}\r\n\r\n".encode())
        self.wfile.flush()

    def _json(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json", **(headers or {})}
        self._send(status, json.dumps(body).encode(), kind)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Security-Policy": POLICY}.items():
            self.send_header(name, value)
        self.end_headers()

    def handle(self) -> None:
        """A browser that hangs up in the middle is no fault."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _iso(time: datetime.datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(row: Row) -> str:
    return f"{row['title']}. {row['description']}"


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - {"a", "an", "and", "the", "with", "of", "is"}


def _nearness(words: set[str], text: str) -> float:
    known = _words(text)
    found = sum(any(k.startswith(word) for k in known) for word in words)
    return round(0.9 * found / max(len(words), 1) - len(known) / 10_000, 4) if found else 0.0


def _best_sentence(words: set[str], text: str) -> list[int]:
    sentences = list(re.finditer(r"[^.!?]+(?:[.!?]+|$)", text))
    best = max(sentences, key=lambda s: _nearness(words, s[0]))
    start = best.start() + len(best[0]) - len(best[0].lstrip())
    return [start, best.end()]


def _fits(row: Row, where: Json | None) -> bool:
    if not where:
        return True
    if "and" in where:
        return all(_fits(row, part) for part in where["and"])
    ((column, asked),) = where.items()
    value = row[column]
    tests: dict[str, Callable[[Any], bool]] = {
        "in": lambda given: value in given,
        ">=": lambda given: value is not None and value >= given,
        "<=": lambda given: value is not None and value <= given,
    }
    if not isinstance(asked, dict):
        return bool(value == asked)
    return all(tests[op](given) for op, given in asked.items())
