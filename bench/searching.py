"""Bars 9 and 10: searching a large index, before and after many small commits."""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import lakewake
from bench.ground import Followed, Ground
from bench.measures import Measure, Outcome, percentile, rounded
from bench.tables import QUICK_COMMITS
from lakewake import sample
from lakewake.sync.watch import watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakewake.api import Index
    from lakewake.model.query import SearchResult

#: Titles are embedded by the real model, so that the vectors are distributed like real ones.
RECIPE = 'text = "{title}"\npayload = ["country", "points"]'
K = 10
#: Cosines of equal vectors may differ by this much, depending on the order of summation.
EQUAL = 1e-5
#: Partitions are small, so that a one-row commit is quick.
PARTITIONS = 128


@dataclass(frozen=True)
class Searched:
    """A large index, its vectors in memory, and questions that are not among its texts."""

    followed: Followed
    vectors: np.ndarray
    queries: np.ndarray
    built: dict[str, Any]


def searched(ground: Ground) -> Searched:
    """The index of bars 9, 10 and 11."""
    made: Searched = ground.once("the index of bars 9, 10 and 11", lambda: _searched(ground))
    return made


def _searched(ground: Ground) -> Searched:
    rows = ground.wines(ground.sizes.search_rows)
    followed = ground.followed(
        "titles",
        in_buckets(rows),
        RECIPE,
        partition="bucket",
        options=QUICK_COMMITS,
    )
    seconds, report = followed.sync()
    ground.say(f"built {ground.sizes.search_rows:,} titles in {seconds:.0f} s: {report['seconds']}")
    return Searched(followed, _vectors(followed), _queries(ground), report)


def in_buckets(rows: DataFrame) -> DataFrame:
    """Rows with the column that their table is partitioned by."""
    from pyspark.sql import functions as f

    bucket = f.concat(f.lit("b"), f.pmod(f.hash("wine_id"), f.lit(PARTITIONS)))
    return rows.withColumn("bucket", bucket)


