"""Real processes, killed with SIGKILL at every named step and at random, and then resumed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.model.plan import Action
from lakewake.sync import sync
from lakewake.sync.vectors import EMBED_TEXTS
from lakewake.verify import repair, verify
from support import environment
from support.hudi import SAMPLE_CONFIG, SMALL_SPARK
from support.hudi.tables import HudiTables, row
from support.killing import DYING, ROWS, lance_parts, received, spoil
from support.killing import die as die
from support.oracle import built_from_nothing, indexed
from support.sampling import SampleParts

POINTS = [
    ("read", "begin"),
    ("read", "end"),
    ("embed", "begin"),
    ("embed", "during"),
    ("embed", "end"),
    ("write", "begin"),
    ("write", "end"),
]
COMPARING = [
    ("compare", "begin"),
    ("compare", "end"),
    ("check vectors", "begin"),
    ("check vectors", "end"),
]
SEED = 20_260_729


def landed(at: tuple[str, str]) -> bool:
    return at == ("write", "end")


def check_sync(parts: SampleParts, dead: list[str], action: Action) -> None:
    """Finish what a killed sync began, compare, and count what was embedded."""
    report = sync(parts)
    assert report.action is action
    assert report.embedded == len(parts.embedder.received)
    assert not set(parts.embedder.received) & set(dead)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


@pytest.mark.parametrize("at", POINTS)
def test_a_build_killed_at_any_point_is_finished_by_the_next_sync(at, kill, tmp_path):
    assert kill("sync", tmp_path, "new", at) == -signal.SIGKILL
    dead = received(tmp_path)
    # Groups of texts are embedded in any order, and one of them is smaller.
    lots = {EMBED_TEXTS, ROWS % EMBED_TEXTS}
    assert len(dead) in ({0} if at in POINTS[:3] else lots if at == POINTS[3] else {ROWS})
    parts = lance_parts(tmp_path, "new")
    assert (parts.store.open() is not None) is landed(at)
    check_sync(parts, dead, Action.NOTHING if landed(at) else Action.BUILD)


@pytest.mark.parametrize("history", ["changed", "archived"])
@pytest.mark.parametrize("at", POINTS)
def test_a_follow_or_reconcile_killed_at_any_point_is_finished_by_the_next_sync(
    at, history, kill, tmp_path
):
    sync(lance_parts(tmp_path, "new"))
    before = indexed(lance_parts(tmp_path, "new"))
    assert kill("sync", tmp_path, history, at) == -signal.SIGKILL
    dead, parts = received(tmp_path), lance_parts(tmp_path, history)
    assert bool(dead) is (at in POINTS[3:])
    if not landed(at):
        assert indexed(parts) == before
    due = Action.FOLLOW if history == "changed" else Action.RECONCILE
    check_sync(parts, dead, Action.NOTHING if landed(at) else due)


@pytest.mark.parametrize("at", [*COMPARING, *POINTS])
def test_a_repair_killed_at_any_point_is_finished_by_the_next_one(at, kill, tmp_path):
    parts = lance_parts(tmp_path, "new")
    sync(parts)
    spoil(tmp_path)
    spoilt = indexed(parts)
    assert kill("repair", tmp_path, "new", at) == -signal.SIGKILL
    if not landed(at):
        assert indexed(parts) == spoilt
    report = repair(parts)
    assert (report.agrees, report.repaired) == (True, 0 if landed(at) else 4)
    assert indexed(parts) == built_from_nothing(parts)
    assert sync(parts).action is Action.NOTHING


@pytest.mark.parametrize("task", ["build", "follow", "reconcile", "repair"])
def test_work_killed_three_times_at_random_is_finished_by_the_next_run(task, kill, tmp_path):
    print(f"seed {SEED}")
    dice = random.Random(f"{SEED} {task}")
    history = {"build": "new", "repair": "new", "follow": "changed"}.get(task, "archived")
    if task != "build":
        sync(lance_parts(tmp_path, "new"))
    if task == "repair":
        spoil(tmp_path)
    for _ in range(3):
        verb = "repair" if task == "repair" else "sync"
        ended = kill(verb, tmp_path, history, seconds=dice.uniform(0, 0.4))
        assert ended in (0, -signal.SIGKILL)
    parts = lance_parts(tmp_path, history)
    dead = received(tmp_path)
    report = sync(parts)
    assert report.embedded == len(parts.embedder.received)
    # At most the call in progress at the kill was not kept.
    assert len(set(parts.embedder.received) & set(dead)) <= EMBED_TEXTS
    if task == "repair":
        assert repair(parts).agrees
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


#: One round of two indexes of one table; the second one dies.
ROUND = """
import sys
from dataclasses import replace
from pathlib import Path
from lakewake.sync import sync
from lakewake.sync.together import Round
from support.dying import DiesAt
from support.killing import lance_parts

folder, at = Path(sys.argv[1]), sys.argv[2:]
parts = {n: replace(lance_parts(folder / n, "changed"), name=n) for n in ("one", "two")}
around = Round({n: ("table", lambda p=p: p) for n, p in parts.items()})
for name, one in parts.items():
    with around.taking_part(replace(one, reporter=DiesAt(*at)) if name == "two" else one) as mine:
        sync(mine)
"""


@pytest.mark.parametrize("at", POINTS)
def test_a_round_killed_between_the_commits_of_two_indexes_leaves_both_right(at, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        sync(lance_parts(tmp_path / name, "new"))
    before = indexed(lance_parts(tmp_path / "two", "new"))
    script = [sys.executable, "-c", ROUND, str(tmp_path), *at]
    ended = subprocess.run(script, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    first, second = (lance_parts(tmp_path / name, "changed") for name in ("one", "two"))
    assert sync(first).action is Action.NOTHING
    assert indexed(first) == built_from_nothing(first)
    assert landed(at) or indexed(second) == before
    assert sync(second).action is (Action.NOTHING if landed(at) else Action.FOLLOW)
    assert indexed(second) == built_from_nothing(second)


def kill_while_it_reads(config: Path, seconds: float) -> None:
    """Kill a sync of a real table this long after it began to read."""
    with subprocess.Popen(
        [sys.executable, *DYING, "hudi", str(config)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "read begin\n" in process.stdout
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.mark.spark
def test_syncs_of_a_real_table_killed_at_random_are_finished_by_the_next(
    spark, small_tables, tmp_path
):
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(40)])
    config = tmp_path / "lakewake.toml"
    config.write_text(SAMPLE_CONFIG + SMALL_SPARK)
    for change in range(2):
        kill_while_it_reads(config, dice.uniform(0, 1.5))
        with lakewake.open(config, spark=spark) as lake:
            index = lake["sample"]
            report = index.sync()
            embedder: Any = index.parts.embedder
            assert report.embedded == len(embedder.received)
            assert index.verify(vectors="all").agrees
            assert indexed(index.parts) == built_from_nothing(index.parts)
        table.write([row(f"k{n}", f"change {change} of {n}", ts=change + 2) for n in range(5)])
        table.delete("k10")


def test_a_killed_sync_leaves_no_temporary_file(kill, tmp_path):
    assert kill("sync", tmp_path, "new", ("write", "begin")) == -signal.SIGKILL
    assert [p.name for p in kill.temporary.iterdir()] == []
