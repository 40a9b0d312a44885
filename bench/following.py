"""Bars 2 and 3: the cost of following depends on the change, not on the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.ground import HASHING, Followed, Ground
from bench.measures import Measure, Outcome, ratio, rounded
from bench.tables import COPY_ON_WRITE, MERGE_ON_READ, wide_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPES = {"CoW": COPY_ON_WRITE, "MoR": MERGE_ON_READ}
RECIPE = f'text = "{{txt}}"\npayload = ["points"]\nembedding_store = false\n{HASHING}'
#: The partition in which rows change.
PARTITION = "p0"


@dataclass(frozen=True)
class Pair:
    """The large table, and a small table that holds just one of its partitions."""

    large: Followed
    small: Followed
    partitions: int


def pair(ground: Ground, kind: str) -> Pair:
    """The tables of bars 2 and 3."""
    made: Pair = ground.once(f"the {kind} tables of bars 2 and 3", lambda: _pair(ground, kind))
    return made


def _pair(ground: Ground, kind: str) -> Pair:
    sizes = ground.sizes
    partitions = sizes.wide_rows // sizes.partition_rows
    rows = wide_rows(ground.spark.range(sizes.wide_rows), partitions)

    def index(name: str, frame: DataFrame) -> Followed:
        followed = ground.followed(
            f"{name}_{kind}", frame, RECIPE, key="id", partition="part", type=TYPES[kind]
        )
        seconds, report = followed.sync()
        ground.say(f"built {name} {kind} in {seconds:.0f} s: {report['seconds']}")
        return followed

    alone = rows.where(f"part = '{PARTITION}'")
    return Pair(index("large", rows), index("small", alone), partitions)


def bar_2(ground: Ground) -> Outcome:
    """Follow changed rows of one partition, in the large table and in the small one."""
    seen = {kind: _rounds(ground, pair(ground, kind), _change) for kind in TYPES}
    return Outcome(_size_ratios(seen), seen)


def bar_3(ground: Ground) -> Outcome:
    """Follow deleted rows in the same way, and changes scattered over the whole table."""
    deleted = {kind: _rounds(ground, pair(ground, kind), _delete) for kind in TYPES}
    scattered = {kind: _scattered(ground, pair(ground, kind)) for kind in TYPES}
    shares = {kind: ratio(s["follow"], s["commit"]) for kind, s in scattered.items()}
    return Outcome(
        (
            *_size_ratios(deleted),
            Measure("scattered, of the commit, CoW", shares["CoW"], "≤", 0.5),
            Measure("scattered, of the commit, MoR", shares["MoR"]),
        ),
        {"deleted": deleted, "scattered": scattered},
    )


def _size_ratios(seen: dict[str, dict[str, Any]]) -> tuple[Measure, ...]:
    return tuple(
        Measure(f"large of small, {kind}", ratio(s["large"], s["small"]), "≤", 1.3)
        for kind, s in seen.items()
    )


def _rounds(
    ground: Ground, tables: Pair, commit: Callable[[Ground, Followed, int], None]
) -> dict[str, Any]:
    """Seconds of following the same change in both tables, in turns."""
    sides = {"large": tables.large, "small": tables.small}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    stages: dict[str, dict[str, float]] = {}
    for turn in range(ground.sizes.warm_ups + ground.sizes.rounds):
        for side, followed in sides.items():
            commit(ground, followed, turn)
            took, report = followed.sync()
            _expect(report, "follow", ground.sizes.changed)
            seconds[side].append(took)
            stages[side] = report["seconds"]
    measured = {side: rounded(s[ground.sizes.warm_ups :]) for side, s in seconds.items()}
    return {**measured, "last_stages": stages}


def _expect(report: dict[str, Any], action: str, rows: int) -> None:
    done = report["rows_changed"] + report["rows_deleted"]
    if (report["action"], done) != (action, rows):
        raise AssertionError(f"expected {action} of {rows} rows, got {report}")


def _partition_rows(ground: Ground, turn: int) -> DataFrame:
    """Some rows of the one partition, different ones in every turn."""
    sizes = ground.sizes
    partitions = sizes.wide_rows // sizes.partition_rows
    first, changed = turn * sizes.changed, sizes.changed
    ids = ground.spark.range(first * partitions, (first + changed) * partitions, partitions)
    return wide_rows(ids, partitions)


def _change(ground: Ground, followed: Followed, turn: int) -> None:
    rows = _partition_rows(ground, turn)
    followed.table.upsert(rows.selectExpr(*_rewritten(f"turn {turn}")))


def _delete(ground: Ground, followed: Followed, turn: int) -> None:
    # Later than any change: otherwise the ordering field would keep the row.
    followed.table.delete(_partition_rows(ground, turn).selectExpr(*_rewritten("", ts=9)))


def _rewritten(mark: str, ts: int = 1) -> list[str]:
    return ["id", "part", f"concat(txt, ' {mark}') AS txt", "points", f"{ts}L AS ts"]


def _scattered(ground: Ground, tables: Pair) -> dict[str, Any]:
    """Seconds of the commit and of following it, for changes all over the large table."""
    sizes, followed = ground.sizes, tables.large
    warm_ups, turns = min(1, sizes.warm_ups), max(1, sizes.rounds // 2)
    commits, follows = [], []
    report: dict[str, Any] = {}
    for turn in range(warm_ups + turns):
        rows = wide_rows(_far_apart(ground, turn), tables.partitions)
        commits.append(followed.table.upsert(rows.selectExpr(*_rewritten(f"scatter {turn}"))))
        took, report = followed.sync()
        _expect(report, "follow", sizes.changed)
        follows.append(took)
    return {
        "commit": rounded(commits[warm_ups:]),
        "follow": rounded(follows[warm_ups:]),
        "last_stages": report["seconds"],
    }


def _far_apart(ground: Ground, turn: int) -> DataFrame:
    """Row numbers from the whole table, except the first ones, which get deleted."""
    sizes = ground.sizes
    # One less than a multiple of the partitions: every row is in a different one.
    step = sizes.wide_rows // sizes.changed - 1
    end = sizes.wide_rows - turn
    return ground.spark.range(end - 1 - (sizes.changed - 1) * step, end, step)
