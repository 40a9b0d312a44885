"""Bars 13 and 14: comparing a whole index with its table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.ground import FULL_TEXT, HASHING, Followed, Ground
from bench.measures import Measure, Outcome, ratio, rounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compared(ground: Ground) -> Followed:
    """The index of bars 13 and 14, synced."""
    followed: Followed = ground.once("the index of bars 13 and 14", lambda: _compared(ground))
    followed.sync()
    return followed


def _compared(ground: Ground) -> Followed:
    rows = ground.wines(ground.sizes.compare_rows)
    followed = ground.followed("compare", rows, f"{FULL_TEXT}\n{HASHING}")
    seconds, report = followed.sync()
    ground.say(f"built {ground.sizes.compare_rows:,} rows in {seconds:.0f} s: {report['seconds']}")
    return followed


def bar_13(ground: Ground) -> Outcome:
    """Reconcile a table in which some rows differ, compared with a bare scan of it."""
    followed, sizes = compared(ground), ground.sizes
    scans, reconciles, reports = [], [], []
    warm_ups = min(1, sizes.warm_ups)
    for turn in range(warm_ups + max(1, sizes.rounds - 2)):
        followed.table.upsert(_changed(ground, turn))
        scans.append(followed.table.scan())
        began = time.perf_counter()
        reports.append(followed.index.sync(reconcile=True).as_dict())
        reconciles.append(time.perf_counter() - began)
    embedded = {r["embedded"] for r in reports}
    if embedded != {sizes.changed}:
        raise AssertionError(f"expected {sizes.changed} embedded texts, got {embedded}")
    return Outcome(
        (
            Measure("of a bare scan", ratio(reconciles[warm_ups:], scans[warm_ups:]), "≤", 5),
            Measure("embedded", reports[-1]["embedded"], "≤", sizes.changed),
        ),
        {
            "rows": sizes.compare_rows,
            "scan": rounded(scans),
            "reconcile": rounded(reconciles),
            "last_stages": reports[-1]["seconds"],
        },
    )


def _changed(ground: Ground, turn: int) -> DataFrame:
    """Rows from all over the table, different ones in every turn."""
    from pyspark.sql import functions as f

    sizes = ground.sizes
    step = sizes.compare_rows // sizes.changed
    rows = ground.wines(sizes.compare_rows).where(f"ts % {step} = {turn + 1}").limit(sizes.changed)
    text = f.concat("description", f.lit(f" Tasted again, {turn}."))
    return rows.withColumns({"description": text, "ts": f.col("ts") + f.lit(10**9 * (turn + 1))})


def bar_14(ground: Ground) -> Outcome:
    """Verify, compared with a bare scan."""
    followed = compared(ground)
    warm_ups = min(1, ground.sizes.warm_ups)
    scans, verifies = [], []
    for _ in range(warm_ups + max(1, ground.sizes.rounds - 2)):
        scans.append(followed.table.scan())
        began = time.perf_counter()
        report = followed.index.verify()
        verifies.append(time.perf_counter() - began)
        if not report.agrees or report.pending:
            raise AssertionError(f"index and table do not agree: {report.as_dict()}")
    return Outcome(
        (Measure("of a bare scan", ratio(verifies[warm_ups:], scans[warm_ups:]), "≤", 5),),
        {"rows": report.rows, "scan": rounded(scans), "verify": rounded(verifies)},
    )
