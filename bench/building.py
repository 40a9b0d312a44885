"""Bars 1 and 12: building an index, its speed and its memory."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ground import FULL_TEXT, Followed, Ground, environment
from bench.measures import Measure, Outcome
from bench.memory import Watched, Watcher
from bench.tables import vector_rows

DIMENSION = 384
GIGABYTE = 1e9


@dataclass(frozen=True)
class Built:
    """A built index, and how long the raw embedder took for the same texts.

    Attributes:
        raw: seconds of the embedder for the first half of the texts, and for the second.
        seconds: of the build.
        report: what the build did.
    """

    followed: Followed
    raw: tuple[float, float]
    seconds: float
    report: dict[str, Any]


def built(ground: Ground) -> Built:
    """The index of bars 1 and 7."""
    found: Built = ground.once("the index of bars 1 and 7", lambda: _build(ground))
    return found


def _build(ground: Ground) -> Built:
    rows = ground.wines(ground.sizes.build_rows)
    followed = ground.followed("build", rows, FULL_TEXT)
    texts = [f"{r.title}. {r.description}" for r in rows.select("title", "description").collect()]
    embedder = ground.embedder
    embedder.embed(texts[:16])
    half = len(texts) // 2

    def raw(some: list[str]) -> float:
        began = time.perf_counter()
        embedder.embed(some)
        return time.perf_counter() - began

    # Half before and half after the build: a machine that gets slower affects both.
    first = raw(texts[:half])
    seconds, report = followed.sync()
    return Built(followed, (first, raw(texts[half:])), seconds, report)


def bar_1(ground: Ground) -> Outcome:
    """Build end to end, as a share of the raw embedder's speed."""
    done = built(ground)
    rows, raw = ground.sizes.build_rows, sum(done.raw)
    return Outcome(
        (Measure("texts a second, of the raw embedder's", raw / done.seconds, "≥", 0.85),),
        {
            "rows": rows,
            "embedded": done.report["embedded"],
            "raw_texts_per_second": rows / raw,
            "built_texts_per_second": rows / done.seconds,
            "stages": done.report["seconds"],
        },
    )


def bar_12(ground: Ground) -> Outcome:
    """Memory of a build from a vector column, at two sizes."""
    small, large = (_watched_build(ground, rows) for rows in ground.sizes.memory_rows)
    return Outcome(
        (
            Measure("peak", large.peak / GIGABYTE, "≤", 6, " GB"),
            Measure("of the smaller table's", large.peak / small.peak, "≤", 1.3),
        ),
        {
            "rows": ground.sizes.memory_rows,
            "dimension": DIMENSION,
            "peak_bytes": [small.peak, large.peak],
            "seconds": [round(seen.series[-1][0], 1) for seen in (small, large)],
            "series": {
                str(rows): _thinned(seen)
                for rows, seen in zip(ground.sizes.memory_rows, (small, large), strict=True)
            },
        },
    )


def _watched_build(ground: Ground, rows: int) -> Watched:
    partitions = max(1, rows // 10_000)
    followed = ground.followed(
        f"memory_{rows}",
        vector_rows(ground.spark.range(rows), DIMENSION, partitions),
        f'vector = "embedding"\ndimension = {DIMENSION}\npayload = ["points"]',
        key="id",
        partition="part",
    )
    ground.say(f"building from {rows:,} vectors")
    return watched_sync(ground, followed.name, followed.config)[1]


def watched_sync(ground: Ground, name: str, config: Path) -> tuple[dict[str, Any], Watched]:
    """The report of a sync in a process of its own, and the memory that it took."""
    command = ground.lakewake("sync", name, "--config", str(config), "--json")
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process,
        Watcher(process.pid) as watched,
    ):
        output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the build of {name} failed: {output}")
    report: dict[str, Any] = json.loads(output)["indexes"][0]
    return report, watched


def _thinned(seen: Watched, points: int = 200) -> list[tuple[float, float]]:
    step = max(1, len(seen.series) // points)
    return [(round(at, 1), round(held / GIGABYTE, 3)) for at, held in seen.series[::step]]
