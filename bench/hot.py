"""Bars 33, 36, 37 and 39: an index in memory, beside libraries, LanceDB and pgvector."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np

import lakewake
from bench import phrases
from bench.engines import at_best, better, engine, quickest, rows_and_vectors
from bench.ground import Followed, Ground
from bench.measures import Measure, Outcome, percentile, rounded
from bench.million import _parquet, _thresholds
from bench.phrases import DIMENSION
from bench.searching import EQUAL, K, Searched, lancedb_times, recall_of, searched, timed
from bench.serving import READY_WITHIN, serving
from bench.tables import QUICK_COMMITS, Table
from lakewake.store.hot.reader import HotReader

if TYPE_CHECKING:
    from lakewake.api import Index

#: Shares of the rows that a filter passes.
SHARES = (0.5, 0.01, 0.0001)
#: How many cells a search reads, for the picture.
PROBES = (1, 2, 4, 8, 12, 16, 24, 32, 64)
GIGABYTE = 1e9
CONFIG = """\
[[index]]
name  = "{name}"
table = "lake"
store = "lance://index"
vector = "embedding"
dimension = {dimension}
payload = ["points"]
hot = "8GB"
"""
#: Reads an index into memory in a process of its own, without its files: what it states it will
#: take, and what it takes.
HELD = """
import json, os, resource, sys
import lakewake
from lakewake.store.hot.base import estimate

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/smaps_rollup") if ":" in line)
    return int(fields["Rss"].split()[0]) * 1024

index = lakewake.open(sys.argv[1])[sys.argv[2]]
index._hot._made()._files = None
asked = json.load(open(sys.argv[3]))
with index.view() as view:
    stated = estimate(view._reader, index.settings.recall)
for vector in asked[:20]:
    index.search(vector=vector, k=10)
before = resident()
index.warm(3600)
for vector in asked:
    index.search(vector=vector, k=10)
