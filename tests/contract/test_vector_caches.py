"""What every vector cache promises, and how the file behaves when it is damaged or shared."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lakewake.embed import cache as vector_cache
from lakewake.embed.cache import (
    DAY,
    EVICTED,
    EVICTIONS,
    MemoryVectorCache,
    SqliteVectorCache,
    VectorCache,
)
from lakewake.model.recipe import ModelIdentity
from support.racing import start_together

MODEL = ModelIdentity("hashing", "test", 4)
ONE, TWO = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7, 8], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index" / "embeddings.sqlite"


STORES: dict[str, Callable[[Path], VectorCache]] = {
    "memory": lambda _: MemoryVectorCache(),
    "sqlite": lambda path: SqliteVectorCache(path, MODEL),
    "private": lambda _: SqliteVectorCache(None, MODEL),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[VectorCache]:
    made = STORES[request.param](path)
    yield made
    made.close()


def held(store: VectorCache, *hashes: str) -> dict[str, list[float]]:
    return {h: v.tolist() for h, v in store.get(hashes).items()}


def test_a_cache_returns_exactly_what_was_put(store: VectorCache) -> None:
    store.put({"a": ONE, "b": TWO})
    assert held(store, "a", "b", "c") == {"a": ONE.tolist(), "b": TWO.tolist()}
    assert store.get(["a"])["a"].dtype == np.float32


def test_a_new_cache_is_empty(store: VectorCache) -> None:
    assert held(store, "a") == {}
    assert held(store) == {}


def test_the_last_put_of_a_text_wins(store: VectorCache) -> None:
    store.put({"a": ONE})
    store.put({"a": TWO})
    assert held(store, "a") == {"a": TWO.tolist()}


def test_thousands_of_vectors_are_read_at_once(store: VectorCache) -> None:
    many = {f"h{n}": np.full(4, n, np.float32) for n in range(5_000)}
    store.put(many)
    assert held(store, *many) == {h: v.tolist() for h, v in many.items()}


def test_a_cache_file_is_used_by_the_next_process(path: Path) -> None:
    first = SqliteVectorCache(path, MODEL)
    first.put({"a": ONE})
    first.close()
    assert held(SqliteVectorCache(path, MODEL), "a") == {"a": ONE.tolist()}


def test_a_model_does_not_see_the_vectors_of_another(path: Path) -> None:
    SqliteVectorCache(path, MODEL).put({"a": ONE})
    assert held(SqliteVectorCache(path, replace(MODEL, precision="int8")), "a") == {}


@pytest.mark.parametrize(
    "damage",
    [
        "vector = x'00000000000000000000000000000000'",
        "vector = x'0000'",
        "vector = 'text'",
        "crc = crc + 1",
    ],
)
def test_a_damaged_entry_counts_as_absent_and_can_be_put_again(path: Path, damage: str) -> None:
    store = SqliteVectorCache(path, MODEL)
    store.put({"a": ONE, "b": TWO})
    with sqlite3.connect(path) as file:
        file.execute(f"UPDATE embedding SET {damage} WHERE hash = 'a'")
    assert held(store, "a", "b") == {"b": TWO.tolist()}
    store.put({"a": ONE})
    assert held(store, "a") == {"a": ONE.tolist()}


def test_a_file_that_is_not_a_database_is_reported_once_and_left_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    before, said = path.read_bytes(), []
    store = SqliteVectorCache(path, MODEL, said.append)
    assert held(store, "a") == {}
    store.put({"a": ONE})
    assert held(store, "a") == {"a": ONE.tolist()}
    assert len(said) == 1
    assert str(path) in said[0]
    assert path.read_bytes() == before


def test_a_file_damaged_while_open_is_reported_once_and_then_ignored(path: Path) -> None:
    first = SqliteVectorCache(path, MODEL)
    first.put({f"h{n}": ONE for n in range(1_000)})
    first.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    said: list[str] = []
    store = SqliteVectorCache(path, MODEL, said.append)
    assert held(store, "h1", "h2") == {}
    store.put({"a": ONE})
    assert held(store, "a") == {"a": ONE.tolist()}
    assert len(said) == 1


def test_a_read_only_location_is_reported_once_and_then_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    store = SqliteVectorCache(tmp_path / "file" / "embeddings.sqlite", MODEL, said.append)
    store.put({"a": ONE})
    assert held(store, "a") == {"a": ONE.tolist()}
    assert len(said) == 1


def test_a_locked_file_is_still_read_and_is_written_again_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "BUSY_SECONDS", 0.01)
    said: list[str] = []
    store, three = SqliteVectorCache(path, MODEL, said.append), ONE + TWO
    store.put({"a": ONE})
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.put({"b": TWO})
    assert held(store, "a", "b") == {"a": ONE.tolist(), "b": TWO.tolist()}
    assert len(said) == 1
    other.execute("ROLLBACK")
    other.close()
    # Not at once: every batch would wait for a lock that is never released.
    store.put({"c": three})
    assert held(SqliteVectorCache(path, MODEL), "c") == {}
    monkeypatch.setattr(store, "_write_again", 0.0)
    store.put({"c": three})
    assert held(SqliteVectorCache(path, MODEL), "a", "c") == {
        "a": ONE.tolist(),
        "c": three.tolist(),
    }
    assert held(store, "b") == {"b": TWO.tolist()}


def test_a_cache_without_disk_space_is_empty_and_raises_nothing(path: Path) -> None:
    script = (
        "import pathlib, resource, signal, sys, numpy as np\n"
        "from lakewake.model.recipe import ModelIdentity\n"
        "from lakewake.embed.cache import SqliteVectorCache\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "model = ModelIdentity('hashing', 'test', 400)\n"
        "store = SqliteVectorCache(pathlib.Path(sys.argv[1]), model, print)\n"
        # More than SQLite keeps in memory before it writes its temporary file.
        "for n in range(20):\n"
        "    store.put({f'{n}-{i}': np.ones(400, np.float32) for i in range(500)})\n"
        "print(sorted(store.get(['19-1', '19-2'])))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    said, found = ran.stdout.splitlines()
    assert str(path) in said
    assert found == "[]"


def test_a_removed_cache_folder_is_created_again(path: Path) -> None:
    said: list[str] = []
    store = SqliteVectorCache(path, MODEL, said.append)
    store.put({"a": ONE})
    shutil.rmtree(path.parent)
    assert held(store, "a") == {}
    store.put({"b": TWO})
    assert held(SqliteVectorCache(path, MODEL), "a", "b") == {"b": TWO.tolist()}
    assert said == []


def test_concurrent_threads_lose_no_vector(path: Path) -> None:
    said: list[str] = []

    def write(writer: int) -> None:
        store = SqliteVectorCache(path, MODEL, said.append)
        for n in range(20):
            store.put({f"{writer}-{n}": ONE, f"shared-{n}": TWO})
        store.close()

    threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == []
    hashes = [f"{w}-{n}" for w in (*range(4), "shared") for n in range(20)]
    assert set(SqliteVectorCache(path, MODEL).get(hashes)) == set(hashes)


def test_vectors_put_by_a_killed_process_are_kept(path: Path) -> None:
    script = (
        "import os, sys, pathlib, numpy as np\n"
        "from lakewake.model.recipe import ModelIdentity\n"
        "from lakewake.embed.cache import SqliteVectorCache\n"
        "model = ModelIdentity('hashing', 'test', 4)\n"
        "store = SqliteVectorCache(pathlib.Path(sys.argv[1]), model)\n"
        "store.put({'a': np.array([1, 2, 3, 4], np.float32)})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == -9
    assert held(SqliteVectorCache(path, MODEL), "a") == {"a": ONE.tolist()}


WRITING = """
import pathlib, sys, numpy as np
from lakewake.model.recipe import ModelIdentity
from lakewake.embed.cache import SqliteVectorCache
print("ready", flush=True)
sys.stdin.readline()
store = SqliteVectorCache(pathlib.Path(sys.argv[1]), ModelIdentity("hashing", "test", 4), print)
for n in range(100):
    store.put({f"{sys.argv[2]}-{n}-{i}": np.full(4, n, np.float32) for i in range(10)})
