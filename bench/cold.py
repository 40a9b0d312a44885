"""Bars 5, 8 and 11: whole processes, from start to exit."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from bench.ground import Followed, Ground, environment
from bench.measures import Measure, Outcome, ratio, rounded
from bench.memory import Watcher
from bench.searching import searched
from bench.watching import corrected, small
from lakewake.embed.weights import minilm_folder
from lakewake.spark.jars import bundle_jar

POLLS = 20


def bar_5(ground: Ground) -> Outcome:
    """One changed row, by `lakewake sync` and by the hand-written script, in turns."""
    followed, ours, theirs = small(ground), [], []
    rebuilt = _peer_rebuilt(ground, followed)
    for turn in range(ground.sizes.rounds):
        followed.table.upsert(corrected(ground, f"Cold note number {turn}: {time.time_ns()}"))
        ours.append(ground.run(_sync(ground, followed))[0])
        if ground.peer:
            seconds, rows = ground.run(_hand_written(ground, followed))
            if int(rows) != 1:
                raise AssertionError(f"the hand-written script saw {rows} changed rows, not 1")
            theirs.append(seconds)
        ground.say(f"turn {turn}: ours {ours[-1]:.1f} s, theirs {theirs[-1:]}")
    return Outcome(
        (
            Measure(
                "of the hand-written script",
                ratio(ours, theirs) if theirs else None,
                "≤",
                0.2,
            ),
        ),
        {
            "lakewake_sync": rounded(ours),
            "hand_written": rounded(theirs),
            "nightly_rebuild": rebuilt,
            "rows_in_table": ground.sizes.small_rows,
        },
    )


def bar_8(ground: Ground) -> Outcome:
    """Nothing new: a warm poll, and whole processes."""
    followed = small(ground)
    jobs_before = _jobs(ground)
    warm = [followed.sync()[0] for _ in range(POLLS)]
    jobs = len(_jobs(ground) - jobs_before)
    _peer_rebuilt(ground, followed)
    ours, theirs, machines = [], [], 0
    for _ in range(ground.sizes.rounds):
        seconds, java = _sync_watched(ground, followed)
        ours.append(seconds)
        machines += java
        if ground.peer:
            theirs.append(ground.run(_hand_written(ground, followed))[0])
    cold = ratio(ours, theirs) if theirs else None
    return Outcome(
        (
            Measure("warm", statistics.median(warm) * 1000, "≤", 50, " ms"),
            Measure("Spark jobs", jobs, "≤", 0),
            Measure("cold, of the hand-written poll", cold, "≤", 0.08),
            Measure("JVMs started", machines, "≤", 0),
        ),
        {
            "warm": rounded(warm),
            "lakewake_sync": rounded(ours),
            "hand_written": rounded(theirs),
        },
    )


def bar_11(ground: Ground) -> Outcome:
    """`lakewake search` of the large index, from the shell."""
    found = searched(ground)
    command = ground.lakewake(
        "search", found.followed.name, "smoky red with leather", "-k", "5",
        "--config", str(found.followed.config), "--json",
    )  # fmt: skip
    seconds = [ground.run(command)[0] for _ in range(max(2, ground.sizes.rounds))]
    return Outcome(
        (Measure("cold search", statistics.median(seconds), "≤", 1.5, " s"),),
        {"seconds": rounded(seconds), "rows": ground.sizes.search_rows},
    )


def _sync(ground: Ground, followed: Followed) -> list[str]:
    return ground.lakewake("sync", followed.name, "--config", str(followed.config))


def _sync_watched(ground: Ground, followed: Followed) -> tuple[float, bool]:
    """Seconds of a `lakewake sync`, and whether it started Java."""
    began = time.perf_counter()
    with (
        subprocess.Popen(
            _sync(ground, followed), stdout=subprocess.DEVNULL, env=environment()
        ) as process,
        Watcher(process.pid, interval=0.02) as watched,
    ):
        process.wait()
        seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"lakewake sync ended with exit code {process.returncode}")
    return seconds, "java" in watched.programs


def _jobs(ground: Ground) -> set[int]:
    return set(ground.spark.sparkContext.statusTracker().getJobIdsForGroup())


def _hand_written(ground: Ground, followed: Followed) -> list[str]:
    return ground.peer_script("hand_written_sync", *_peer_paths(ground, followed))


def _peer_rebuilt(ground: Ground, followed: Followed) -> float | None:
    """Rebuild the peer's index by its nightly script; returns seconds, None without a peer."""
    if not ground.peer:
        return None
    _database(ground).mkdir(exist_ok=True)
    seconds, rows = ground.run(
        ground.peer_script("nightly_rebuild", *_peer_paths(ground, followed))
    )
    ground.say(f"the peer rebuilt {rows} rows in {seconds:.0f} s")
    return seconds


def _peer_paths(ground: Ground, followed: Followed) -> tuple[object, ...]:
    return followed.table.path, _database(ground), minilm_folder(), bundle_jar()


def _database(ground: Ground) -> Path:
    return ground.scratch / "lancedb"
