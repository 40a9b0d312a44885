"""All bars, by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.building import bar_1, bar_12
from bench.cold import bar_5, bar_8, bar_11
from bench.comparing import bar_13, bar_14
from bench.following import bar_2, bar_3
from bench.ground import Ground
from bench.installed import bar_15
from bench.lake import bar_21, bar_22, bar_24, bar_27
from bench.measures import Outcome
from bench.rewriting import bar_6, bar_7
from bench.searching import bar_9, bar_10
from bench.serving import bar_16, bar_17, bar_18, bar_19, bar_20
from bench.streaming import bar_26
from bench.watching import bar_4


@dataclass(frozen=True)
class Bar:
    """One claim, and the function that measures it."""

    number: int
    what: str
    run: Callable[[Ground], Outcome]


_ALL = (
    Bar(1, "build 20,000 rows end to end, compared with the raw embedder", bar_1),
    Bar(
        2, "follow 100 changed rows of one partition: table of 1,000,000 rows and of 10,000", bar_2
    ),
    Bar(3, "the same for 100 deleted rows; follow 100 scattered changes, and commit them", bar_3),
    Bar(4, "warm watch: from commit to found by search, compared with an incremental query", bar_4),
    Bar(5, "cold `lakewake sync` of one changed row, compared with a hand-written script", bar_5),
    Bar(6, "10,000 changed rows in one sync, compared with one row at a time", bar_6),
    Bar(7, "10,000 rows rewritten with the same text, compared with embedding them", bar_7),
    Bar(8, "nothing new: warm, and cold compared with a hand-written poll", bar_8),
    Bar(9, "search 130,000 × 384: recall@10, median, p99", bar_9),
    Bar(10, "the same after 1,000 one-row commits by watch", bar_10),
    Bar(11, "cold `lakewake search` from the shell", bar_11),
    Bar(12, "memory of building 1,000,000 × 384 from a vector column, and 250,000 × 384", bar_12),
    Bar(13, "reconcile 130,000 rows, 100 of them different, compared with a bare scan", bar_13),
    Bar(14, "`verify` of 130,000 rows, compared with a bare scan", bar_14),
    Bar(15, "installed size, default extras, compared with the hand-written stack", bar_15),
    Bar(16, "what HTTP adds to an in-process search, same vectors", bar_16),
    Bar(
        17, "16 clients while one writer commits and the watch follows, compared with idle", bar_17
    ),
    Bar(18, "process start to ready, 130,000 rows, no watch", bar_18),
    Bar(19, "memory of the server beyond the model at 130,000 rows", bar_19),
    Bar(20, "SIGTERM under load: running requests finish, then exit", bar_20),
    Bar(21, "index in the lake, 130,000 × 384: recall@10 by the share of vectors read", bar_21),
    Bar(22, "search it without a JVM, compared with hudi_vector_search", bar_22),
    Bar(24, "follow 100 changed rows in it, compared with a bare Hudi upsert", bar_24),
    Bar(26, "recall after every step of a streaming runbook, 120,000 × 100, both stores", bar_26),
    Bar(27, "its size at rest, compared with raw vectors and texts", bar_27),
)
BARS = {bar.number: bar for bar in _ALL}