"""


def test_two_concurrent_processes_lose_no_vector(path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITING, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    start_together(writers)
    assert [w.communicate()[0] for w in writers] == ["", ""]
    put = {f"{w}-{n}-{i}": [n] * 4 for w in ("one", "two") for n in range(100) for i in range(10)}
    assert held(SqliteVectorCache(path, MODEL), *put) == put


BOUND = 500_000
WIDE = replace(MODEL, dimension=256)


def vectors(*hashes: str) -> dict[str, np.ndarray]:
    return {h: np.full(256, len(h), np.float32) for h in hashes}


def numbered(first: int, end: int) -> list[str]:
    return [f"h{n}" for n in range(first, end)]


def aged(path: Path) -> None:
    """Date every use in the file to an earlier day."""
    with sqlite3.connect(path) as file:
        file.execute("UPDATE embedding SET used = 0")
    file.close()


def test_the_file_stops_growing_at_its_bound(path: Path) -> None:
    store = SqliteVectorCache(path, WIDE, max_bytes=BOUND)
    for n in range(40):
        store.put(vectors(*numbered(n * 50, n * 50 + 50)))
    assert len(store.get(numbered(0, 2_000))) * 4 * WIDE.dimension > BOUND // 3
    store.close()
    assert path.stat().st_size < BOUND + 50 * 2_000


def test_the_oldest_vectors_are_removed_first(path: Path) -> None:
    store = SqliteVectorCache(path, WIDE, max_bytes=BOUND)
    store.put(vectors(*numbered(0, 250)))
    assert len(store.get(numbered(0, 250))) == 250
    store.put(vectors(*numbered(250, 400)))
    left = sorted(int(h[1:]) for h in store.get(numbered(0, 400)))
    assert left == list(range(left[0], 400))
    assert 0 < left[0] <= 250


def test_vectors_that_are_used_again_stay(path: Path) -> None:
    store = SqliteVectorCache(path, WIDE, max_bytes=BOUND)
    store.put(vectors(*numbered(0, 300)))
    aged(path)
    assert len(store.get(["h0", "h1"])) == 2
    store.put(vectors(*numbered(300, 400)))
    assert set(store.get(numbered(0, 4))) == {"h0", "h1"}
    assert len(store.get(numbered(300, 400))) == 100


def test_a_lowered_bound_is_reached_step_by_step(path: Path) -> None:
    large = SqliteVectorCache(path, WIDE)
    large.put(vectors(*numbered(0, 12_000)))
    large.close()
    small = SqliteVectorCache(path, WIDE, max_bytes=BOUND)
    small.put(vectors("one"))
    left = len(small.get(numbered(0, 12_000)))
    assert left == 12_000 - EVICTIONS * EVICTED
    small.put(vectors("two"))
    assert len(small.get(numbered(0, 12_000))) < left


def test_a_use_is_recorded_at_most_once_a_day(path: Path) -> None:
    store = SqliteVectorCache(path, MODEL)
    store.put({"a": ONE, "b": TWO})
    aged(path)
    store.get(["a"])
    store.get(["a"])
    with sqlite3.connect(path) as file:
        used = dict(file.execute("SELECT hash, used FROM embedding").fetchall())
        newest = file.execute("SELECT max(id) FROM embedding").fetchone()
    file.close()
    assert used["a"] > DAY
    assert used["b"] == 0
    assert newest == (3,)
