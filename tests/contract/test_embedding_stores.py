"""What every embedding store promises, and what the file does when it is damaged or shared."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lakewake.model.recipe import ModelIdentity
from lakewake.store.embeddings import DAY, EmbeddingStore, MemoryEmbeddings, SqliteEmbeddings

MODEL = ModelIdentity("hashing", "test", 4)
ONE, TWO = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7, 8], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index" / "embeddings.sqlite"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[EmbeddingStore]:
    made = MemoryEmbeddings() if request.param == "memory" else SqliteEmbeddings(path, MODEL)
    yield made
    made.close()


def held(store: EmbeddingStore, *hashes: str) -> dict[str, list[float]]:
    return {h: v.tolist() for h, v in store.get(hashes).items()}


def test_it_gives_back_exactly_what_was_put(store: EmbeddingStore) -> None:
    store.put({"a": ONE, "b": TWO})
    assert held(store, "a", "b", "c") == {"a": ONE.tolist(), "b": TWO.tolist()}
    assert store.get(["a"])["a"].dtype == np.float32


def test_it_holds_nothing_at_first(store: EmbeddingStore) -> None:
    assert held(store, "a") == {}
    assert held(store) == {}


def test_the_last_put_counts(store: EmbeddingStore) -> None:
    store.put({"a": ONE})
    store.put({"a": TWO})
    assert held(store, "a") == {"a": TWO.tolist()}


def test_thousands_are_asked_for_at_once(store: EmbeddingStore) -> None:
    many = {f"h{n}": np.full(4, n, np.float32) for n in range(5_000)}
    store.put(many)
    assert held(store, *many) == {h: v.tolist() for h, v in many.items()}


def test_a_file_is_there_for_the_next_process(path: Path) -> None:
    first = SqliteEmbeddings(path, MODEL)
    first.put({"a": ONE})
    first.close()
    assert held(SqliteEmbeddings(path, MODEL), "a") == {"a": ONE.tolist()}


def test_a_model_does_not_see_the_vectors_of_another(path: Path) -> None:
    SqliteEmbeddings(path, MODEL).put({"a": ONE})
    assert held(SqliteEmbeddings(path, replace(MODEL, precision="int8")), "a") == {}


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
    store = SqliteEmbeddings(path, MODEL)
    store.put({"a": ONE, "b": TWO})
    with sqlite3.connect(path) as file:
        file.execute(f"UPDATE embedding SET {damage} WHERE hash = 'a'")
    assert held(store, "a", "b") == {"b": TWO.tolist()}
    store.put({"a": ONE})
    assert held(store, "a") == {"a": ONE.tolist()}


def test_a_file_that_is_no_database_is_reported_once_and_done_without(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    before, said = path.read_bytes(), []
    store = SqliteEmbeddings(path, MODEL, said.append)
    store.put({"a": ONE})
    assert held(store, "a") == {}
    assert len(said) == 1
    assert str(path) in said[0]
    assert path.read_bytes() == before


def test_a_file_damaged_while_open_is_reported_once_and_done_without(path: Path) -> None:
    first = SqliteEmbeddings(path, MODEL)
    first.put({f"h{n}": ONE for n in range(1_000)})
    first.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    said: list[str] = []
    store = SqliteEmbeddings(path, MODEL, said.append)
    assert held(store, "h1", "h2") == {}
    store.put({"a": ONE})
    assert len(said) == 1


def test_a_place_that_cannot_be_written_is_reported_once_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    store = SqliteEmbeddings(tmp_path / "file" / "embeddings.sqlite", MODEL, said.append)
    store.put({"a": ONE})
    assert held(store, "a") == {}
    assert len(said) == 1


def test_several_writers_at_once_lose_nothing(path: Path) -> None:
    said: list[str] = []

    def write(writer: int) -> None:
        store = SqliteEmbeddings(path, MODEL, said.append)
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
    assert set(SqliteEmbeddings(path, MODEL).get(hashes)) == set(hashes)


def test_what_a_killed_process_had_put_is_there(path: Path) -> None:
    script = (
        "import os, sys, pathlib, numpy as np\n"
        "from lakewake.model.recipe import ModelIdentity\n"
        "from lakewake.store.embeddings import SqliteEmbeddings\n"
        "store = SqliteEmbeddings(pathlib.Path(sys.argv[1]), ModelIdentity('hashing', 'test', 4))\n"
        "store.put({'a': np.array([1, 2, 3, 4], np.float32)})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == -9
    assert held(SqliteEmbeddings(path, MODEL), "a") == {"a": ONE.tolist()}


def test_the_day_of_the_last_use_is_kept(path: Path) -> None:
    store = SqliteEmbeddings(path, MODEL)
    store.put({"a": ONE, "b": TWO})
    with sqlite3.connect(path) as file:
        file.execute("UPDATE embedding SET used = 0")
    store.get(["a"])
    with sqlite3.connect(path) as file:
        used = dict(file.execute("SELECT hash, used FROM embedding").fetchall())
    assert used["a"] > DAY
    assert used["b"] == 0
