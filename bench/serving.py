"""Bars 16 to 20: the server as a separate process, over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bench.ground import Followed, Ground, environment
from bench.measures import Measure, Outcome, percentile, rounded
from bench.memory import descendants, resident
from bench.searching import K, Searched, in_buckets, searched, timed

READY_WITHIN = 60.0
FOLLOWED_WITHIN = 300.0
CLIENTS = 16
#: Rows that every commit of bar 17 rewrites together. An answer with two versions of them is mixed.
TOGETHER = 10
#: Loads the model and nothing else, to measure its share of the server's memory.
MODEL_ALONE = """
import os, sys
from lakewake.embed.registry import load_embedder
from lakewake.config.settings import ModelSettings
load_embedder(ModelSettings()).embed(["smoky red with leather"])
print(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""


@dataclass(frozen=True)
class Served:
    """A running server of one index."""

    process: subprocess.Popen[bytes]
    url: str
    name: str
    seconds_to_ready: float

    def search(self, client: httpx2.Client, body: dict[str, Any]) -> httpx2.Response:
        """One search."""
        return client.post(f"{self.url}/indexes/{self.name}/search", json=body)

    def ask(self, connection: HTTPConnection, body: dict[str, Any]) -> Any:
        """One search, with the smallest possible client."""
        connection.request(
            "POST",
            f"/indexes/{self.name}/search",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the server answered {answer.status}")
        return json.loads(answer.read())

    def end(self) -> float:
        """Send SIGTERM; returns the seconds until the server has ended."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        return time.perf_counter() - began


@contextmanager
def serving(ground: Ground, followed: Followed, *flags: str) -> Iterator[Served]:
    """`lakewake serve` of one index, ready to answer; it ends with the context."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = ground.lakewake(
        "serve", "--config", str(followed.config), "--port", str(port), *flags
    )
    began = time.perf_counter()
    log = (ground.scratch / f"serve-{port}.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log, env=environment()) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _until_ready(url, process, began)
            yield Served(process, url, followed.name, time.perf_counter() - began)
        finally:
            process.terminate()


def _until_ready(url: str, process: subprocess.Popen[bytes], began: float) -> None:
    while time.perf_counter() - began < READY_WITHIN:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended before it was ready: code {process.returncode}")
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.01)
    raise RuntimeError(f"the server was not ready within {READY_WITHIN:.0f} s")


def bar_16(ground: Ground) -> Outcome:
    """What HTTP adds to a search, with the same query vectors, in turns.

    The client is that of the standard library, over one connection; writing and reading JSON is
    included. What httpx adds is reported separately.
    """
    found = searched(ground)
    times: dict[str, list[float]] = {"in_process": [], "http": [], "httpx": []}
    with serving(ground, found.followed) as served, httpx2.Client() as client:
        plain = HTTPConnection(urlsplit(served.url).netloc)
        ways = {
            "in_process": lambda body: found.followed.index.search(**body),
            "http": lambda body: served.ask(plain, body),
            "httpx": lambda body: served.search(client, body).raise_for_status().json(),
        }
        for warm in (True, False):
            for query in found.queries:
                body = {"vector": query.tolist(), "k": K}
                for name, way in ways.items():
                    seconds = timed(way, body)
                    if not warm:
                        times[name].append(seconds)
    medians = {name: statistics.median(seen) * 1000 for name, seen in times.items()}
    added = medians["http"] - medians["in_process"]
    return Outcome(
        (Measure("added by HTTP, median", added, "≤", 3, " ms"),),
        {
            "queries": len(found.queries),
            **{f"{name}_milliseconds": median for name, median in medians.items()},
        },
    )


def bar_17(ground: Ground) -> Outcome:
    """Many clients, while a writer commits and the watch follows as fast as they can."""
    found, seconds = searched(ground), ground.sizes.serve_seconds
    _commit_together(ground, found.followed, 0)
    found.followed.sync()
    with serving(ground, found.followed, "--watch") as served:
        until_followed(ground, found.followed, served)
        idle = _clients(ground, found, served, seconds / 4)
        with _writing(ground, found.followed) as commits:
            busy = _clients(ground, found, served, seconds)
    idle_p99, busy_p99 = (percentile(run["milliseconds"], 99) for run in (idle, busy))
    return Outcome(
        (
            Measure("failed or mixed answers", busy["failed"] + busy["mixed"], "≤", 0),
            Measure("p99, of the idle p99", busy_p99 / idle_p99, "≤", 5),
            Measure("versions seen", len(busy["versions"]), "≥", 2),
        ),
        {
            "clients": CLIENTS,
            "seconds": seconds,
            "answers": len(busy["milliseconds"]),
            "answers_a_second": len(busy["milliseconds"]) / seconds,
            "commits": len(commits),
            "versions_seen": len(busy["versions"]),
            "idle_p99_milliseconds": idle_p99,
            "busy_p99_milliseconds": busy_p99,
            "idle_median_milliseconds": statistics.median(idle["milliseconds"]),
            "busy_median_milliseconds": statistics.median(busy["milliseconds"]),
        },
    )


def until_followed(ground: Ground, followed: Followed, served: Served) -> None:
    """Commit once and wait until the server answers from it: then the watch has started Spark."""
    address = f"{served.url}/indexes/{served.name}/status"
    before = httpx2.get(address).json()["instant"]
    _commit_together(ground, followed, -1)
    ends = time.monotonic() + FOLLOWED_WITHIN
    while httpx2.get(address).json()["instant"] == before:
        if time.monotonic() > ends:
            raise RuntimeError(f"no commit was followed within {FOLLOWED_WITHIN:.0f} s")
        time.sleep(0.1)


def _clients(ground: Ground, found: Searched, served: Served, seconds: float) -> dict[str, Any]:
    """What `CLIENTS` clients saw; they run in a process of their own."""
    file = ground.scratch / "queries.json"
    file.write_text(json.dumps(found.queries[:100].tolist()))
    script = Path(__file__).with_name("clients.py")
    command = [
        sys.executable, str(script), served.url, served.name, str(file), str(CLIENTS),
        str(seconds), str(TOGETHER),
    ]  # fmt: skip
    seen: dict[str, Any] = json.loads(ground.run(command)[1])
    return seen


def _commit_together(ground: Ground, followed: Followed, n: int) -> None:
    """Write the same new number to several rows in one commit."""
    from pyspark.sql import functions as f

    keys = [f"wine_{k}" for k in range(TOGETHER)]
    rows = ground.wines(ground.sizes.search_rows).where(f.col("wine_id").isin(keys))
    changed = rows.withColumns({"points": f.lit(n).cast("long"), "ts": f.lit(10**12 + n)})
    types = dict(rows.dtypes)
    changed = changed.select(*(f.col(c).cast(types[c]).alias(c) for c in rows.columns))
    followed.table.upsert(in_buckets(changed).coalesce(1))


@contextmanager
def _writing(ground: Ground, followed: Followed) -> Iterator[list[int]]:
    """Commit again and again in a thread while the context lasts."""
    ended, commits = threading.Event(), list[int]()

    def write() -> None:
        while not ended.is_set():
            _commit_together(ground, followed, len(commits) + 1)
            commits.append(len(commits) + 1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield commits
    finally:
        ended.set()
        thread.join()


def bar_18(ground: Ground) -> Outcome:
    """From the start of the process until it reports that it is ready."""
    found, seconds = searched(ground), list[float]()
    for _ in range(max(2, ground.sizes.rounds)):
        with serving(ground, found.followed) as served:
            seconds.append(served.seconds_to_ready)
    return Outcome(
        (Measure("start to ready", statistics.median(seconds), "≤", 3, " s"),),
        {"seconds": rounded(seconds), "rows": ground.sizes.search_rows},
    )


def bar_19(ground: Ground) -> Outcome:
    """The server's memory beyond the model, after searches of every kind."""
    found = searched(ground)
    _, model = ground.run([sys.executable, "-c", MODEL_ALONE])
    with serving(ground, found.followed) as served, httpx2.Client(timeout=60) as client:
        for query in found.queries:
            served.search(client, {"vector": query.tolist(), "k": K}).raise_for_status()
        for mode in ("vector", "keyword", "hybrid"):
            for text in ("smoky red with leather", "citrus", "old vines"):
                served.search(client, {"text": text, "mode": mode}).raise_for_status()
        held = sum(resident(pid) for pid in descendants(served.process.pid))
    beyond = (held - int(model)) / 1e6
    return Outcome(
        (Measure("beyond the model", beyond, "≤", 600, " MB"),),
        {"server_bytes": held, "model_alone_bytes": int(model), "rows": ground.sizes.search_rows},
    )


def bar_20(ground: Ground) -> Outcome:
    """SIGTERM while clients search: running requests finish, and the process ends."""
    found = searched(ground)
    codes: list[int | str] = []
    with serving(ground, found.followed) as served:
        threads = [
            threading.Thread(target=_ask_until_gone, args=(served, found, codes))
            for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        while len(codes) < CLIENTS * 4:
            time.sleep(0.01)
        seconds = served.end()
        for thread in threads:
            thread.join()
    broken = [c for c in codes if c not in (200, "refused")]
    return Outcome(
        (
            Measure("exit", seconds, "≤", 5, " s"),
            Measure("requests broken off", len(broken), "≤", 0),
            Measure("exit code", float(abs(served.process.returncode)), "≤", 0),
        ),
        {"answered": codes.count(200), "broken": [str(c) for c in broken[:10]]},
    )


def _ask_until_gone(served: Served, found: Searched, codes: list[int | str]) -> None:
    """Search over new connections until they are refused; accepted ones must be answered."""
    body = {"vector": found.queries[0].tolist(), "k": K}
    while True:
        try:
            with httpx2.Client(timeout=30) as client:
                codes.append(served.search(client, body).status_code)
        except httpx2.ConnectError:
            codes.append("refused")
            return
        except httpx2.TransportError as error:
            codes.append(repr(error))
            return
