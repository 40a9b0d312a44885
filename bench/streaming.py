"""Bar 26: recall while vectors come, go and are replaced, in the Lance store and in the lake."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakewake
from bench.ground import Ground
from bench.measures import Measure, Outcome
from bench.tables import MERGE_ON_READ, QUICK_COMMITS, Table
from lakewake.model.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakewake.api import Index

DIMENSION = 100
K = 10
#: Cosines of equal vectors may differ by this much, depending on the order of summation.
EQUAL = 1e-5
#: How far vectors are from the middle of their cluster: clusters overlap a little.
SPREAD = 0.35
STORES = {"lance": "lance://index", "lake": "hudi://lake-index"}
CONFIG = """\
[[index]]
name  = "{name}"
table = "lake"
store = "{store}"
vector = "embedding"
dimension = {dimension}
"""


@dataclass
class Live:
    """The vectors that the table holds, by number, and the clusters that they came from."""

    size: int
    clusters: int
    held: dict[int, np.ndarray] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(26))
    next: int = 0

    def __post_init__(self) -> None:
        self.middles = self.rng.normal(size=(self.clusters, DIMENSION)).astype(np.float32)
        self.middles /= np.linalg.norm(self.middles, axis=1, keepdims=True)
        self.cluster: dict[int, int] = {}

    def vectors(self, clusters: np.ndarray) -> np.ndarray:
        """A vector near the middle of each of these clusters."""
        noise = self.rng.normal(size=(len(clusters), DIMENSION)).astype(np.float32)
        made = self.middles[clusters] + SPREAD * noise / np.sqrt(DIMENSION) * 2
        unit: np.ndarray = made / np.linalg.norm(made, axis=1, keepdims=True)
        return unit.astype(np.float32)

    def insert(self, clusters: np.ndarray) -> list[int]:
        """Add a vector for each of these clusters; returns their numbers."""
        numbers = list(range(self.next, self.next + len(clusters)))
        self.next += len(clusters)
        self._put(numbers, clusters)
        return numbers

    def replace(self, numbers: list[int], clusters: np.ndarray) -> list[int]:
        """Give these numbers other vectors."""
        self._put(numbers, clusters)
        return numbers

    def delete(self, numbers: list[int]) -> list[int]:
        """Remove these numbers."""
        for number in numbers:
            del self.held[number], self.cluster[number]
        return numbers

    def among(self, clusters: np.ndarray, share: float) -> list[int]:
        """A share of the numbers in these clusters."""
        there = sorted(n for n, c in self.cluster.items() if c in set(clusters.tolist()))
        picked = self.rng.permutation(len(there))[: int(len(there) * share)]
        return [there[n] for n in sorted(picked)]

    def some(self, count: int) -> np.ndarray:
        """This many of the clusters, at random."""
        return self.rng.permutation(self.clusters)[:count]

    def _put(self, numbers: list[int], clusters: np.ndarray) -> None:
        made = self.vectors(clusters)
        self.held.update(zip(numbers, made, strict=True))
        self.cluster.update(zip(numbers, clusters.tolist(), strict=True))


@dataclass(frozen=True)
class Step:
    """What one step of the runbook did."""

    what: str
    written: list[int]
    deleted: list[int]


def runbook(live: Live, steps: int) -> Iterator[Step]:
    """A clustered runbook, as in the streaming track of big-ann-benchmarks.

    The first step inserts `live.size` vectors of three quarters of the clusters. Then clusters
    come, go and are replaced by turns, a sixteenth of the vectors at a time, so that at the end
    most vectors are of clusters that were not there when the index was built.
    """
    some, lot = live.clusters * 3 // 4, max(K, live.size // 16)
    yield Step("build", live.insert(live.rng.integers(0, some, live.size)), [])
    for n in range(steps):
        kind = ("insert", "delete", "replace")[n % 3]
        if kind == "insert":
            into = live.some(max(1, live.clusters // 16))
            yield Step(kind, live.insert(live.rng.choice(into, lot)), [])
        elif kind == "delete":
            chosen = live.among(live.some(live.clusters // 8), 0.9)[:lot]
            yield Step(kind, [], live.delete(chosen))
        else:
            chosen = live.among(live.some(live.clusters // 8), 0.5)[:lot]
            into = live.some(max(1, live.clusters // 16))
            yield Step(kind, live.replace(chosen, live.rng.choice(into, len(chosen))), [])


def bar_26(ground: Ground) -> Outcome:
    """Recall after every step of a streaming runbook."""
    sizes = ground.sizes
    folder = ground.scratch / "streaming"
    folder.mkdir()
    table = Table(
        ground.spark, str(folder / "lake"), "id", "part", MERGE_ON_READ, dict(QUICK_COMMITS)
    )
    live = Live(sizes.streamed, 64 if sizes.streamed > 1_000 else 8)
    indexes = {name: _index(ground, folder, name) for name in STORES}
    curve: list[dict[str, Any]] = []
    for number, step in enumerate(runbook(live, sizes.streaming_steps)):
        _write(ground, table, live, step, number)
        point = {"step": number, "what": step.what, "vectors": len(live.held)}
        questions = _questions(live, sizes.queries // 2)
        for name, index in indexes.items():
            index.sync()
            point[name] = _recall(index, live, questions)
        ground.say(f"step {point}")
        curve.append(point)
    measures = [m for name, index in indexes.items() for m in _measures(name, index, curve)]
    how = {name: index.status().as_dict()["searching"] for name, index in indexes.items()}
    return Outcome(tuple(measures), {"curve": curve, "dimension": DIMENSION, "searching": how})


def _measures(name: str, index: Index, curve: list[dict[str, Any]]) -> tuple[Measure, ...]:
    recall = [point[name]["recall"] for point in curve]
    quarter = max(1, len(recall) // 4)
    kept = statistics.mean(recall[-quarter:]) - statistics.mean(recall[:quarter])
    return (
        Measure(f"lowest recall@10, {name}", min(recall), "≥", index.settings.recall),
        Measure(f"last quarter less the first, {name}", kept, "≥", -0.005),
    )


def _index(ground: Ground, folder: Path, name: str) -> Index:
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(name=name, store=STORES[name], dimension=DIMENSION))
    return lakewake.open(config, spark=ground.spark)[name]


def _write(ground: Ground, table: Table, live: Live, step: Step, number: int) -> None:
    """Make the commit of a step."""
    if step.deleted:
        frame = ground.spark.createDataFrame(
            [(f"v{n}", f"p{n % 8}", number) for n in step.deleted],
            "id string, part string, ts long",
        )
        table.delete(frame)
        return
    frame = _frame(ground, live, step, number)
    if step.what == "build":
        table.load(frame)
    else:
        table.upsert(frame)


def _frame(ground: Ground, live: Live, step: Step, number: int) -> DataFrame:
    vectors = np.stack([live.held[n] for n in step.written])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    rows = {
        "id": [f"v{n}" for n in step.written],
        "part": [f"p{n % 8}" for n in step.written],
        "embedding": column.cast(pa.list_(pa.float32())),
        "ts": pa.array([number] * len(vectors), pa.int64()),
    }
    file = ground.scratch / f"streaming-{number}.parquet"
    pq.write_table(pa.table(rows), file)
    return ground.spark.read.parquet(str(file))


def _questions(live: Live, count: int) -> np.ndarray:
    """Questions about all clusters, also those that are gone or have not come yet."""
    return live.vectors(live.rng.integers(0, live.clusters, count))


def _recall(index: Index, live: Live, questions: np.ndarray) -> dict[str, Any]:
    """The share of the ten nearest that each question finds, by distance, as numpy finds them."""
    reader = index.parts.store.open()
    assert reader is not None
    there = np.stack(list(live.held.values()))
    shares = []
    for question in questions:
        tenth = float(np.partition(there @ question, -K)[-K]) - EQUAL
        found = reader.search(Query(question, K))["_similarity"].to_numpy()
        shares.append(min(1.0, float((found >= tenth).sum()) / K))
    worst = sorted(shares)[: max(1, len(shares) // 10)]
    how = reader.searching()
    return {
        "recall": round(statistics.mean(shares), 4),
        "worst_tenth": round(statistics.mean(worst), 4),
        "mode": how.mode,
        "probes": how.probes,
        "partitions": how.partitions,
    }
