"""Bars 23, 24 and 25: an index of a million vectors in the lake, built, searched and followed."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakewake
from bench import phrases
from bench.building import watched_sync
from bench.ground import Followed, Ground
from bench.lake import point
from bench.measures import Measure, Outcome, percentile
from bench.memory import Watched
from bench.phrases import DIMENSION
from bench.tables import QUICK_COMMITS, Table
from lakewake.model.query import Query
from lakewake.model.recall import Effort
from lakewake.store.hudi import writing
from lakewake.store.hudi.reader import HudiReader
from lakewake.store.hudi.recall import efforts
from lakewake.store.hudi.store import HudiStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

K = 10
#: Cosines of equal vectors may differ by this much, depending on the order of summation.
EQUAL = 1e-5
GIGABYTE = 1e9
#: Rows of one Parquet file, and of one partition of the source table.
FILE_ROWS, PARTITION_ROWS = 50_000, 10_000
CONFIG = """\
[[index]]
name  = "{name}"
table = "lake"
store = "hudi://index"
vector = "embedding"
dimension = {dimension}
payload = ["points"]
"""


@dataclass(frozen=True)
class Built:
    """A table with a vector column, and its index in the lake.

    Attributes:
        vectors: what the table held when it was loaded, one per row.
        bare: seconds of a bare Hudi bulk_insert of the same rows.
        build: the report of the build.
        watched: the memory of the process that built it.
    """

    followed: Followed
    vectors: np.ndarray
    bare: float
    build: dict[str, Any]
    watched: Watched

    @property
    def reader(self) -> HudiReader:
        """The newest state of the index."""
        store = self.followed.index.parts.store
        assert isinstance(store, HudiStore)
        reader = store.open()
        assert reader is not None
        return reader


def built(ground: Ground, rows: int) -> Built:
    """The index of this many vectors, built by a `lakewake sync` of its own."""
    what = f"an index of {rows:,} vectors in the lake"
    made: Built = ground.once(what, partial(_built, ground, rows))
    return made


def _built(ground: Ground, rows: int) -> Built:
    name = f"lake_{rows}"
    folder = ground.scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vectors = phrases.vectors(ground, rows)
    frame = ground.spark.read.parquet(str(_parquet(folder / "rows", vectors)))
    table = Table(ground.spark, str(folder / "lake"), "id", "part", options=QUICK_COMMITS)
    bare = timed(lambda: table.load(frame))
    ground.say(f"a bare bulk_insert of {rows:,} rows took {bare:.0f} s")
    config = folder / "lakewake.toml"
    config.write_text(CONFIG.format(name=name, dimension=DIMENSION))
    build, watched = watched_sync(ground, name, config)
    ground.say(f"built in {build['seconds']['total']:.0f} s: {build['seconds']}")
    index = lakewake.open(config, spark=ground.spark)[name]
    return Built(Followed(name, folder, table, index), vectors, bare, build, watched)


def _parquet(folder: Path, vectors: np.ndarray) -> Path:
    """The rows of the table as Parquet files, which both sides begin with."""
    folder.mkdir()
    for start in range(0, len(vectors), FILE_ROWS):
        some = np.ascontiguousarray(vectors[start : start + FILE_ROWS])
        numbers = range(start, start + len(some))
        pq.write_table(_rows(list(numbers), some, ts=0), folder / f"{start:08}.parquet")
    return folder


def _rows(numbers: list[int], vectors: np.ndarray, ts: int) -> pa.Table:
    flat = pa.array(vectors.reshape(-1), pa.float32())
    offsets = pa.array(range(0, len(flat) + 1, DIMENSION), pa.int32())
    return pa.table(
        {
            "id": [f"row_{n}" for n in numbers],
            "part": [f"p{n // PARTITION_ROWS}" for n in numbers],
            "embedding": pa.ListArray.from_arrays(offsets, flat),
            "points": pa.array([(n + ts) % 100 for n in numbers], pa.int32()),
            "ts": pa.array([ts] * len(numbers), pa.int64()),
        }
    )


def timed(do: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def bar_23(ground: Ground) -> Outcome:
    """Recall and warm searches of the large index."""
    there = built(ground, ground.sizes.lake_rows[1])
    reader, asked = there.reader, phrases.questions(len(there.vectors), ground.sizes.queries)
    exact = _thresholds(there.vectors, asked)
    sizes = {c: sum(_size(reader, one) for one in some) for c, some in reader.table.slices.items()}
    how, cells = reader.searching(), len(reader.cells.numbers)
    curve = [point(reader, asked, exact, sizes, e) for e in efforts(cells)]
    used = point(reader, asked, exact, sizes, Effort(how.probes or cells, 1))
    for query in asked:
        reader.search(Query(query, K))
    times = [timed(partial(reader.search, Query(query, K))) for query in asked]
    return Outcome(
        (
            Measure("recall@10", used["recall"], "≥", 0.95),
            Measure("of the vectors read", used["share_read"], "≤", 0.05),
            Measure("median", statistics.median(times) * 1000, "≤", 10, " ms"),
        ),
        {
            "rows": len(there.vectors),
            "texts": phrases.__doc__,
            "model": phrases.MODEL.name,
            "precision": phrases.MODEL.precision,
            "cells": cells,
            "used": used,
            "curve": curve,
            "p99_milliseconds": percentile(times, 99) * 1000,
            "searching": how.as_dict(),
        },
    )


def _size(reader: HudiReader, one: Any) -> int:
    return len(reader.table.columns(one, ["_id"])["_id"])


def _thresholds(vectors: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """How near the tenth nearest vector of each question is, by comparing all of them."""
    best = np.full((len(asked), K), -np.inf, np.float32)
    for start in range(0, len(vectors), FILE_ROWS):
        some = np.array(vectors[start : start + FILE_ROWS])
        some /= np.linalg.norm(some, axis=1, keepdims=True)
        near = np.concatenate([best, asked @ some.T], axis=1)
        best = np.partition(near, -K, axis=1)[:, -K:]
    least: np.ndarray = best.min(axis=1) - EQUAL
    return least


@dataclass
class Rounds:
    """What rounds of changes took.

    Attributes:
        follows: seconds of a sync without its upkeep.
        stages: the seconds of its stages.
        cells: cells that it touched.
        bare: seconds of a bare upsert of as many rows in as many cells.
    """

    follows: list[float]
    stages: list[dict[str, float]]
    cells: list[int]
    bare: list[float]

    @property
    def of_bare(self) -> float:
        """A sync, by a bare upsert."""
        return statistics.median(self.follows) / statistics.median(self.bare)


def bar_24(ground: Ground) -> Outcome:
    """Follow 100 changed rows, beside a bare upsert, and in two tables of different size."""
    small, large = (_rounds(ground, built(ground, rows)) for rows in ground.sizes.lake_rows)
    of_small = statistics.median(large.follows) / statistics.median(small.follows)
    touched = max(large.cells) / max(1, min(small.cells))
    return Outcome(
        (
            Measure("of a bare upsert", small.of_bare, "≤", 2),
            Measure("of a bare upsert, large table", large.of_bare),
            Measure("large table, of the small one", of_small, "≤", 1.3),
            Measure("cells touched, of the small table's", touched),
        ),
        {
            "rows": ground.sizes.lake_rows,
            "changed": ground.sizes.changed,
            "small": vars(small),
            "large": vars(large),
        },
    )


def _rounds(ground: Ground, there: Built) -> Rounds:
    """Follow and upsert by turns. Both change rows of the same number of cells."""
    copy = ground.scratch / f"{there.followed.name}-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(there.reader.table.path, copy)
    out, rng = Rounds([], [], [], []), np.random.default_rng(24)
    for n in range(ground.sizes.warm_ups + ground.sizes.rounds):
        before = there.reader
        numbers = _spread(before, ground.sizes.changed, rng)
        there.followed.table.upsert(_changed(ground, there, numbers, n))
        _, report = there.followed.sync()
        slices = there.reader.table.slices
        bare = _bare_upsert(ground, before, copy, numbers, n)
        if n >= ground.sizes.warm_ups:
            out.follows.append(report["seconds"]["total"] - report["seconds"]["maintain"])
            out.stages.append(report["seconds"])
            out.cells.append(sum(before.table.slices.get(c) != s for c, s in slices.items()))
            out.bare.append(bare)
    return out


def _spread(index: HudiReader, changed: int, rng: np.random.Generator) -> list[int]:
    """Numbers of rows of one source partition, two in each of half as many cells.

    So both sizes read one file of the source, and touch equally many cells.
    """
    every = list(index.table.slices.values())
    numbers: list[int] = []
    for at in rng.permutation(len(every)):
        columns = [index.table.columns(one, ["_key"])["_key"] for one in every[at]]
        held = [int(key.removeprefix("row_")) for c in columns for key in c.to_pylist()]
        inside = [number for number in held if number < PARTITION_ROWS]
        numbers += inside[:2] if len(inside) > 1 else []
        if len(numbers) >= changed:
            break
    return numbers[:changed]


def _changed(ground: Ground, there: Built, numbers: list[int], n: int) -> DataFrame:
    """The rows with other payloads and slightly other vectors, which stay in their cells."""
    rng = np.random.default_rng(n)
    vectors = np.array(there.vectors[numbers])
    vectors += 1e-4 * rng.normal(size=vectors.shape).astype(np.float32)
    file = there.followed.folder / f"changed-{n}.parquet"
    pq.write_table(_rows(numbers, vectors, ts=n + 1), file)
    return ground.spark.read.parquet(str(file)).coalesce(1)


def _bare_upsert(
    ground: Ground, index: HudiReader, copy: Path, numbers: list[int], n: int
) -> float:
    """Seconds to upsert the same chunks with the table's own options, and nothing else."""
    from pyspark.sql import functions as f

    read = ground.spark.read.format("hudi").load(str(copy)).where("lakewake_cell >= 0")
    names = [c for c in read.columns if not c.startswith("_hoodie") or c == "_hoodie_is_deleted"]
    part = ground.scratch / f"bare-{copy.name}-{n}.parquet"
    wanted = read.where(f.col("_key").isin([f"row_{number}" for number in numbers]))
    wanted.select(*names).coalesce(1).write.mode("overwrite").parquet(str(part))
    frame = writing.frame_of(ground.spark, [str(part)], DIMENSION)
    return timed(lambda: writing.save(frame, str(copy), "upsert", "append", ""))


def bar_25(ground: Ground) -> Outcome:
    """Build the large index from a vector column, beside a bare bulk_insert of the same rows."""
    there = built(ground, ground.sizes.lake_rows[1])
    seconds = there.build["seconds"]
    peak = there.watched.peak
    return Outcome(
        (
            Measure("of a bare bulk_insert", seconds["total"] / there.bare, "≤", 2.5),
            Measure("peak", peak / GIGABYTE, "≤", 6, " GB"),
        ),
        {
            "rows": len(there.vectors),
            "dimension": DIMENSION,
            "bare_seconds": there.bare,
            "build_seconds": seconds,
            "without_upkeep_of_bare": (seconds["total"] - seconds.get("maintain", 0)) / there.bare,
            "peak_bytes": peak,
            "programs": sorted(there.watched.programs),
            "cores": os.cpu_count(),
        },
    )
