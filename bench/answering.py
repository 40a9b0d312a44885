"""Bars 34, 35 and 38: how many answers a second the server gives to 16 clients, and how late."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2

from bench import phrases
from bench.engines import EF_SEARCH, engine, engines
from bench.ground import Followed, Ground
from bench.hot import held
from bench.measures import Measure, Outcome, percentile, rounded
from bench.searching import K, Searched, in_buckets, timed
from bench.serving import CLIENTS, FOLLOWED_WITHIN, Served, serving, until_followed
from bench.watching import bar_4

#: Named with every figure: it is the same for both sides.
GENERATOR = (
    "16 threads of one Python process, each with a connection of its own: http.client and json for "
    "HTTP, psycopg with prepared statements and binary vectors for Postgres"
)
#: Processes of the server that is measured beside the one of a single process.
WORKERS = max(2, os.cpu_count() or 2)
#: Rows that each commit of bar 35 rewrites with the same number, and seconds from one to the next.
TOGETHER, EVERY = 100, 10.0
#: Seconds between two looks whether a commit is found.
LOOK = 0.05
#: One question in this many asks for rows that change together, and for how many of them.
CHECKED, SHOWN = 4, 10


def asked(ground: Ground, kind: str, *args: object, python: Path | None = None) -> dict[str, Any]:
    """What the clients saw; they are one process."""
    script = Path(__file__).parent / "peer" / "ask_many.py"
    command = [str(part) for part in (python or sys.executable, script, kind, *args)]
    seen: dict[str, Any] = json.loads(ground.run(command)[1])
    times = seen.pop("milliseconds")
    return seen | {
        "answers": len(times),
        "answers_a_second": len(times) / seen["seconds"],
        "p50_milliseconds": statistics.median(times),
        "p99_milliseconds": percentile(times, 99),
        "generator_milliseconds_each": seen["processor"] * 1000 / len(times),
    }


def over_http(
    ground: Ground, served: Served, bodies: Sequence[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """What the clients saw of the server."""
    file = ground.scratch / "bodies.json"
    file.write_text(json.dumps(bodies))
    url = f"{served.url}/indexes/{served.name}/search"
    seen = asked(ground, "http", url, file, CLIENTS, seconds)
    ground.say(f"HTTP: {seen['answers_a_second']:.0f} answers a second")
    return seen


def by_vector(found: Searched) -> list[dict[str, Any]]:
    """A body for each question."""
    return [{"vector": query.tolist(), "k": K} for query in found.queries]


def in_memory(served: Served) -> dict[str, Any]:
    """What the server holds, as soon as it does."""
    ends = time.monotonic() + FOLLOWED_WITHIN
    while True:
        status = httpx2.get(f"{served.url}/indexes/{served.name}/status").json()
        if status["hot"]["state"] == "ready" or time.monotonic() > ends:
            there: dict[str, Any] = status["hot"]
            return there
        time.sleep(LOOK)


def answers(ground: Ground) -> dict[str, dict[str, Any]]:
    """The rates of bar 34, measured once: ours, with one process and more, and pgvector's."""
    made: dict[str, dict[str, Any]] = ground.once("answers over HTTP", lambda: _answers(ground))
    return made


def _answers(ground: Ground) -> dict[str, dict[str, Any]]:
    found, _ = held(ground)
    seconds, runs = ground.sizes.serve_seconds / 4, dict[str, list[dict[str, Any]]]()
    bodies = by_vector(found)
    with (
        serving(ground, found.followed) as served,
        serving(ground, found.followed, "--workers", str(WORKERS)) as shared,
        engine(ground, found, "in_postgres") as database,
    ):
        there = in_memory(served)
        in_memory(shared)
        for _ in range(2):
            for side, server in (("http", served), ("http_workers", shared)):
                runs.setdefault(side, []).append(over_http(ground, server, bodies, seconds))
            if database:
                queries = ground.scratch / "engines" / "queries.npy"
                args = (database.about["address"], queries, CLIENTS, seconds)
                more = (database.about["sql"], EF_SEARCH)
                seen = asked(ground, "postgres", *args, *more, python=engines(ground))
                ground.say(f"pgvector: {seen['answers_a_second']:.0f} answers a second")
                runs.setdefault("pgvector", []).append(seen)
    # Of two rounds in turns, the better one for each: the other was disturbed.
    best = {side: max(some, key=lambda r: r["answers_a_second"]) for side, some in runs.items()}
    return {**best, "hot": there}


def bar_34(ground: Ground) -> Outcome:
    """Answers a second and how late they are, beside pgvector with the same clients."""
    seen = answers(ground)
    ours, theirs = seen["http"], seen.get("pgvector")
    ahead = ours["answers_a_second"] / theirs["answers_a_second"] if theirs else None
    sooner = ours["p99_milliseconds"] / theirs["p99_milliseconds"] if theirs else None
    p99 = ours["p99_milliseconds"] / ours["p50_milliseconds"]
    return Outcome(
        (
            Measure("answers a second", ours["answers_a_second"], "≥", 1_000),
            Measure("of pgvector's", ahead, "≥", 1),
            Measure("p99, of its own p50", p99, "≤", 4),
            Measure("p99, of pgvector's", sooner, "≤", 1),
            Measure("failed", ours["failed"], "≤", 0),
        ),
        {
            "clients": CLIENTS,
            "workers": WORKERS,
            "generator": GENERATOR,
            "ef_search": EF_SEARCH,
            **seen,
        },
    )


