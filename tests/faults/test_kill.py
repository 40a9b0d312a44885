"""Real processes, killed with SIGKILL between any two stages, and then resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakewake.model.plan import Action
from lakewake.source.memory import MemoryTable
from lakewake.store.embeddings import SqliteEmbeddings
from lakewake.store.lance import LanceStore
from lakewake.sync import Parts, sync
from lakewake.verify import verify
from oracle import built_from_nothing, indexed
from sampling import SCHEMA, rid, sample_parts, sample_recipe, values

HERE = Path(__file__).parent
ROWS = 400
POINTS = [
    ("read", "begin"),
    ("read", "end"),
    ("embed", "begin"),
    ("embed", "during"),
    ("embed", "end"),
    ("write", "begin"),
    ("write", "end"),
]


def deterministic_table(commits: int) -> MemoryTable:
    """The same history in every process."""
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(ROWS)})
    if commits > 1:
        table.upsert({rid(f"k{n}"): values(f"changed text {n}", n) for n in range(ROWS // 2)})
        table.delete([rid(f"k{n}") for n in range(0, ROWS, 7)])
    return table


def lance_parts(folder: Path, commits: int) -> Parts:
    """Its index in Lance, with an embedding store on disk."""
    recipe = sample_recipe()
    return sample_parts(
        deterministic_table(commits),
        LanceStore(str(folder), "sample"),
        recipe=recipe,
        embeddings=SqliteEmbeddings(folder / "embeddings.sqlite", recipe.model),
    )


def die(*arguments: str, timeout: float = 120) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}"}
    ended = subprocess.run(
        [sys.executable, str(HERE / "dying.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


@pytest.mark.parametrize(("stage", "point"), POINTS)
def test_a_build_killed_at_any_point_is_finished_by_the_next_sync(stage, point, tmp_path):
    die("memory", str(tmp_path), "1", stage, point)
    parts = lance_parts(tmp_path, 1)
    landed = (stage, point) == ("write", "end")
    report = sync(parts)
    assert report.action is (Action.NOTHING if landed else Action.BUILD)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    if (stage, point) in POINTS[4:]:
        assert parts.embedder.received == []
    elif (stage, point) == ("embed", "during"):
        assert len(parts.embedder.received) == ROWS - 128


@pytest.mark.parametrize(("stage", "point"), POINTS)
def test_a_follow_killed_at_any_point_is_finished_by_the_next_sync(stage, point, tmp_path):
    sync(lance_parts(tmp_path, 1))
    before = indexed(lance_parts(tmp_path, 1))
    die("memory", str(tmp_path), "2", stage, point)
    parts = lance_parts(tmp_path, 2)
    landed = (stage, point) == ("write", "end")
    if not landed:
        assert indexed(parts) == before
    report = sync(parts)
    assert report.action is (Action.NOTHING if landed else Action.FOLLOW)
    assert indexed(parts) == built_from_nothing(parts)
    if (stage, point) in POINTS[4:]:
        assert parts.embedder.received == []
