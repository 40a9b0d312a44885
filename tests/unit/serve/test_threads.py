"""One index searched by many threads while commits land: nothing fails, nothing is mixed."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lakewake.store.lance.store import LanceStore
from support.sampling import rid, values
from support.serving import DiskLake, asking, served_index

ROWS, COMMITS, THREADS = 10, 8, 4


def write(lake: DiskLake, n: int) -> None:
    """Commit the same number to every row: a mixed answer would show two numbers."""
    lake.write({rid(f"k{i}"): values(f"row {i} of commit {n}", n) for i in range(ROWS)})


def test_searches_see_one_commit_each_while_others_land(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    write(lake, 0)
    # A separate store object, as another process would have.
    index = served_index(lake.table, LanceStore(str(tmp_path / "index"), "sample"))
    done = threading.Event()

    def hammer() -> list[tuple[str, int]]:
        seen = []
        while not done.is_set():
            result = index.search("row of commit", k=ROWS)
            numbers = {hit.payload["num"] for hit in result.hits}
            assert len(result.hits) == ROWS
            assert len(numbers) == 1
            seen.append((result.instant, numbers.pop()))
        return seen

    with ThreadPoolExecutor(THREADS) as pool:
        hammering = [pool.submit(hammer) for _ in range(THREADS)]
        try:
            for n in range(1, COMMITS):
                write(lake, n)
        finally:
            done.set()
        seen = [h.result() for h in hammering]
    by_instant: dict[str, set[int]] = {}
    for observed in seen:
        # No thread goes back in time.
        assert observed == sorted(observed)
        for instant, number in observed:
            by_instant.setdefault(instant, set()).add(number)
    assert all(len(numbers) == 1 for numbers in by_instant.values())
    assert len(by_instant) > 1


def test_a_version_is_opened_once_however_many_threads_ask(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    write(lake, 0)
    store = LanceStore(str(tmp_path / "index"), "sample")
    for n in range(1, 4):
        gate = threading.Barrier(THREADS)

        def at_once(gate: threading.Barrier = gate) -> Any:
            gate.wait()
            return store.open()

        with ThreadPoolExecutor(THREADS) as pool:
            readers = [f.result() for f in [pool.submit(at_once) for _ in range(THREADS)]]
        assert len({id(reader) for reader in readers}) == 1
        write(lake, n)


def test_a_rebuild_under_searches_fails_none_of_them(tmp_path: Path) -> None:
    from lakewake.sync import SyncOptions, sync

    lake = DiskLake(tmp_path)
    write(lake, 0)
    index = served_index(lake.table, LanceStore(str(tmp_path / "index"), "sample"))
    done = threading.Event()
    with asking(index, concurrent=4) as client, ThreadPoolExecutor(4) as pool:

        def hammer() -> set[int]:
            codes = set()
            while not done.is_set():
                answer = client.post("/indexes/sample/search", json={"text": "row", "k": ROWS})
                codes.add(answer.status_code)
                if answer.status_code == 200:
                    assert len(json.loads(answer.text)["hits"]) == ROWS
            return codes

        hammering = [pool.submit(hammer) for _ in range(4)]
        try:
            for _ in range(5):
                sync(lake.parts, SyncOptions(rebuild=True))
        finally:
            done.set()
        assert {code for h in hammering for code in h.result()} == {200}