status = index.status().as_dict()["hot"]
print(json.dumps({"stated": stated, "taken": resident() - before, "status": status}))
"""


def held(ground: Ground) -> tuple[Searched, Index]:
    """The index of bar 9, its files for memory written, and the index open and in memory."""
    found = searched(ground)
    index: Index = ground.once("the same in memory", lambda: _held(found))
    return found, index


def _held(found: Searched) -> Index:
    # An index of its own: whether a process writes the files is decided before it reads.
    index = lakewake.open(found.followed.config)[found.followed.name]
    index.persist_hot()
    index.warm()
    # Until it is searched, a process only writes, and there are no files of a small index.
    index.search(vector=found.queries[0].tolist())
    index.warm()
    return index


def _milliseconds(ask: Callable[[Any], object], queries: Iterable[Any]) -> list[float]:
    return [timed(ask, query) * 1000 for query in queries]


def bar_33(ground: Ground) -> Outcome:
    """Searches in process that return text and payload, in turns with the other engines."""
    found, index = held(ground)
    asked = [query.tolist() for query in found.queries]
    warm = Searched(_with_index(found.followed, index), found.vectors, found.queries, found.built)
    hot = _front(index)

    def search(vector: list[float]) -> object:
        return index.search(vector=vector, k=K)

    for vector in asked:
        search(vector)
    nearest = partial(hot.held.nearest, wanted=K, where=None)
    ours, alone = list[list[float]](), list[list[float]]()
    memory, postgres = dict[str, Any](), dict[str, Any]()
    with (
        engine(ground, found, "in_memory") as libraries,
        engine(ground, found, "in_postgres") as database,
    ):
        for _ in range(2):
            ours.append([timed(search, vector) * 1000 for vector in asked])
            alone.append(_milliseconds(nearest, found.queries))
            memory = better(memory, libraries.measure()) if libraries else {}
            postgres = better(postgres, database.measure()) if database else {}
        built = {**(libraries.about if libraries else {}), **(database.about if database else {})}
    median = min(map(statistics.median, ours))
    cells = min(map(statistics.median, alone))
    best, bare = at_best(postgres), quickest(memory, ("hnswlib", "usearch"))
    of_best = median / best["median"] if best else None
    of_bare = cells / bare["median"] if bare else None
    return Outcome(
        (
            Measure("recall@10", recall_of(warm), "≥", 0.99),
            Measure("median", median, "≤", 1, " ms"),
            Measure("of pgvector's at its best recall", of_best, "≤", 0.5),
            Measure("cells alone, of the bare library", of_bare, "≤", 1.5),
        ),
        {
            "rows": len(found.vectors),
            "queries": len(asked),
            "hot": index.status().as_dict()["hot"],
            "p99_milliseconds": min(percentile(times, 99) for times in ours),
            "cells_alone_milliseconds": cells,
            "curve": _curve(hot, found),
            "in_memory": memory,
            "pgvector": postgres,
            "bare_lancedb_milliseconds": statistics.median(lancedb_times(found)) * 1000,
            "built": {k: v for k, v in built.items() if k != "address"},
        },
    )


def _with_index(followed: Followed, index: Index) -> Followed:
    return Followed(followed.name, followed.folder, followed.table, index)


def _front(index: Index) -> HotReader:
    with index.view() as view:
        reader = view._reader
    assert isinstance(reader, HotReader), index.status().as_dict()["hot"]
    return reader


def _curve(hot: HotReader, found: Searched) -> list[dict[str, float]]:
    """Recall and milliseconds of the cells alone, by how many are read."""
    base = hot.held.base
    if base.cells is None:
        return []
    out = []
    for probes in (p for p in PROBES if p <= len(base.cells)):
        shares, times = [], []
        for query in found.queries:
            least = float(np.partition(found.vectors @ query, -K)[-K]) - EQUAL
            began = time.perf_counter()
            _, near = base.in_cells(query, probes)
            top = np.partition(near, -K)[-K:] if len(near) > K else near
            times.append((time.perf_counter() - began) * 1000)
            shares.append(float((top >= least).sum()) / K)
        out.append(
            {
                "cells": probes,
                "recall": min(1.0, statistics.mean(shares)),
                "median": statistics.median(times),
            }
        )
    return out


def bar_36(ground: Ground) -> Outcome:
    """Searches with filters that pass few or many rows, in turns with unfiltered ones."""
    found, index = held(ground)
    rows, vectors = rows_and_vectors(found.followed)
    keys = np.array(rows["key"].to_pylist())
    ordered = np.sort(keys)
    filters: dict[str, tuple[dict[str, Any], np.ndarray]] = {}
    for share in SHARES:
        last = str(ordered[max(K, round(share * len(keys))) - 1])
        filters[f"{share * 100:g} %"] = ({"_key": {"<=": last}}, keys <= last)
    # Not only filters that have nothing to do with what is asked.
    countries = np.array([c or "" for c in rows["country"].to_pylist()])
    common = str(np.unique(countries[countries != ""])[0])
    filters[f"country {common}"] = ({"country": common}, countries == common)
    passed = {name: vectors[passing] for name, (_, passing) in filters.items()}
    plain: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in filters}
    first = {
        name: timed(partial(index.search, vector=found.queries[0].tolist(), k=K, where=where))
        for name, (where, _) in filters.items()
    }
    shares: dict[str, list[float]] = {name: [] for name in filters}
    for query in found.queries:
        asked = query.tolist()
        plain.append(timed(partial(index.search, vector=asked, k=K)))
        for name, (where, _) in filters.items():
            began = time.perf_counter()
            hits = index.search(vector=asked, k=K, where=where).hits
            times[name].append(time.perf_counter() - began)
            near = passed[name] @ query
            wanted = min(K, len(near))
            least = float(np.partition(near, -wanted)[-wanted]) - EQUAL
            shares[name].append(sum((h.similarity or 0) >= least for h in hits) / wanted)
    usual = statistics.median(plain)
    measures = []
    for name in filters:
        bound = ("≥", 0.99) if "%" in name else ("", 0.0)
        within = ("≤", 3.0) if "%" in name else ("", 0.0)
        measures.append(Measure(f"{name}: recall@10", statistics.mean(shares[name]), *bound))
        slower = statistics.median(times[name]) / usual
        measures.append(Measure(f"{name}: median, of the unfiltered", slower, *within))
    return Outcome(
        tuple(measures),
        {
            "rows": len(keys),
            "passing": {name: int(passing.sum()) for name, (_, passing) in filters.items()},
            "unfiltered_milliseconds": usual * 1000,
            "milliseconds": {n: statistics.median(t) * 1000 for n, t in times.items()},
            "p99_milliseconds": {n: percentile(t, 99) * 1000 for n, t in times.items()},
            "first_milliseconds": {name: seconds * 1000 for name, seconds in first.items()},
        },
    )


def bar_37(ground: Ground) -> Outcome:
    """A million vectors in memory: searches, and the memory that they take."""
    rows = ground.sizes.lake_rows[1]
    followed, vectors = ground.once(
        f"an index of {rows:,} vectors in Lance", partial(_million, ground, rows)
    )
    asked = phrases.questions(len(vectors), ground.sizes.queries)
    file = ground.scratch / "asked.json"
    file.write_text(json.dumps(asked.tolist()))
    command = [sys.executable, "-c", HELD, str(followed.config), followed.name, str(file)]
    memory = json.loads(ground.run(command)[1])
    index = lakewake.open(followed.config)[followed.name]
    index.warm(3600)
    least = _thresholds(vectors, asked)
    shares, times = [], []
    for query, at_least in zip(asked, least, strict=True):
        hits = index.search(vector=query.tolist(), k=K).hits
        shares.append(sum((hit.similarity or 0) >= at_least for hit in hits) / K)
    for query in asked:
        times.append(timed(partial(index.search, vector=query.tolist(), k=K)) * 1000)
    there = index.status().as_dict()["hot"]
    index.close()
    off = abs(memory["taken"] / memory["stated"] - 1)
    return Outcome(
        (
            Measure("recall@10", statistics.mean(shares), "≥", 0.98),
            Measure("median", statistics.median(times), "≤", 3, " ms"),
            Measure("memory, away from the statement", off, "≤", 0.1),
        ),
        {
            "rows": rows,
            "texts": phrases.__doc__,
            "p99_milliseconds": percentile(times, 99),
            "hot": there,
            "stated_bytes": memory["stated"],
            "resident_bytes": memory["taken"],
        },
    )


def _million(ground: Ground, rows: int) -> tuple[Followed, np.ndarray]:
    name = f"memory_{rows}"
    folder = ground.scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vectors = phrases.vectors(ground, rows)
    frame = ground.spark.read.parquet(str(_parquet(folder / "rows", vectors)))
    table = Table(ground.spark, str(folder / "lake"), "id", "part", options=QUICK_COMMITS)
    table.load(frame)
    shutil.rmtree(folder / "rows")
    config = folder / "lakewake.toml"
    config.write_text(CONFIG.format(name=name, dimension=DIMENSION))
    index = lakewake.open(config, spark=ground.spark)[name]
    index.sync()
    return Followed(name, folder, table, index), vectors


def bar_39(ground: Ground) -> Outcome:
    """From the start of the server until it answers from memory, the files being there."""
    found, _ = held(ground)
    seconds, states = [], []
    for _ in range(max(2, ground.sizes.rounds)):
        began = time.perf_counter()
        with serving(ground, found.followed) as served, httpx2.Client() as client:
            status = f"{served.url}/indexes/{served.name}/status"
            while (hot := client.get(status).json()["hot"])["state"] != "ready":
                if time.perf_counter() - began > READY_WITHIN:
                    raise RuntimeError(f"the index is not in memory: {hot}")
            served.search(client, {"vector": found.queries[0].tolist()}).raise_for_status()
            seconds.append(time.perf_counter() - began)
            states.append(hot)
    return Outcome(
        (Measure("start to an answer from memory", statistics.median(seconds), "≤", 2, " s"),),
        {"seconds": rounded(seconds), "rows": ground.sizes.search_rows, "hot": states[-1]},
    )
