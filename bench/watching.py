"""Bar 4: how long it takes until a search finds a commit, while a watch runs."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.ground import FULL_TEXT, Followed, Ground, environment
from bench.measures import Measure, Outcome, percentile, rounded
from bench.tables import completion
from lakewake import sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Seconds between two looks of the watch, between two of our searches, and until we give up.
INTERVAL = 0.1
POLL_SECONDS = 0.02
PATIENCE = 600.0


def small(ground: Ground) -> Followed:
    """The table of bars 4, 5 and 8, with its index built and synced."""
    followed: Followed = ground.once("the table of bars 4, 5 and 8", lambda: _small(ground))
    followed.sync()
    return followed


def _small(ground: Ground) -> Followed:
    return ground.followed("wines", ground.wines(ground.sizes.small_rows), FULL_TEXT)


def corrected(ground: Ground, text: str) -> DataFrame:
    """One row with a new description."""
    from pyspark.sql import functions as f

    row = ground.wines(ground.sizes.small_rows).where("wine_id = 'wine_0'")
    return row.withColumns({"description": f.lit(text), "ts": f.lit(time.time_ns())})


def bar_4(ground: Ground) -> Outcome:
    """One changed row: from its commit's completion until a search finds it."""
    followed = small(ground)
    found, bare = [], []
    with _watch(ground, followed):
        for turn in range(ground.sizes.warm_ups + ground.sizes.watch_rounds):
            before = completion(followed.table.completed()[-1])
            text = f"Note number {time.time_ns()}: seaweed, candied ginger and cold espresso."
            found.append(_until_found(ground, followed, text))
            bare.append(followed.table.incremental(before))
            ground.say(f"turn {turn}: found after {found[-1]:.2f} s, bare query {bare[-1]:.2f} s")
    found, bare = found[ground.sizes.warm_ups :], bare[ground.sizes.warm_ups :]
    floor = statistics.median(bare)
    return Outcome(
        (
            Measure("median, of a bare query", statistics.median(found) / floor, "≤", 2),
            Measure("p95, of a bare query", percentile(found, 95) / floor, "≤", 4),
        ),
        {
            "rows_in_table": ground.sizes.small_rows,
            "watch_interval": INTERVAL,
            "found_after": rounded(found),
            "bare_incremental_query": rounded(bare),
        },
    )


@contextmanager
def _watch(ground: Ground, followed: Followed) -> Iterator[None]:
    command = ground.lakewake(
        "sync", followed.name, "--config", str(followed.config), "--watch",
        "--interval", str(INTERVAL),
    )  # fmt: skip
    log = ground.scratch / "watch.log"
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=environment()) as process,
    ):
        try:
            # The watch starts its JVM for the first commit.
            _until_found(ground, followed, f"First note: {time.time_ns()}")
            yield
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the watch logged: {log.read_text()[-500:]}") from error
        finally:
            process.send_signal(signal.SIGINT)


def _until_found(ground: Ground, followed: Followed, text: str) -> float:
    """Commit one row and search until it is found; returns seconds since the commit completed."""
    # Embedded once: embedding again and again would take cores from the watch.
    query = ground.embedder.embed([f"{_title()}. {text}"])[0].tolist()
    with ThreadPoolExecutor(1) as pool:
        known = len(followed.table.completed())
        writing = pool.submit(followed.table.upsert, corrected(ground, text))
        deadline = time.monotonic() + PATIENCE
        while len(followed.table.completed()) == known:
            _pause(deadline)
        completed_at = followed.table.completed()[-1].stat().st_mtime
        while not _finds(followed, query, text):
            _pause(deadline)
        found_at = time.time()
        writing.result()
    return found_at - completed_at


def _title() -> str:
    """The title of the corrected row: with it, the query equals the indexed text."""
    title: str = sample.wines(1)["title"][0].as_py()
    return title


def _finds(followed: Followed, query: list[float], text: str) -> bool:
    hits = followed.index.search(vector=query, k=1).hits
    return bool(hits) and (hits[0].text or "").endswith(text)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"not found in {PATIENCE:.0f} s")
    time.sleep(POLL_SECONDS)
