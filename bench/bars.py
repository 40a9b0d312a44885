"""All bars, by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.answering import bar_34, bar_35, bar_38
from bench.batching import bar_28, bar_30
from bench.building import bar_1, bar_12
from bench.cold import bar_5, bar_8, bar_11
from bench.comparing import bar_13, bar_14
from bench.following import bar_2, bar_3
from bench.ground import Ground
from bench.hot import bar_33, bar_36, bar_37, bar_39
from bench.installed import bar_15, bar_44
from bench.lake import bar_21, bar_22, bar_27
from bench.measures import Outcome
from bench.million import bar_23, bar_24, bar_25
from bench.parted import bar_31
from bench.quality import bar_40
from bench.rewriting import bar_6, bar_7
from bench.runtimes import bar_42
from bench.searching import bar_9, bar_10
from bench.services import bar_43
from bench.serving import bar_16, bar_17, bar_18, bar_19, bar_20
from bench.sharing import bar_32
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
    Bar(15, "installed size with Spark, compared with the hand-written stack", bar_15),
    Bar(16, "what HTTP adds to an in-process search, same vectors", bar_16),
    Bar(
        17, "16 clients while one writer commits and the watch follows, compared with idle", bar_17
    ),
    Bar(18, "process start to ready, 130,000 rows, no watch", bar_18),
    Bar(19, "memory of the server beyond the model at 130,000 rows", bar_19),
    Bar(20, "SIGTERM under load: running requests finish, then exit", bar_20),
    Bar(21, "index in the lake, 130,000 × 384: recall@10 by the share of vectors read", bar_21),
    Bar(22, "search it without a JVM, compared with hudi_vector_search", bar_22),
    Bar(23, "the same with 1,000,000 × 384: recall@10, share of vectors read, median", bar_23),
    Bar(24, "follow 100 changed rows, compared with a bare upsert, and at both sizes", bar_24),
    Bar(25, "build 1,000,000 × 384 from a vector column, compared with a bulk_insert", bar_25),
    Bar(26, "recall after every step of a streaming runbook, 120,000 × 100, both stores", bar_26),
    Bar(27, "its size at rest, compared with raw vectors and texts", bar_27),
    Bar(28, "1,000 questions at once, 130,000 × 384, compared with numpy and Hudi's own", bar_28),
    Bar(30, "all rows within a distance, compared with an exact search", bar_30),
    Bar(31, "approximate index of 1,000,000 × 384 on two workers, compared with one", bar_31),
    Bar(32, "follow 1,000 rows with two indexes on one table, compared with one", bar_32),
    Bar(33, "search 130,000 × 384 in memory, beside libraries, LanceDB and pgvector", bar_33),
    Bar(34, "16 clients over HTTP with ready vectors, beside pgvector", bar_34),
    Bar(35, "the same while 100 rows are committed every 10 s and the watch follows", bar_35),
    Bar(36, "filters that 50 %, 1 % and 0.01 % of the rows pass, in memory", bar_36),
    Bar(37, "search 1,000,000 × 384 in memory, and the memory that it takes", bar_37),
    Bar(38, "16 clients with distinct texts, compared with embedder and searches", bar_38),
    Bar(39, "start of the server until it answers from memory", bar_39),
    Bar(40, "nDCG@10 on SciFact, beside bm25s and sentence-transformers", bar_40),
    Bar(42, "build on the processor, compared with the fastest runtime's texts alone", bar_42),
    Bar(43, "an HTTP service of 8 slots and 100 ms, compared with 8 times one slot", bar_43),
    Bar(44, "`pip install lakewake`, compared with all it installed formerly", bar_44),
)
BARS = {bar.number: bar for bar in _ALL}
