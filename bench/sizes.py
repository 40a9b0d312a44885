"""Sizes of the bars' workloads: the full ones, and small ones that only check that they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The workloads of one run.

    Attributes:
        build_rows: bars 1, 6, 7: rows of the table.
        rewritten: bars 6, 7: how many of them change at once.
        one_by_one: bar 6: rows that the peer writes one at a time.
        small_rows: bars 4, 5, 8: rows of the table in which one row changes.
        watch_rounds: bar 4.
        wide_rows: bars 2, 3: rows of the large table.
        partition_rows: bars 2, 3: rows of each of its partitions.
        changed: bars 2, 3, 13: rows that change at once.
        rounds: measured rounds in which two sides take turns, after `warm_ups` unmeasured ones.
        search_rows: bars 9, 10, 11.
        queries: bars 9, 10: searches that are timed.
        one_row_commits: bar 10.
        memory_rows: bar 12: rows of the smaller and the larger table.
        compare_rows: bars 13, 14.
        questions: bar 28: questions in one batch.
        peer_questions: bar 28: questions that Hudi's own search is asked.
        streamed, streaming_steps: bar 26: vectors at the beginning, and steps that change them.
        lake_rows: bars 23, 24, 25: vectors of the smaller and the larger index in the lake.
        runtime_rows: bar 42.
        requests: bar 43: requests to the embedding service.
        serve_seconds: bar 17: how long clients search while a writer commits.
        hasty: make Spark and Hudi quick on tables of a few rows; the numbers then mean nothing.
    """

    name: str
    build_rows: int
    rewritten: int
    one_by_one: int
    small_rows: int
    watch_rounds: int
    wide_rows: int
    partition_rows: int
    changed: int
    rounds: int
    warm_ups: int
    search_rows: int
    queries: int
    one_row_commits: int
    memory_rows: tuple[int, int]
    compare_rows: int
    questions: int
    peer_questions: int
    streamed: int
    streaming_steps: int
    lake_rows: tuple[int, int]
    runtime_rows: int
    requests: int
    serve_seconds: float
    hasty: bool = False


FULL = Sizes(
    name="full",
    build_rows=20_000,
    rewritten=10_000,
    one_by_one=1_000,
    small_rows=5_000,
    watch_rounds=20,
    wide_rows=1_000_000,
    partition_rows=10_000,
    changed=100,
    rounds=5,
    warm_ups=2,
    search_rows=130_000,
    queries=500,
    one_row_commits=1_000,
    memory_rows=(250_000, 1_000_000),
    compare_rows=130_000,
    questions=1_000,
    peer_questions=20,
    streamed=120_000,
    streaming_steps=24,
    lake_rows=(130_000, 1_000_000),
    runtime_rows=4_000,
    requests=320,
    serve_seconds=60,
)
SMOKE = Sizes(
    name="smoke",
    build_rows=200,
    rewritten=100,
    one_by_one=20,
    small_rows=100,
    watch_rounds=2,
    wide_rows=1_000,
    partition_rows=200,
    changed=10,
    rounds=1,
    warm_ups=0,
    search_rows=500,
    queries=20,
    one_row_commits=4,
    memory_rows=(500, 2_000),
    compare_rows=500,
    questions=20,
    peer_questions=2,
    streamed=200,
    streaming_steps=1,
    lake_rows=(600, 1_200),
    runtime_rows=40,
    requests=16,
    serve_seconds=8,
    hasty=True,
)
SIZES = {s.name: s for s in (FULL, SMOKE)}
