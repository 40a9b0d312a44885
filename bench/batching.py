"""Bars 28 and 30: many questions at once and ranges, from Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.building import DIMENSION
from bench.ground import Followed, Ground
from bench.measures import Measure, Outcome, rounded
from bench.tables import vector_rows

K = 10
#: Cosines of equal vectors may differ by this much, depending on the order of summation.
EQUAL = 1e-5
#: About how many rows a range holds.
IN_RANGE = 500


@dataclass(frozen=True)
class Batched:
    """An index of a vector column, its vectors in memory, and questions.

    Attributes:
        keys: the key of each vector.
        questions: a Parquet file with a column of numbers `n` and one of vectors `asked`.
    """

    followed: Followed
    keys: list[str]
    vectors: np.ndarray
    asked: np.ndarray
    questions: str


def batched(ground: Ground) -> Batched:
    """The index of bars 28 and 30."""
    made: Batched = ground.once("the index of bars 28 and 30", lambda: _batched(ground))
    return made


def _batched(ground: Ground) -> Batched:
    rows = ground.sizes.search_rows
    followed = ground.followed(
        "batched",
        vector_rows(ground.spark.range(rows), DIMENSION, max(1, rows // 10_000)),
        f'vector = "embedding"\ndimension = {DIMENSION}\npayload = ["points"]',
        key="id",
        partition="part",
    )
    seconds, _ = followed.sync()
    ground.say(f"built {rows:,} vectors in {seconds:.0f} s")
    reader = followed.index.parts.store.open()
    assert reader is not None
    found = pa.Table.from_batches(list(reader.scan(["_key", "_vector"]))).combine_chunks()
    flat = found["_vector"].chunk(0).flatten().to_numpy()
    vectors = _unit(flat.reshape(found.num_rows, DIMENSION))
    # Between two stored vectors, so that none is a question itself.
    picked = np.random.default_rng(7).integers(0, len(vectors), (ground.sizes.questions, 2))
    asked = _unit(vectors[picked[:, 0]] + vectors[picked[:, 1]])
    return Batched(followed, found["_key"].to_pylist(), vectors, asked, _written(ground, asked))


def _unit(vectors: np.ndarray) -> np.ndarray:
    out: np.ndarray = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return out


def _written(ground: Ground, asked: np.ndarray) -> str:
    file = ground.scratch / "questions.parquet"
    columns = {"n": pa.array(range(len(asked)), pa.int32()), "asked": pa.array(asked.tolist())}
    vectors = columns["asked"].cast(pa.list_(pa.float32()))
    pq.write_table(pa.table({**columns, "asked": vectors}), file)
    return str(file)


def bar_28(ground: Ground) -> Outcome:
    """A join with many questions, beside numpy in memory and Hudi's own batch search."""
    there = batched(ground)
    ours, numpy_ = [], []
    for n in range(ground.sizes.warm_ups + ground.sizes.rounds):
        pair = (_timed(lambda: _joined(ground, there)), _timed(lambda: _by_numpy(there)))
        if n >= ground.sizes.warm_ups:
            ours.append(pair[0])
            numpy_.append(pair[1])
    median = statistics.median(ours)
    peer = _timed(lambda: _by_hudi(ground, there)) / ground.sizes.peer_questions
    return Outcome(
        (
            Measure(
                "times faster per question than hudi_vector_search_batch",
                peer / (median / len(there.asked)),
                "≥",
                200,
            ),
            Measure("beyond 3 × numpy", median - 3 * statistics.median(numpy_), "≤", 3, " s"),
            Measure("recall@10", _recall(ground, there), "≥", 1.0),
        ),
        {
            "rows": len(there.vectors),
            "dimension": DIMENSION,
            "questions": len(there.asked),
            "seconds": rounded(ours),
            "numpy_seconds": rounded(numpy_),
            "hudi_seconds_per_question": peer,
            "hudi_questions": ground.sizes.peer_questions,
            "note": "Hudi's search was measured with fewer questions, and scaled",
        },
    )


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _joined(ground: Ground, there: Batched) -> dict[int, set[str]]:
    """Question → the keys that were found."""
    questions = ground.spark.read.parquet(there.questions)
    found: dict[int, set[str]] = {}
    for row in there.followed.index.search_batch(questions, vector="asked", k=K).collect():
        found.setdefault(row.n, set()).add(row._key)
    return found


def _by_numpy(there: Batched) -> np.ndarray:
    near = there.asked @ there.vectors.T
    best: np.ndarray = np.argpartition(-near, K, axis=1)[:, :K]
    return best


def _by_hudi(ground: Ground, there: Batched) -> None:
    spark, few = ground.spark, ground.sizes.peer_questions
    spark.read.parquet(there.questions).limit(few).createOrReplaceTempView("bench_questions")
    lake = str(there.followed.folder / "lake")
    spark.read.format("hudi").load(lake).createOrReplaceTempView("bench_corpus")
    spark.sql(
        "SELECT * FROM hudi_vector_search_batch('bench_corpus', 'embedding', 'bench_questions', "
        f"'asked', {K}, 'cosine')"
    ).collect()


def _recall(ground: Ground, there: Batched) -> float:
    """The share of hits that are at least as near as the k-th nearest of all."""
    at = {key: n for n, key in enumerate(there.keys)}
    found = _joined(ground, there)
    shares: list[float] = []
    for n, question in enumerate(there.asked):
        near = there.vectors @ question
        least = float(np.partition(near, -K)[-K]) - EQUAL
        shares.append(sum(near[at[key]] >= least for key in found.get(n, ())) / K)
    return statistics.mean(shares)


def bar_30(ground: Ground) -> Outcome:
    """A range query, beside an exact search for the nearest rows."""
    there = batched(ground)
    question, index = there.asked[0], there.followed.index
    near = np.sort(there.vectors.astype(np.float64) @ question.astype(np.float64))[::-1]
    size = min(IN_RANGE, len(near) - 1)
    # Between two cosines, so that rounding decides nothing.
    least = float(near[size - 1 : size + 1].mean())
    expected = {there.keys[n] for n in np.flatnonzero(there.vectors @ question >= least)}
    one = ground.spark.read.parquet(there.questions).where("n = 0")
    asked = question.tolist()
    ranges, exact, alone = [], [], []
    found: set[str] = set()
    for n in range(ground.sizes.warm_ups + ground.sizes.rounds):
        began = time.perf_counter()
        found = {row._key for row in index.within(asked, 1 - least).collect()}
        seconds = time.perf_counter() - began
        joined = _timed(lambda: index.search_batch(one, vector="asked", k=K).collect())
        searched = _timed(lambda: index.search(vector=asked, k=K, exact=True))
        if n >= ground.sizes.warm_ups:
            ranges.append(seconds)
            exact.append(joined)
            alone.append(searched)
    ratio = statistics.median(ranges) / statistics.median(exact)
    return Outcome(
        (
            Measure(
                "rows that numpy does not return, or only numpy", len(found ^ expected), "≤", 0
            ),
            Measure("of an exact search for the nearest rows, from Spark", ratio, "≤", 2),
        ),
        {
            "rows": len(there.vectors),
            "in_range": len(found),
            "seconds": rounded(ranges),
            "exact_seconds": rounded(exact),
            "exact_in_process_seconds": rounded(alone),
        },
    )
