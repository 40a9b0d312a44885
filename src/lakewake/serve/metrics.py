"""Metrics for Prometheus: the lag of the indexes, the work of syncs, the times of searches."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from lakewake.errors import LakewakeError
from lakewake.serve.asking import freshness
from lakewake.serve.shared import Shared

if TYPE_CHECKING:
    from lakewake.api import Index

CONTENT_TYPE = CONTENT_TYPE_LATEST
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: What is counted: the seconds and buckets of a search, and refusals.
SEARCHED, REFUSED = "searched", "refused"
#: How many syncs are read each time, and how many if there were more since the last time.
FEW, ALL = 20, 1000
#: Name, help, and how to read the value from a status; an index without the value has no sample.
GAUGES: tuple[tuple[str, str, Callable[[Mapping[str, Any]], float | None]], ...] = (
    ("lag_seconds", "Age of the oldest commit that is not absorbed.", lambda s: s["lag_seconds"]),
    ("lag_commits", "Commits that are not absorbed.", lambda s: s["lag_commits"]),
    ("rows", "Rows in the index.", lambda s: s["rows"]),
    ("chunks", "Chunks in the index.", lambda s: s["chunks"]),
    ("quarantined_rows", "Rows whose text could not be embedded.", lambda s: s["quarantined"]),
    ("recall_promised", "Recall that the index promises.", lambda s: _how(s).get("recall")),
    ("recall", "Recall that the last probe measured.", lambda s: _how(s).get("recall_mean")),
    (
        "recall_worst_tenth",
        "Recall of the worst tenth of the probe's questions.",
        lambda s: _how(s).get("recall_worst_tenth"),
    ),
    ("cells", "Cells of an index in the lake.", lambda s: _cells(s).get("cells")),
    ("canary_ndcg", "nDCG@10 of the canaries.", lambda s: _canary(s, "ndcg@10")),
    ("canary_recall", "recall@100 of the canaries.", lambda s: _canary(s, "recall@100")),
    (
        "canary_dropped",
        "1 while the canaries are answered worse than after an earlier sync.",
        lambda s: float(s["canaries"]["dropped"]) if s.get("canaries") else None,
    ),
    ("largest_cell_chunks", "Chunks in the largest cell.", lambda s: _cells(s).get("largest")),
    ("cell_skew", "Chunks in the largest cell, by the mean.", lambda s: _cells(s).get("skew")),
)
#: Name, help, and the counts of a sync that are added up.
WORK: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("embedded", "Texts embedded by syncs.", ("embedded",)),
    ("reused", "Chunks written with a known vector by syncs.", ("reused",)),
    ("deleted", "Rows deleted by syncs.", ("rows_deleted",)),
    ("changed", "Rows changed by syncs.", ("rows_changed",)),
)


def _how(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the index is searched; empty if there is no index."""
    return status["searching"] or {}


def _canary(status: Mapping[str, Any], metric: str) -> float | None:
    """A metric of the canaries; None if there are none, or they were not answered."""
    return ((status.get("canaries") or {}).get("values") or {}).get(metric)


