"""Bar 31: the approximate index of a Lance index, built by executors in parts."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakewake
from bench import phrases
from bench.ground import Ground
from bench.measures import Measure, Outcome
from bench.phrases import DIMENSION
from bench.workers import running_workers
from lakewake.model.chunks import Batch, index_schema
from lakewake.model.frontier import Frontier
from lakewake.model.recall import Effort
from lakewake.model.timeline import TableIdentity
from lakewake.store.lance import upkeep
from lakewake.store.lance.recall import asked, coverage_of, efforts
from lakewake.store.lance.store import LanceStore
from lakewake.store.recall import Asking

K = 10
#: Cosines of equal vectors may differ by this much, depending on the order of summation.
EQUAL = 1e-5
#: What two trainings on different samples may differ by: their questions are a sample too.
LUCK = 0.002
#: Rows of one fragment, as executors write them.
FRAGMENT_ROWS = 20_000
#: Vectors that are compared with all questions at the same time.
BLOCK = 50_000
#: Two workers are this much faster than one, or the busier one has this share of the work.
FASTER, LONGEST = 1.6, 0.6
NAME = "parted"
CONFIG = """\
[[index]]
name = "{name}"
table = "lake"
store = "lance://index"
vector = "embedding"
dimension = {dimension}
ann = {{from = 500}}
"""


@dataclass(frozen=True)
class Held:
    """An index of these vectors, without an approximate index."""

    folder: Path
    vectors: np.ndarray

    @property
    def config(self) -> Path:
        """Its configuration, without a cluster."""
        return self.folder / "lakewake.toml"

    @property
    def store(self) -> LanceStore:
        """Its store, in this process."""
        store = lakewake.open(self.config)[NAME].parts.store
        assert isinstance(store, LanceStore)
        return store


def bar_31(ground: Ground) -> Outcome:
    """The same index on two workers and on one, and by one process alone."""
    few, many = ground.sizes.lake_rows
    small, large = _held(ground, few), _held(ground, many)
    tiny = _built(ground, small, 2)
    two = _built(ground, large, 2)
    recall = _recall(ground, large)
    one = _built(ground, large, 1)
    alone = large.store._versions.dataset(1)
    alone.drop_index("_vector_idx")
    upkeep.index_chunks(alone, asking=Asking())
    ours, theirs = recall, _recall(ground, large)
    memory = [run["python"] + run["jvm"] for run in (tiny, two)]
    faster, whole = one["seconds"] / two["seconds"], max(sum(one["processor_seconds"]), 0.01)
    busier = max(two["processor_seconds"]) / whole
    # One of both has to be met: beside other work, only processor time means something.
    clock = faster >= FASTER
    return Outcome(
        (
            Measure("times faster on two workers", faster, "≥" if clock else "", FASTER),
            Measure("busier worker, of one alone", busier, "" if clock else "≤", LONGEST),
            Measure(
                "of one worker's processor time", sum(two["processor_seconds"]) / whole, "≤", 1.2
            ),
            Measure("recall@10 lost against one process", max(0.0, theirs - ours), "≤", LUCK),
            Measure("driver's memory, of the smaller index's", memory[1] / memory[0], "≤", 1.1),
        ),
        {
            "rows": ground.sizes.lake_rows,
            "dimension": DIMENSION,
            "one_worker": one,
            "two_workers": two,
            "two_workers_fewer_rows": tiny,
            "recall": ours,
            "recall_of_one_process": theirs,
            "note": "each worker is pinned to a core, and Lance has one thread there",
        },
    )


def _held(ground: Ground, rows: int) -> Held:
    folder = ground.scratch / f"parted_{rows}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    held = Held(folder, phrases.vectors(ground, rows))
    held.config.write_text(CONFIG.format(name=NAME, dimension=DIMENSION))
    index = lakewake.open(held.config)[NAME]
    recipe, store = index.parts.recipe, held.store
    schema = index_schema(recipe, pa.schema([]))
    table = TableIdentity("t", "id", "part", "COPY_ON_WRITE")
    # In fragments, as executors write them.
    with store.staging(0) as staging:
        written = tuple(staging.write(schema, iter(part)) for part in _parts(held, schema))
        batch = Batch(schema, schema.empty_table().to_reader, (), written)
        store.create(recipe, batch, Frontier(table, {"20250101000000000": "1"}), after=0)
    ground.say(f"an index of {rows:,} vectors in {len(written)} fragments")
    return held


def _parts(held: Held, schema: pa.Schema) -> Iterator[list[pa.RecordBatch]]:
    size = min(FRAGMENT_ROWS, max(1, len(held.vectors) // 8))
    for start in range(0, len(held.vectors), size):
        some = np.ascontiguousarray(held.vectors[start : start + size])
        flat = pa.array(some.reshape(-1), pa.float32())
        names = pa.array([f"{n:08}" for n in range(start, start + len(some))])
        columns = {name: pa.nulls(len(some), schema.field(name).type) for name in schema.names}
        columns |= {"_id": names, "_key": names, "_hash": names}
        columns |= {"_vector": pa.FixedSizeListArray.from_arrays(flat, DIMENSION)}
        columns |= {"_chunk": pa.array([0] * len(some), pa.int32())}
        yield pa.table(columns, schema=schema).to_batches()


def _built(ground: Ground, held: Held, workers: int) -> dict[str, Any]:
    """What the driver of a cluster reports about its work."""
    with running_workers(held.folder / f"cluster{workers}", workers) as cluster:
        config = held.folder / "cluster.toml"
        config.write_text(f"{held.config.read_text()}\n{cluster.options}\n")
        pids = [str(pid) for pid in cluster.pids]
        command = [sys.executable, "-m", "bench.parted_driver", str(config), NAME, *pids]
        _, line = ground.run(command)
    run: dict[str, Any] = json.loads(line)
    ground.say(f"{len(held.vectors):,} vectors on {workers} workers: {run['seconds']} s")
    return run


def _recall(ground: Ground, held: Held) -> float:
    """The share of the nearest that a search of the usual width finds."""
    dataset = held.store._versions.dataset(1)
    effort: Effort = efforts(coverage_of(dataset).partitions)[0]
    asked_for = _unit(phrases.questions(len(held.vectors), ground.sizes.queries))
    least = _least(held.vectors, asked_for)
    shares = []
    for question, bound in zip(asked_for, least, strict=True):
        vector = pa.array(question.tolist(), pa.float32())
        nearest = {"column": "_vector", "q": vector, "metric": "cosine"}
        found = dataset.to_table(columns=["_id", "_distance"], nearest=asked(nearest, effort, K))
        near = 1 - found["_distance"].to_numpy()
        shares.append(min(1.0, float((near >= bound - EQUAL).sum()) / K))
    return float(np.mean(shares))


def _least(vectors: np.ndarray, asked_for: np.ndarray) -> np.ndarray:
    """The cosine of the k-th nearest vector of each question."""
    best = np.full((len(asked_for), K), -np.inf, np.float32)
    for start in range(0, len(vectors), BLOCK):
        near = asked_for @ _unit(vectors[start : start + BLOCK]).T
        both = np.concatenate([best, near], axis=1)
        best = np.partition(both, -K, axis=1)[:, -K:]
    found: np.ndarray = best.min(axis=1)
    return found


def _unit(vectors: np.ndarray) -> np.ndarray:
    out: np.ndarray = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return out
