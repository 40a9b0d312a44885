"""The metrics that Prometheus reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from lakewake.model.canaries import CanarySettings
from lakewake.model.recall import CellSizes, Searching
from lakewake.serve.metrics import Totals
from lakewake.store.memory import MemoryReader
from support.sampling import rid, values
from support.serving import asking, wine_index

SEARCH = "/indexes/sample/search"


def read(client: TestClient) -> dict[tuple[str, ...], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (s.name, *s.labels.values()): s.value
        for family in text_string_to_metric_families(answer.text)
        for s in family.samples
    }


def record(time: str, **given: Any) -> dict[str, Any]:
    counts = dict.fromkeys(["embedded", "reused", "rows_deleted", "rows_changed"], 0)
    return {"time": time, "action": "follow", "to_instant": "1", "error": None, **counts, **given}


def test_lag_and_size_of_each_index_are_reported() -> None:
    index, table = wine_index(freshness=30.0)
    with asking(index) as client:
        before = read(client)
        table.upsert({rid("new"): values("new")})
        after = read(client)
    assert before["lakewake_lag_commits", "sample"] == before["lakewake_lag_seconds", "sample"] == 0
    assert before["lakewake_rows", "sample"] == before["lakewake_chunks", "sample"] == 3
    assert before["lakewake_fresh", "sample"] == 1
    assert after["lakewake_lag_commits", "sample"] == 1
    assert after["lakewake_lag_seconds", "sample"] > 0
    assert after["lakewake_fresh", "sample"] == 0


def test_the_recall_of_an_index_and_its_cells_in_the_lake_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, _ = wine_index()
    how = Searching(recall=0.95, recall_mean=0.97, cells=CellSizes.of([30, 50, 70]))
    with asking(index) as client:
        plain = read(client)
        monkeypatch.setattr(MemoryReader, "searching", lambda _: how)
        samples = read(client)
    assert plain["lakewake_recall", "sample"] == 1
    assert ("lakewake_cells", "sample") not in plain
    assert samples["lakewake_recall", "sample"] == 0.97
    assert samples["lakewake_recall_promised", "sample"] == 0.95
    assert ("lakewake_recall_worst_tenth", "sample") not in samples
    assert samples["lakewake_cells", "sample"] == 3
    assert samples["lakewake_largest_cell_chunks", "sample"] == 70
    assert samples["lakewake_cell_skew", "sample"] == 1.4


def test_a_drop_of_the_canaries_is_reported(tmp_path: Path) -> None:
    index, table = wine_index()
    with asking(index) as client:
        assert ("lakewake_canary_dropped", "sample") not in read(client)
        file = tmp_path / "canaries.jsonl"
        file.write_text('{"query": "zeppelin", "relevant": ["new"]}\n')
        index.settings = replace(index.settings, canaries=CanarySettings(str(file), "keyword"))
        table.upsert({rid("new"): values("zeppelin")})
        index.sync()
        before = read(client)
        table.upsert({rid("new"): values("another")})
        index.sync()
        after = read(client)
    for name, values_ in (("ndcg", (1, 0)), ("recall", (1, 0)), ("dropped", (0, 1))):
        key = f"lakewake_canary_{name}", "sample"
        assert (before[key], after[key]) == values_


def test_searches_are_timed_and_errors_counted_by_kind() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        for _ in range(3):
            client.post(SEARCH, json={"text": "smoky"})
        client.post(SEARCH, json={"text": "x", "where": "num <"})
        client.post(SEARCH, json={"k": 0})
        client.get("/health", headers={"Host": "evil.example"})
        samples = read(client)
    assert samples["lakewake_search_seconds_count", "sample", "vector"] == 3
    assert samples["lakewake_search_seconds_sum", "sample", "vector"] > 0
    assert samples["lakewake_errors_total", "FilterError"] == 1
    assert samples["lakewake_errors_total", "shape"] == 1
    assert samples["lakewake_errors_total", "host"] == 1


def test_an_unreadable_index_does_not_hide_the_others() -> None:
    from dataclasses import replace

    from support.sampling import sample_recipe

    fine, _ = wine_index()
    odd, _ = wine_index(name="odd")
    other = replace(sample_recipe(), metric="dot")
    odd.__dict__["parts"] = replace(odd.parts, recipe=other)
    with asking(fine, odd) as client:
        samples = read(client)
    assert (samples["lakewake_up", "sample"], samples["lakewake_up", "odd"]) == (1, 0)
    assert samples["lakewake_rows", "sample"] == 3
    assert ("lakewake_rows", "odd") not in samples


def test_two_applications_have_separate_metrics() -> None:
    index, _ = wine_index()
    with asking(index) as first, asking(index) as second:
        first.post(SEARCH, json={"text": "smoky"})
        assert ("lakewake_search_seconds_count", "sample", "vector") not in read(second)


def test_totals_count_each_sync_once_and_never_fall() -> None:
    history = [record("1", embedded=5, reused=2), record("2", rows_deleted=3)]
    totals = Totals()

    def newest(limit: int) -> list[Any]:
        return sorted(history, key=lambda r: r["time"], reverse=True)[:limit]

    totals.read(newest)
    totals.read(newest)
    assert totals.sums == {"embedded": 5, "reused": 2, "deleted": 3, "changed": 0}
    history[:] = history[1:]  # the oldest is forgotten
    history.append(record("2", to_instant="2", embedded=1))  # another record of the same moment
    history.append(record("3", error="gone"))
    totals.read(newest)
    assert totals.sums["embedded"] == 6
    assert (totals.syncs, totals.failed) == (4, 1)


def test_totals_catch_up_after_many_syncs() -> None:
    history = [record("000", embedded=1)]
    totals = Totals()

    def newest(limit: int) -> list[Any]:
        return sorted(history, key=lambda r: r["time"], reverse=True)[:limit]

    totals.read(newest)
    history += [record(f"{n:03}", embedded=1) for n in range(1, 300)]
    totals.read(newest)
    assert totals.sums["embedded"] == 300
