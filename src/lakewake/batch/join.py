"""The kNN join: questions × groups of scan parts, then the best of all groups, then their rows.

Spark moves only questions, candidates and hits between executors. The index is read from the store
by the executors themselves: its vectors once, and the texts and payload of the hits once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakewake.batch.blocks import PART, Comparing, Group, Kept
from lakewake.batch.nearest import QUESTIONS, Found, Nearest, as_score
from lakewake.batch.questions import CARRIED, QUESTION, VECTOR, unpacked
from lakewake.batch.rows import Pinned
from lakewake.errors import StoreError
from lakewake.source import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Questions that are compared with an index that is too large to keep, before it is read again;
#: fewer if many hits are wanted.
ASKED_BYTES, ASKED_HITS = 16 * 1024 * 1024, 1_000_000
#: Columns of candidates: the number of a group, and lists of `_id`s, scores and places.
GROUP, IDS, SCORES, PLACES, CANDIDATES = "part_group", "ids", "scores", "places", "candidates"
#: Columns of a hit on its way.
RANK, SCORE, ID, AT, POSITION = "rank", "score", "id", "scan_part", "position"
CANDIDATE_TYPE = f"{IDS} array<string>, {SCORES} array<double>, {PLACES} array<bigint>"


def nearest_hits(
    questions: DataFrame, groups: tuple[Group, ...], k: int, how: Comparing, pin: Pinned
) -> DataFrame:
    """The hits of each question, without their texts and payload."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    spark = questions.sparkSession
    carried = questions.schema[CARRIED].dataType
    numbers = spark.range(0, len(groups), 1, max(len(groups), 1)).select(sf.col("id").alias(GROUP))
    # One partition of questions × one group in each: every pair is a task of its own. The hint
    # keeps Spark from sending the numbers to the questions instead.
    pairs = questions.repartition(1).hint("shuffle_replicate_nl").crossJoin(numbers)
    pairs = pairs.select(
        QUESTION, VECTOR, GROUP, sf.when(sf.col(GROUP) == 0, sf.col(CARRIED)).alias(CARRIED)
    )
    lists = _parse_datatype_string(f"{QUESTION} binary, {CANDIDATE_TYPE}")
    compared = StructType([*lists.fields, StructField(CARRIED, carried)])
    candidates = arrow.mapped(pairs, Compare(groups, k, how, pin), compared)
    together = (
        candidates.repartition(parallel(spark), QUESTION)
        .groupBy(QUESTION)
        .agg(
            sf.collect_list(sf.struct(IDS, SCORES, PLACES)).alias(CANDIDATES),
            sf.first(CARRIED, ignorenulls=True).alias(CARRIED),
        )
        .select(CANDIDATES, CARRIED)
    )
    hits = _parse_datatype_string(
        f"{RANK} int, {SCORE} double, {ID} string, {AT} bigint, {POSITION} bigint"
    )
    shape = StructType([*hits.fields, StructField(CARRIED, carried)])
    return arrow.mapped(together, Merge(len(groups), k), shape)


def parallel(spark: Any) -> int:
    """In how many partitions hits are worked on: Python workers make many small ones slow."""
    return 2 * int(spark.sparkContext.defaultParallelism)


@dataclass(frozen=True)
class Compare:
    """Compares questions with groups of scan parts, on an executor.

    Every question gets one row of candidates from every group, even if it has none: so that a
    missing group is noticed.
    """

    groups: tuple[Group, ...]
    k: int
    how: Comparing
    pin: Pinned

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pairs of a question and the number of a group → candidates."""
        kept: dict[int, Kept] = {}
        with self.pin():
            for some in self._collected(batches):
                numbers = np.asarray(some[GROUP])
                for number in np.unique(numbers).tolist():
                    if number not in kept:
                        # A task has one group, as a rule; otherwise the former makes room.
                        kept = {number: Kept(self.groups[number], self.how)}
                    yield self._compared(some.filter(pa.array(numbers == number)), kept[number])

    def _collected(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pairs, as many at a time as memory allows."""
        most = min(ASKED_BYTES // (4 * self.how.dimension), ASKED_HITS // self.k) + 1
        held: list[pa.RecordBatch] = []
        for batch in batches:
            for start in range(0, batch.num_rows, most):
                held.append(batch.slice(start, most))
                if sum(b.num_rows for b in held) >= most:
                    yield _one_batch(held)
                    held = []
        if held:
            yield _one_batch(held)

    def _compared(self, some: pa.RecordBatch, blocks: Iterable[Any]) -> pa.RecordBatch:
        vectors = unpacked(some[VECTOR], self.how.dimension)
        step = max(1, min(QUESTIONS, ASKED_HITS // (10 * self.k)))
        each = [
            Nearest(vectors[start : start + step], self.k, self.how.metric)
            for start in range(0, len(vectors), step)
        ]
        for block in blocks:
            for nearest in each:
                nearest.see(block)
        lists = [_listed(one.found, one.count, self.how.metric) for one in each]
        columns = [pa.concat_arrays(parts) for parts in zip(*lists, strict=True)]
        return pa.RecordBatch.from_arrays(
            [some[QUESTION], *columns, some[CARRIED]], [QUESTION, IDS, SCORES, PLACES, CARRIED]
        )


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches).combine_chunks()
    return next(iter(whole.to_batches()), batches[0])


def _listed(found: Found, questions: int, metric: str) -> list[pa.Array]:
    """Candidates as lists, one for each question."""
    counts = np.bincount(found.question, minlength=questions)
    offsets = pa.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    columns = (
        pa.array(found.id.tolist(), pa.string()),
        pa.array(as_score(found.score, metric), pa.float64()),
        pa.array(found.place, pa.int64()),
    )
    return [pa.ListArray.from_arrays(offsets, column) for column in columns]


@dataclass(frozen=True)
class Merge:
    """Ranks the candidates of all groups, on an executor."""

    groups: int
    k: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Questions with the candidates of all groups → hits."""
        for batch in batches:
            hits = [
                (n, rank, *hit)
                for n, candidates in enumerate(batch[CANDIDATES].to_pylist())
                for rank, hit in enumerate(self._best(candidates), start=1)
            ]
            columns = list(zip(*hits, strict=True)) or [()] * 5
            places = np.array(columns[4], np.int64)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(columns[1], pa.int32()),
                    pa.array(columns[2], pa.float64()),
                    pa.array(columns[3], pa.string()),
                    pa.array(places // PART),
                    pa.array(places % PART),
                    batch[CARRIED].take(pa.array(columns[0], pa.int64())),
                ],
                [RANK, SCORE, ID, AT, POSITION, CARRIED],
            )

    def _best(self, candidates: list[dict[str, list[Any]]]) -> list[tuple[float, str, int]]:
        """The best chunk of each of the `k` best rows: score, `_id` and place."""
        if len(candidates) != self.groups:
            raise StoreError(
                "the questions changed while they were compared: Spark had to read them again, "
                "and they were different",
                hint="persist the questions or write them to a table, then search again",
            )
        every = sorted(
            (-score, id, place)
            for some in candidates
            for score, id, place in zip(some[SCORES], some[IDS], some[PLACES], strict=True)
        )
        best: dict[tuple[str, str], tuple[float, str, int]] = {}
        for minus, id, place in every:
            if len(best) == self.k:
                break
            partition, key = json.loads(id)[:2]
            best.setdefault((partition, key), (-minus, id, place))
        # Equal scores are ordered by row, as a search orders them.
        ordered = sorted(best.items(), key=lambda one: (-one[1][0], one[0]))
        return [hit for _, hit in ordered]
