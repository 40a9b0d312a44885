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
from bench.measures import Outcome
from bench.rewriting import bar_6, bar_7
from bench.searching import bar_9, bar_10
from bench.serving import bar_16, bar_17, bar_18, bar_19, bar_20
from bench.watching import bar_4


@dataclass(frozen=True)
class Bar:
    """One claim, and what measures it."""

    number: int
    what: str
    run: Callable[[Ground], Outcome]


_ALL = (
    Bar(1, "build 20,000 rows end to end, beside the raw embedder", bar_1),
    Bar(2, "follow 100 changed rows in one partition: 1,000,000 rows beside 10,000", bar_2),
    Bar(3, "follow 100 deleted rows likewise; 100 scattered changes beside their commit", bar_3),
    Bar(
        4, "warm watch: commit completed → found by search, beside a bare incremental query", bar_4
    ),
    Bar(5, "cold `lakewake sync` of one changed row, beside the hand-written script", bar_5),
    Bar(6, "10,000 changed rows in one sync, beside row by row", bar_6),
    Bar(7, "10,000 rows rewritten with the same text, beside embedding them", bar_7),
    Bar(8, "nothing new: warm, and cold beside the hand-written poll", bar_8),
    Bar(9, "search 130,000 × 384: recall@10, median, p99", bar_9),
    Bar(10, "the same after 1,000 one-row commits by watch", bar_10),
    Bar(11, "cold `lakewake search` from the shell", bar_11),
    Bar(12, "memory while building 1,000,000 × 384 from a vector column, beside 250,000", bar_12),
    Bar(13, "reconcile 130,000 rows of which 100 differ, beside a bare scan", bar_13),
    Bar(14, "`verify` of 130,000 rows, beside a bare scan", bar_14),
    Bar(15, "installed size, default extras, beside the hand-written stack", bar_15),
    Bar(16, "what HTTP adds to an in-process search, same vectors", bar_16),
    Bar(17, "16 clients while one writer commits and the watch follows, beside idle", bar_17),
    Bar(18, "process start to ready, 130,000 rows, no watch", bar_18),
    Bar(19, "memory of the server beyond the model at 130,000 rows", bar_19),
    Bar(20, "SIGTERM under load: running requests finish, exit", bar_20),
)
BARS = {bar.number: bar for bar in _ALL}
