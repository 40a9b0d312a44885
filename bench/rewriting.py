"""Bars 6 and 7: many rows at once, and rows whose text does not change."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench.building import built
from bench.ground import FULL_TEXT, HASHING, Ground
from bench.measures import Measure, Outcome, rounded

if TYPE_CHECKING:
    from pyspark.sql import Column


def bar_6(ground: Ground) -> Outcome:
    """Many changed rows in one sync, compared with one row at a time.

    The time of the hashing embedder is included.
    """
    sizes = ground.sizes
    rows = ground.wines(sizes.build_rows)
    followed = ground.followed("rewrite", rows, f"{FULL_TEXT}\n{HASHING}")
    followed.sync()
    some = rows.where(f"ts < {sizes.rewritten}")
    seconds: list[float] = []
    report: dict[str, Any] = {}
    for turn in range(min(1, sizes.warm_ups) + sizes.rounds):
        changed = some.withColumns(
            {"description": _marked(turn), "ts": some.ts + sizes.build_rows * (turn + 1)}
        )
        followed.table.upsert(changed)
        took, report = followed.sync()
        if report["rows_changed"] != sizes.rewritten:
            raise AssertionError(f"expected {sizes.rewritten} changed rows, got {report}")
        seconds.append(took)
    per_row = statistics.median(seconds[min(1, sizes.warm_ups) :]) / sizes.rewritten
    _, printed = ground.run(
        ground.peer_script(
            "row_by_row", ground.scratch / "row_by_row", sizes.build_rows, sizes.one_by_one
        )
    )
    one_by_one = float(printed) / sizes.one_by_one
    return Outcome(
        (Measure("times faster per row", one_by_one / per_row, "≥", 100),),
        {
            "rows": sizes.rewritten,
            "seconds": rounded(seconds),
            "last_stages": report["seconds"],
            "milliseconds_per_row": per_row * 1000,
            "row_by_row_rows": sizes.one_by_one,
            "row_by_row_milliseconds_per_row": one_by_one * 1000,
        },
    )


def _marked(turn: int) -> Column:
    from pyspark.sql import functions as f

    return f.concat("description", f.lit(f" Tasted again, {turn}."))


def bar_7(ground: Ground) -> Outcome:
    """Rows rewritten with the same text, compared with embedding them."""
    from pyspark.sql import functions as f

    sizes, done = ground.sizes, built(ground)
    rows = ground.wines(sizes.build_rows).where(f"ts < {sizes.rewritten}")
    # The first half of the raw embedder's texts starts with these.
    embedding = done.raw[0] * sizes.rewritten / (sizes.build_rows // 2)
    seconds, reports = [], []
    for turn in range(sizes.warm_ups + sizes.rounds):
        later = f.lit(sizes.build_rows * (turn + 1)) + f.col("ts")
        done.followed.table.upsert(rows.withColumn("ts", later))
        took, report = done.followed.sync()
        seconds.append(took)
        reports.append(report)
    took = statistics.median(seconds[sizes.warm_ups :])
    return Outcome(
        (
            Measure("embedded", max(r["embedded"] for r in reports), "≤", 0),
            Measure("faster than embedding", embedding / took, "≥", 10),
        ),
        {
            "rows": sizes.rewritten,
            "embedding_seconds": embedding,
            "seconds": rounded(seconds),
            "last_stages": reports[-1]["seconds"],
        },
    )