def bar_35(ground: Ground) -> Outcome:
    """The same clients while a writer commits and the watch follows, compared with idle."""
    found, _ = held(ground)
    alone = ground.once("what bar 4 measures", lambda: bar_4(ground)).seen["found_after"]
    _commit(ground, found.followed, 0)
    found.followed.sync()
    bodies = [
        {"vector": q.tolist(), "k": SHOWN, "where": _together(), "together": SHOWN}
        if turn % CHECKED == 0
        else {"vector": q.tolist(), "k": K}
        for turn, q in enumerate(found.queries)
    ]
    seconds = ground.sizes.serve_seconds
    with serving(ground, found.followed, "--watch") as served:
        until_followed(ground, found.followed, served)
        in_memory(served)
        idle = over_http(ground, served, bodies, seconds / 4)
        with _writing(ground, found, served) as took:
            busy = over_http(ground, served, bodies, seconds)
    if not took:
        raise RuntimeError("no commit was found while the clients asked")
    share = busy["answers_a_second"] / idle["answers_a_second"]
    p99 = busy["p99_milliseconds"] / idle["p99_milliseconds"]
    late = statistics.median(took) / statistics.median(alone)
    return Outcome(
        (
            Measure("answers, of the idle rate", share, "≥", 0.5),
            Measure("p99, of the idle p99", p99, "≤", 3),
            Measure("failed or mixed answers", busy["failed"] + busy["mixed"], "≤", 0),
            Measure("versions seen", len(busy["versions"]), "≥", 2),
            Measure("commit to found, of bar 4's median", late, "≤", 2),
        ),
        {
            "clients": CLIENTS,
            "generator": GENERATOR,
            "together": TOGETHER,
            "idle": idle,
            "busy": {**busy, "versions": len(busy["versions"])},
            "found_after": rounded(took),
            "bar_4_found_after": alone,
        },
    )


def _together() -> dict[str, Any]:
    return {"_key": {"in": [f"wine_{k}" for k in range(SHOWN)]}}


def _commit(ground: Ground, followed: Followed, n: int) -> None:
    """Write the same new number to many rows in one commit."""
    from pyspark.sql import functions as f

    keys = [f"wine_{k}" for k in range(TOGETHER)]
    rows = ground.wines(ground.sizes.search_rows).where(f.col("wine_id").isin(keys))
    changed = rows.withColumns({"points": f.lit(n).cast("long"), "ts": f.lit(10**12 + n)})
    types = dict(rows.dtypes)
    changed = changed.select(*(f.col(c).cast(types[c]).alias(c) for c in rows.columns))
    followed.table.upsert(in_buckets(changed).coalesce(1))


@contextmanager
def _writing(ground: Ground, found: Searched, served: Served) -> Iterator[list[float]]:
    """Commit every few seconds in a thread; the seconds from each commit until it was found."""
    ended, took = threading.Event(), list[float]()
    body = {"vector": found.queries[0].tolist(), "k": 1, "where": _together()}

    def write() -> None:
        n = 1_000
        while not ended.is_set():
            n, began = n + 1, time.monotonic()
            _commit(ground, found.followed, n)
            committed = found.followed.table.completed()[-1].stat().st_mtime
            with httpx2.Client(timeout=60) as client:
                while True:
                    hits = served.search(client, body).raise_for_status().json()["hits"]
                    if hits[0]["payload"]["points"] == n:
                        took.append(time.time() - committed)
                        break
                    time.sleep(LOOK)
            ended.wait(max(0.0, EVERY - (time.monotonic() - began)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def bar_38(ground: Ground) -> Outcome:
    """Distinct text questions: no vector of them is remembered."""
    vectors = answers(ground)["http"]["answers_a_second"]
    found, _ = held(ground)
    seconds = ground.sizes.serve_seconds / 4
    texts = list(islice(phrases.phrases(seed=38), int(2_000 * seconds)))
    embedding = ground.embedder
    embedding.embed(texts[:CLIENTS])
    some = texts[: ground.sizes.runtime_rows // 2]
    raw = [timed(embedding.embed, some)]
    with serving(ground, found.followed) as served:
        in_memory(served)
        seen = over_http(ground, served, [{"text": text, "k": K} for text in texts], seconds)
    raw.append(timed(embedding.embed, some))
    if seen["asked"] >= len(texts):
        raise RuntimeError(f"{len(texts)} questions are too few, some were asked twice")
    embedded = len(some) / min(raw)
    possible = 1 / (1 / embedded + 1 / vectors)
    return Outcome(
        (
            Measure("of what is possible", seen["answers_a_second"] / possible, "≥", 0.9),
            Measure("failed", seen["failed"], "≤", 0),
        ),
        {
            "clients": CLIENTS,
            "generator": GENERATOR,
            "raw_embedder_a_second": embedded,
            "answers_by_vector_a_second": vectors,
            "possible_a_second": possible,
            "by_text": seen,
        },
    )