def _cells(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return _how(status).get("cells") or {}


class Totals:
    """The work of all syncs of an index. Never decreases, even when history drops records."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys([name for name, _, _ in WORK], 0)
        self.syncs, self.failed = 0, 0
        self._counted: frozenset[tuple[str, str, str]] = frozenset()
        self._newest = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Totals:
        """The totals that `as_dict` described; None: there are none yet."""
        totals = cls()
        if kept is not None:
            totals.sums |= kept["sums"]
            totals.syncs, totals.failed = kept["syncs"], kept["failed"]
            totals._newest = kept["newest"]
            totals._counted = frozenset((a, b, c) for a, b, c in kept["counted"])
        return totals

    def as_dict(self) -> dict[str, Any]:
        """All of it, for another process."""
        return {
            "sums": self.sums,
            "syncs": self.syncs,
            "failed": self.failed,
            "newest": self._newest,
            "counted": sorted(self._counted),
        }

    def read(self, history: Callable[[int], list[Mapping[str, Any]]]) -> None:
        """Add the syncs since the last call."""
        records = history(FEW) if self._newest else []
        if all(r["time"] > self._newest for r in records):
            records = history(ALL)
        self._add(records)

    def _add(self, records: list[Mapping[str, Any]]) -> None:
        fresh = [r for r in records if r["time"] >= self._newest and _mark(r) not in self._counted]
        for record in fresh:
            self.syncs += 1
            self.failed += record["error"] is not None
            for name, _, counts in WORK:
                self.sums[name] += sum(record[c] for c in counts)
        if fresh:
            self._newest = max(r["time"] for r in fresh)
            same = (r for r in records if r["time"] == self._newest)
            self._counted = frozenset(map(_mark, same))


def _mark(record: Mapping[str, Any]) -> tuple[str, str, str]:
    return record["time"], record["action"], record["to_instant"]


class IndexCollector:
    """A collector that reads the indexes when it is asked."""

    def __init__(self, indexes: Mapping[str, Index], shared: Shared) -> None:
        self._indexes, self._shared = indexes, shared

    def describe(self) -> list[Metric]:
        """Nothing: describing the metrics would read the indexes."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Samples of each index. One that cannot be read has only `up` and `fresh`."""
        statuses = {name: _status(index) for name, index in self._indexes.items()}
        up = GaugeMetricFamily(
            "lakewake_up", "1 while the index and its table can be read.", labels=["index"]
        )
        for name, status in statuses.items():
            up.add_metric([name], float(status is not None))
        yield up
        for metric, text, read in GAUGES:
            family = GaugeMetricFamily(f"lakewake_{metric}", text, labels=["index"])
            for name, status in statuses.items():
                value = None if status is None else read(status)
                if value is not None:
                    family.add_metric([name], float(value))
            yield family
        yield self._fresh(statuses)
        yield from self._work()

    def _fresh(self, statuses: Mapping[str, Mapping[str, Any] | None]) -> Metric:
        """Also for an index that cannot be read: an alert must not miss it for lack of a sample."""
        text = "1 while searchable and within its freshness limit."
        family = GaugeMetricFamily("lakewake_fresh", text, labels=["index"])
        for name, status in statuses.items():
            fresh = status["fresh"] if status else freshness(self._indexes[name])["fresh"]
            family.add_metric([name], float(fresh))
        return family

    def _work(self) -> Iterator[Metric]:
        sums = {}
        with self._shared.totals() as kept:
            for name, index in self._indexes.items():
                totals = Totals.of(kept.get(name))
                totals.read(partial(_records, index))
                kept[name] = totals.as_dict()
                more = {"syncs": totals.syncs, "failed_syncs": totals.failed}
                sums[name] = totals.sums | more
        counters = [(name, text) for name, text, _ in WORK]
        counters += [("syncs", "Syncs that did something."), ("failed_syncs", "Syncs that failed.")]
        for metric, text in counters:
            family = CounterMetricFamily(f"lakewake_{metric}", text, labels=["index"])
            for name in self._indexes:
                family.add_metric([name], float(sums[name][metric]))
            yield family


def _status(index: Index) -> Mapping[str, Any] | None:
    try:
        return index.status().as_dict()
    except LakewakeError:
        return None


def _records(index: Index, limit: int) -> list[Mapping[str, Any]]:
    try:
        return [r.as_dict() for r in index.history(limit)]
    except LakewakeError:
        return []


class ServerCollector:
    """A collector of what all processes of the server counted together."""

    def __init__(self, shared: Shared, restarts: Callable[[], int]) -> None:
        self._shared, self._restarts = shared, restarts

    def describe(self) -> list[Metric]:
        """Nothing, as of the indexes."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Times of searches, errors, threads and processes."""
        sums = {tuple(json.loads(name)): values for name, values in self._shared.sums().items()}
        yield _seconds({key[1:]: v for key, v in sums.items() if key[0] == SEARCHED})
        errors = CounterMetricFamily(
            "lakewake_errors", "Requests refused or failed.", labels=["kind"]
        )
        for key, values in sums.items():
            if key[0] == REFUSED:
                errors.add_metric([key[1]], values[0])
        yield errors
        state = self._shared.state
        for name, text, value in (
            ("running", "Threads that are working.", self._shared.running),
            ("watch_restarts", "Restarts of the syncing process.", self._restarts()),
            ("workers", "Processes that answer requests now.", state.get("workers", 1)),
            ("worker_restarts", "Restarts of these processes.", state.get("restarts", 0)),
        ):
            yield GaugeMetricFamily(f"lakewake_{name}", text, value=float(value))


def _seconds(found: Mapping[tuple[str, ...], list[float]]) -> Metric:
    family = HistogramMetricFamily(
        "lakewake_search_seconds",
        "Seconds that searches took, without the network.",
        labels=["index", "mode"],
    )
    limits = [*map(str, BUCKETS), "+Inf"]
    for labels, (seconds, *counts) in found.items():
        upto = accumulate(counts[: len(limits)])
        family.add_metric(labels, list(zip(limits, upto, strict=True)), seconds)
    return family


class Metrics:
    """The metrics of a server. Each of its processes reports those of all of them."""

    def __init__(
        self, indexes: Mapping[str, Index], shared: Shared, restarts: Callable[[], int]
    ) -> None:
        self._shared = shared
        self._registry = CollectorRegistry()
        self._registry.register(IndexCollector(indexes, shared))
        self._registry.register(ServerCollector(shared, restarts))

    def searched(self, index: str, mode: str, seconds: float) -> None:
        """Count a search that was answered."""
        counts = [0.0] * (len(BUCKETS) + 1)
        counts[bisect_left(BUCKETS, seconds)] = 1.0
        self._shared.add(json.dumps([SEARCHED, index, mode]), [seconds, *counts])

    def refused(self, kind: str) -> None:
        """Count a request that was refused or failed."""
        self._shared.add(json.dumps([REFUSED, kind]), [1.0])

    def text(self) -> bytes:
        """All metrics in the format of Prometheus."""
        return generate_latest(self._registry)
