"""Bars 21, 22 and 27: an index in the lake, beside Hudi's own search and raw vectors."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import lakewake
from bench.ground import Followed, Ground
from bench.measures import Measure, Outcome, percentile
from bench.searching import EQUAL, RECIPE, K, Searched, searched
from lakewake.model.query import Query
from lakewake.model.recall import Effort
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import efforts
from lakewake.store.hudi.store import HudiStore

CONFIG = """\
[[index]]
name  = "titles"
table = "{table}"
store = "hudi://index"
{recipe}
"""
#: Runs of Hudi's own search, which takes seconds.
PEER_RUNS = 3


@dataclass(frozen=True)
class Lake:
    """The index of bars 9 to 11 once more, in the lake."""

    followed: Followed
    vectors: np.ndarray
    queries: np.ndarray
    build: dict[str, Any]

    @property
    def store(self) -> HudiStore:
        """Its store."""
        store = self.followed.index.parts.store
        assert isinstance(store, HudiStore)
        return store

    @property
    def reader(self) -> HudiReader:
        """Its newest state."""
        reader = self.store.open()
        assert reader is not None
        return reader


def lake(ground: Ground) -> Lake:
    """The index of bars 21 to 27. Its vectors come from the vector cache of the other one."""
    made: Lake = ground.once("the index in the lake", lambda: _lake(ground, searched(ground)))
    return made


def _lake(ground: Ground, other: Searched) -> Lake:
    folder = ground.scratch / "lake-titles"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "index").mkdir(parents=True)
    known = other.followed.folder / "index" / "embeddings.sqlite"
    for file in known.parent.glob(f"{known.name}*"):
        shutil.copy(file, folder / "index")
    config = folder / "lakewake.toml"
    config.write_text(CONFIG.format(table=other.followed.folder / "lake", recipe=RECIPE))
    index = lakewake.open(config, spark=ground.spark)["titles"]
    followed = Followed("titles", folder, other.followed.table, index)
    seconds, report = followed.sync()
    ground.say(f"built the index in the lake in {seconds:.0f} s: {report['seconds']}")
    made = Lake(followed, np.empty((0, 0)), other.queries, report)
    vectors = np.concatenate(
        [made.reader.table.matrix(one, 384) for one in made.reader.table.every()]
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return Lake(followed, unit, other.queries, report)


def bar_21(ground: Ground) -> Outcome:
    """Recall against exact, by how many cells are read."""
    there = lake(ground)
    reader = there.reader
    exact = [_threshold(there, query) for query in there.queries]
    sizes = {
        cell: sum(len(reader.table.columns(one, ["_id"])["_id"]) for one in some)
        for cell, some in reader.table.slices.items()
    }
    curve = [
        point(reader, there.queries, exact, sizes, effort)
        for effort in efforts(len(reader.cells.numbers))
    ]
    how = reader.searching()
    used = point(reader, there.queries, exact, sizes, Effort(how.probes or len(sizes), 1))
    return Outcome(
        (
            Measure("recall@10", used["recall"], "≥", 0.95),
            Measure("of the vectors read", used["share_read"], "≤", 0.12),
        ),
        {
            "rows": len(there.vectors),
            "cells": len(reader.cells.numbers),
            "used": used,
            "curve": curve,
            "searching": how.as_dict(),
            "build": there.build,
        },
    )


def _threshold(there: Lake, query: np.ndarray) -> float:
    return float(np.partition(there.vectors @ query, -K)[-K]) - EQUAL


def point(
    reader: HudiReader,
    asked: np.ndarray,
    exact: Sequence[float] | np.ndarray,
    sizes: dict[int, int],
    effort: Effort,
) -> dict[str, float]:
    """Recall, share of the chunks read, and milliseconds, if a search reads this many cells."""
    recall, read, times = [], [], []
    for query, least in zip(asked, exact, strict=True):
        began = time.perf_counter()
        near = reader.nearness(query, effort.probes)
        times.append(time.perf_counter() - began)
        recall.append(min(1.0, float((near >= least).sum()) / K))
        read.append(sum(sizes.get(int(c), 0) for c in reader.cells.near(query, effort.probes)))
    return {
        "probes": effort.probes,
        "recall": statistics.mean(recall),
        "share_read": statistics.mean(read) / max(1, sum(sizes.values())),
        "milliseconds": statistics.median(times) * 1000,
    }


def bar_22(ground: Ground) -> Outcome:
    """Searches without a JVM, beside Hudi's own search of the same table."""
    there = lake(ground)
    reader = there.reader
    for query in there.queries:
        reader.search(Query(query, K))
    times = [_timed(partial(reader.search, Query(query, K))) for query in there.queries]
    asked = there.queries[:PEER_RUNS]
    peer = [_timed(partial(_by_hudi, ground, there, query)) for query in asked]
    cold = [
        ground.run(
            ground.lakewake("search", "titles", "smoky red", "--config", str(there.followed.config))
        )[0]
        for _ in range(ground.sizes.rounds)
    ]
    median = statistics.median(times)
    return Outcome(
        (
            Measure("times faster than Hudi's search", statistics.median(peer) / median, "≥", 500),
            Measure("median", median * 1000, "≤", 5, " ms"),
            Measure("cold, with the question's text", statistics.median(cold), "≤", 1.5, " s"),
        ),
        {
            "p99_milliseconds": percentile(times, 99) * 1000,
            "hudi_vector_search_seconds": peer,
            "cold_seconds": cold,
            "searching": reader.searching().as_dict(),
        },
    )


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _by_hudi(ground: Ground, there: Lake, query: np.ndarray) -> None:
    asked = ", ".join(f"CAST({float(x)!r} AS FLOAT)" for x in query)
    ground.spark.sql(
        f"SELECT _key FROM hudi_vector_search('{there.reader.table.path}', '_vector', "
        f"ARRAY({asked}), {K}, 'cosine')"
    ).collect()


def bar_27(ground: Ground) -> Outcome:
    """The size at rest, beside raw vectors and texts."""
    there = lake(ground)
    there.followed.index.parts.store.maintain()
    reader = there.reader
    root = Path(reader.table.path)
    live = [
        root / file
        for some in reader.table.slices.values()
        for one in some
        for file in (one.base, *one.logs)
        if file
    ]
    texts = sum(len(t.encode()) for b in reader.scan(["_text"]) for t in b["_text"].to_pylist())
    raw = there.vectors.nbytes + texts
    every = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
    return Outcome(
        (
            Measure(
                "of vectors and texts, newest state",
                sum(p.stat().st_size for p in live) / raw,
                "≤",
                1.3,
            ),
            Measure("with the files of older states", every / raw, "≤", 3),
        ),
        {
            "raw_bytes": raw,
            "live_bytes": sum(p.stat().st_size for p in live),
            "all_bytes": every,
            "live_files": len(live),
            "rows_per_file": statistics.median(
                pq.read_metadata(p).num_rows for p in live if p.suffix == ".parquet"
            ),
        },
    )
