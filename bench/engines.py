"""What people search vectors with today, for bars 33 to 35: libraries, and a real Postgres."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.ground import Followed, Ground
from bench.searching import K, Searched, dataset_of

#: Made by `make bench`.
PYTHON = Path(__file__).parents[1] / ".venv-engines" / "bin" / "python"
#: The recall that a bare library is asked for.
LEAST = 0.99
#: pgvector's `ef_search` if many clients ask. In-process searches try several.
EF_SEARCH = 100
Times = dict[str, dict[str, float]]


def engines(ground: Ground) -> Path | None:
    """The Python of the engines' environment; None in a run without peers."""
    return PYTHON if ground.peer is not None and PYTHON.exists() else None


@dataclass(frozen=True)
class Engine:
    """A process that holds the vectors of an index and measures when it is asked to.

    Attributes:
        about: what it printed when it was ready.
    """

    about: Mapping[str, Any]
    process: subprocess.Popen[str]

    def measure(self) -> Times:
        """What every question took, one after the other, for each way to ask."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        times: Times = self._line()
        return times

    def _line(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"an engine ended: code {self.process.wait()}")
        return json.loads(line)


@contextmanager
def engine(ground: Ground, found: Searched, script: str) -> Iterator[Engine | None]:
    """An engine with the vectors and columns of an index; None in a run without peers."""
    python = engines(ground)
    if python is None:
        yield None
        return
    files = ground.once("the files of the engines", lambda: _files(ground, found))
    given = {
        "in_memory": [files / "vectors.npy", files / "queries.npy", K, 1],
        "in_postgres": [
            files / "postgres", files / "rows.parquet", files / "vectors.npy",
            files / "queries.npy", K,
        ],
    }[script]  # fmt: skip
    path = Path(__file__).parent / "peer" / f"{script}.py"
    with (
        (ground.scratch / f"{script}.log").open("w") as log,
        subprocess.Popen(
            [str(part) for part in (python, path, *given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Each question on one thread: many are asked at a time.
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        ) as process,
    ):
        made = Engine({}, process)
        try:
            yield Engine(made._line(), process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _files(ground: Ground, found: Searched) -> Path:
    folder = ground.scratch / "engines"
    folder.mkdir(exist_ok=True)
    rows, vectors = rows_and_vectors(found.followed)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "queries.npy", found.queries)
    pq.write_table(rows, folder / "rows.parquet")
    return folder


def rows_and_vectors(followed: Followed) -> tuple[pa.Table, np.ndarray]:
    """Key, text and payload of all chunks, and their vectors, in the same order."""
    columns = {"key": "_key", "text": "_text", "country": "country", "points": "points"}
    read = dataset_of(followed).to_table(
        columns=[*columns.values(), "_vector"], filter="_checkpoint IS NULL"
    )
    flat = read["_vector"].combine_chunks().flatten().to_numpy().copy()
    vectors: np.ndarray = flat.reshape(len(read), -1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return pa.table({name: read[column] for name, column in columns.items()}), vectors


def at_best(times: Times, prefix: str = "") -> dict[str, float] | None:
    """The way with the best recall, the quicker one of equals."""
    ways = [way for name, way in times.items() if name.startswith(prefix)]
    return max(ways, key=lambda way: (way["recall"], -way["median"]), default=None)


def quickest(times: Times, prefixes: tuple[str, ...]) -> dict[str, float] | None:
    """The quickest way with enough recall."""
    ways = [w for n, w in times.items() if n.startswith(prefixes) and w["recall"] >= LEAST]
    return min(ways, key=lambda way: way["median"], default=None)


def better(one: Times, other: Times) -> Times:
    """The quicker median of two rounds for each way: the other was disturbed."""
    if not one or not other:
        return one or other
    return {name: min(one[name], other[name], key=lambda way: way["median"]) for name in one}
