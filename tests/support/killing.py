"""A Lance index of a memory table, the processes that work on it, and ways to damage it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from lakewake.embed.cache import FILE, SqliteVectorCache
from lakewake.model.chunks import chunk_id
from lakewake.source.memory import MemoryTable
from lakewake.store.lance.store import LanceStore
from support import environment
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

#: See its docstring.
DYING = ("-m", "support.dying")
#: The texts that processes of a folder passed to their embedder, one per line.
RECEIVED = "received.txt"
#: No more than `verify` samples, so that each vector is checked.
ROWS = 240

At = tuple[str, str]


def deterministic_table(history: str, rows: int = ROWS) -> MemoryTable:
    """Make the same history in every process: new, changed, or changed and then archived."""
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(rows)})
    if history != "new":
        table.upsert({rid(f"k{n}"): values(f"changed text {n}", n) for n in range(rows * 3 // 4)})
        table.delete([rid(f"k{n}") for n in range(0, rows, 7)])
    if history == "archived":
        table.archive(keep=1)
    return table


def lance_parts(folder: Path, history: str, rows: int = ROWS) -> SampleParts:
    """Its index in Lance, with a vector cache on disk."""
    recipe = sample_recipe()
    return sample_parts(
        deterministic_table(history, rows),
        LanceStore(str(folder), "sample"),
        recipe=recipe,
        vector_cache=SqliteVectorCache(folder / FILE, recipe.model),
    )


def spoil(folder: Path) -> None:
    """Forge a text, break a vector, add a row and remove one, as a faulty tool would."""
    dataset = lance.dataset(str(folder / "sample.g1.lance"))
    chunks = {c["_key"]: c for c in dataset.to_table().to_pylist()}
    forged = {**chunks["k1"], "_text": "forged"}
    wrong = {**chunks["k2"], "_vector": chunks["k2"]["_vector"][::-1]}
    ghost = {**chunks["k3"], "_id": chunk_id(rid("ghost"), "text", 0), "_key": "ghost"}
    spoilt = pa.Table.from_pylist([forged, wrong, ghost], schema=dataset.schema)
    merge = dataset.merge_insert("_id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(spoilt)
    lance.dataset(dataset.uri).delete("_key = 'k4'")


def received(folder: Path) -> list[str]:
    """The texts that the killed processes passed to their embedder."""
    file = folder / RECEIVED
    return file.read_text().splitlines() if file.exists() else []


def die(*arguments: str, timeout: float = 120) -> None:
    """Run `dying.py`, which must end by SIGKILL."""
    ended = subprocess.run(
        [sys.executable, *DYING, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


@dataclass(frozen=True)
class Case:
    """A task over a memory table, killed at a point of a stage or after a time."""

    task: str
    folder: str
    history: str
    stage: str = ""
    point: str = ""
    seconds: float | None = None
    rows: int = ROWS


class Killer:
    """Run tasks in processes that are killed.

    Attributes:
        temporary: the folder for temporary files of these processes.
    """

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self._process = subprocess.Popen(
            [sys.executable, *DYING, "cases"],
            env=environment(TMPDIR=str(temporary)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, task: str, folder: Path, history: str, at: At = ("", ""), **more: Any
    ) -> int:
        """Run a task until it is killed; return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        case = Case(task, str(folder), history, *at, **more)
        self._process.stdin.write(json.dumps(asdict(case)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Stop the process that runs the tasks."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
