"""Bar 32: two indexes on one table follow its commits with one read."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lakewake
from bench.ground import HASHING, Ground
from bench.measures import Measure, Outcome, rounded
from bench.tables import wide_rows

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame

RECIPE = f'text = "{{txt}}"\npayload = ["points"]\nembedding_store = false\n{HASHING}'
#: The two indexes of the other configuration: other texts, columns and folders.
INDEX = """\
[[index]]
name  = "{name}"
table = "lake"
store = "lance://{name}"
text  = "{text}"
payload = {payload}
embedding_store = false
{model}
"""
TWO = {"plain": ("{txt}", '["points"]'), "longer": ("{points}: {txt}", '["points", "txt"]')}


def bar_32(ground: Ground) -> Outcome:
    """Follow the same commits with one index and with two, in turns."""
    changed, rows = max(10, ground.sizes.rewritten // 10), ground.sizes.build_rows
    followed = ground.followed(
        "shared", wide_rows(ground.spark.range(rows), 1), RECIPE, key="id", partition="part"
    )
    both = followed.folder / "two.toml"
    both.write_text(
        "\n".join(
            INDEX.format(name=name, text=text, payload=payload, model=HASHING)
            for name, (text, payload) in TWO.items()
        )
    )
    with (
        lakewake.open(followed.config, spark=ground.spark) as one,
        lakewake.open(both, spark=ground.spark) as two,
    ):
        sides = {"one": one, "two": two}
        for lake in sides.values():
            lake.sync()
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        shared: list[int] = []
        for turn in range(ground.sizes.warm_ups + ground.sizes.rounds):
            followed.table.upsert(_changed(ground, turn, changed))
            # In turns, so that what warms up helps both.
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                took, reports = _without_embedding(sides[side])
                seconds[side].append(took)
                _expect(reports, len(sides[side]), changed)
                shared += [r.reads.shared_bytes for r in reports[1:]]
    measured = {side: s[ground.sizes.warm_ups :] for side, s in seconds.items()}
    ratio = statistics.median(measured["two"]) / statistics.median(measured["one"])
    unshared = sum(n == 0 for n in shared)
    return Outcome(
        (
            Measure("of one index, embedding aside", ratio, "≤", 1.3),
            Measure("follows that read the table again", unshared, "≤", 0),
        ),
        {"rows": rows, "changed": changed, **{s: rounded(t) for s, t in measured.items()}},
    )


def _changed(ground: Ground, turn: int, rows: int) -> DataFrame:
    first = turn * rows % ground.sizes.build_rows
    frame = wide_rows(ground.spark.range(first, first + rows), 1)
    return frame.selectExpr("id", "part", f"concat(txt, ' turn {turn}') AS txt", "points", "1L ts")


def _without_embedding(lake: lakewake.Lakewake) -> tuple[float, tuple[Any, ...]]:
    """Seconds of a sync of all indexes, without those that the embedders took; the reports."""
    spent: list[float] = []
    began = time.perf_counter()
    with _timed(lake, spent.append):
        done = lake.sync()
    took = time.perf_counter() - began
    if done.failed:
        raise AssertionError(f"syncs failed: {done.failed}")
    return took - sum(spent), done.reports


@contextmanager
def _timed(lake: lakewake.Lakewake, spent: Callable[[float], None]) -> Iterator[None]:
    """Report the seconds of each call of the embedders within the context."""
    embedders: list[Any] = list({id(i.embedder): i.embedder for i in lake.values()}.values())
    for embedder in embedders:
        embedder.embed = _watched(embedder.embed, spent)
    try:
        yield
    finally:
        for embedder in embedders:
            del embedder.embed


def _watched(embed: Callable[..., np.ndarray], spent: Callable[[float], None]) -> Any:
    def watched(*given: Any) -> np.ndarray:
        began = time.perf_counter()
        try:
            return embed(*given)
        finally:
            spent(time.perf_counter() - began)

    return watched


def _expect(reports: tuple[Any, ...], indexes: int, changed: int) -> None:
    done = [(r.action.value, r.rows_changed) for r in reports]
    if done != [("follow", changed)] * indexes:
        raise AssertionError(f"expected {indexes} follows of {changed} rows, got {done}")