def _vectors(followed: Followed) -> np.ndarray:
    """All vectors of the index, read as any other tool would."""
    column = dataset_of(followed).to_table(columns=["_vector"], filter="_checkpoint IS NULL")[
        "_vector"
    ]
    # A copy: Arrow's own memory cannot be written to.
    flat = column.combine_chunks().flatten().to_numpy().copy()
    vectors: np.ndarray = flat.reshape(len(column), -1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def dataset_of(followed: Followed) -> Any:
    """The index as any other tool opens it."""
    import lance

    return lance.dataset(str(_dataset(followed)))


def _dataset(followed: Followed) -> Path:
    return followed.folder / "index" / f"{followed.name}.g1.lance"


def _queries(ground: Ground) -> np.ndarray:
    """Vectors of titles from another seed."""
    n = ground.sizes.queries
    titles = sample.wines(n + 1, seed=11)["title"].to_pylist()[1:]
    return ground.embedder.embed(titles)


def bar_9(ground: Ground) -> Outcome:
    """Recall and time of in-process searches, compared with numpy and a bare LanceDB query."""
    found = searched(ground)
    _times(found)
    times, recall = _times(found), recall_of(found)
    median = statistics.median(times) * 1000
    p99 = percentile(times, 99) * 1000
    return Outcome(
        (
            Measure("recall@10", recall, "≥", found.followed.index.settings.recall),
            Measure("median", median, "≤", 10, " ms"),
            Measure("p99, of the median", p99 / median, "≤", 3),
        ),
        {
            "rows": len(found.vectors),
            "dimension": int(found.vectors.shape[1]),
            "queries": len(found.queries),
            "p99_milliseconds": p99,
            "numpy_exact_milliseconds": statistics.median(_numpy_times(found)) * 1000,
            "searching": found.followed.index.status().as_dict()["searching"],
            "bare_lancedb_milliseconds": statistics.median(lancedb_times(found)) * 1000,
            "build": found.built,
        },
    )


def _search(found: Searched, query: np.ndarray) -> SearchResult:
    return found.followed.index.search(vector=query.tolist(), k=K)


def _times(found: Searched) -> list[float]:
    return [timed(_search, found, query) for query in found.queries]


def timed(do: Any, *args: Any) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    do(*args)
    return time.perf_counter() - began


def recall_of(found: Searched) -> float:
    """The share of hits that are at least as near as the k-th nearest of all."""
    shares: list[float] = []
    for query in found.queries:
        near = found.vectors @ query
        threshold = float(np.partition(near, -K)[-K]) - EQUAL
        hits = _search(found, query).hits
        shares.append(sum((hit.similarity or 0) >= threshold for hit in hits) / K)
    return statistics.mean(shares)


def _numpy_times(found: Searched) -> list[float]:
    def exact(query: np.ndarray) -> np.ndarray:
        near = found.vectors @ query
        top = np.argpartition(-near, K)[:K]
        return top[np.argsort(-near[top])]

    return [timed(exact, query) for query in found.queries[:100]]


def lancedb_times(found: Searched) -> list[float]:
    import lancedb

    path = _dataset(found.followed)
    table = lancedb.connect(str(path.parent)).open_table(path.stem)

    def bare(query: np.ndarray) -> None:
        table.search(query, vector_column_name="_vector").limit(K).to_arrow()

    return [timed(bare, query) for query in found.queries[:100]]


def bar_10(ground: Ground) -> Outcome:
    """The same searches after many one-row commits, each followed by the watch.

    A copy of the index stays as it was before. Both are searched in turns: if the machine is slower
    half an hour later, it is slower for both.
    """
    found, commits = searched(ground), ground.sizes.one_row_commits
    before = _copy(ground, found)
    curve = [_point(found, 0, _medians(found, before)[0])]
    follows: list[dict[str, Any]] = []
    done = 0

    def next_commit(_interval: float) -> bool:
        nonlocal done
        if done and done % max(1, commits // 10) == 0:
            curve.append(_point(found, done, statistics.median(_times(found)) * 1000))
            ground.say(f"after {done} commits: {curve[-1]}, sync {follows[-1]['seconds']}")
        if done == commits:
            return True
        done += 1
        _commit_one_row(ground, found.followed, done)
        return False

    watch(
        {found.followed.name: found.followed.index.sync},
        interval=0,
        wait=next_commit,
        say=_fail,
        show=lambda reports: follows.extend(r.as_dict() for r in reports),
    )
    if len(follows) != commits:
        raise AssertionError(f"{len(follows)} syncs followed {commits} commits, expected one each")
    after, as_before = _medians(found, before)
    half = next(p for p in curve if p["commits"] * 2 >= commits)
    totals = [f["seconds"]["total"] for f in follows]
    return Outcome(
        (
            Measure("of the median before", after / as_before, "≤", 1.5),
            Measure("files, of those at half", curve[-1]["files"] / half["files"], "≤", 1.5),
            Measure("recall@10", _recall_now(found), "≥", found.followed.index.settings.recall),
        ),
        {
            "commits": commits,
            "median_milliseconds": after,
            "median_before_milliseconds": as_before,
            "curve": curve,
            "searching": found.followed.index.status().as_dict()["searching"],
            "sync_median": statistics.median(totals),
            "sync_p99": percentile(totals, 99),
            "syncs": rounded(totals[:: max(1, commits // 200)]),
        },
    )


def _copy(ground: Ground, found: Searched) -> Index:
    """A copy of the index as it is now, which is never synced."""
    folder = ground.scratch / "before"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(found.followed.folder / "index", folder / "index")
    shutil.copy(found.followed.config, folder)
    return lakewake.open(folder / found.followed.config.name)[found.followed.name]


def _medians(found: Searched, before: Index) -> tuple[float, float]:
    """Median milliseconds of searches of the index and of its former state, in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for warm in (True, False):
        for query in found.queries:
            for index, taken in zip((found.followed.index, before), times, strict=True):
                seconds = timed(lambda i=index, q=query: i.search(vector=q.tolist(), k=K))
                taken += [] if warm else [seconds]
    return statistics.median(times[0]) * 1000, statistics.median(times[1]) * 1000


def _recall_now(found: Searched) -> float:
    return recall_of(Searched(found.followed, _vectors(found.followed), found.queries, found.built))


def _point(found: Searched, commits: int, median: float) -> dict[str, float]:
    folder = found.followed.folder / "index"
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {
        "commits": commits,
        "median_ms": round(median, 3),
        "files": len(files),
        "megabytes": round(sum(p.stat().st_size for p in files) / 1e6, 1),
    }


def _commit_one_row(ground: Ground, followed: Followed, n: int) -> None:
    """Commit one row with a new title, a different row each time."""
    from pyspark.sql import functions as f

    row = f"wine_{n * 97 % ground.sizes.search_rows}"
    changed = followed.table.spark.createDataFrame(
        [(row, "Italy", f"Taster's correction number {n}", 90, 10**9 + n)],
        "wine_id string, country string, title string, points long, ts long",
    )
    absent = [c for c in sample.SCHEMA.names if c not in changed.columns]
    kinds = {"price": "double"}
    changed = changed.withColumns({c: f.lit(None).cast(kinds.get(c, "string")) for c in absent})
    ordered = in_buckets(changed.select(*sample.SCHEMA.names))
    followed.table.upsert(ordered.coalesce(1))


def _fail(line: str) -> None:
    raise AssertionError(line)
