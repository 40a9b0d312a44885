"""The demo, as a new user runs it: the real executable, Spark, Hudi, the model and Lance."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakewake.demo import CONFIG, MARK, prepare_folder
from lakewake.errors import ConfigError
from support.listening import Listening
from support.shell import run_here
from support.winemag import write_wine_csv

LAKEWAKE = Path(sys.executable).with_name("lakewake")

ROWS = 60


def lakewake(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **env}
    return subprocess.run(
        [LAKEWAKE, *args], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a folder with spaces")


@pytest.fixture(scope="module")
def watched() -> Iterator[Listening]:
    with Listening() as watched:
        yield watched


@pytest.fixture(scope="module")
def demo(home: Path, watched: Listening) -> subprocess.CompletedProcess[str]:
    return lakewake(home, "demo", "--rows", str(ROWS), **watched.environment)


@pytest.mark.spark
@pytest.mark.usefixtures("demo")
def test_the_demo_listens_on_nothing_beyond_loopback(watched: Listening) -> None:
    assert watched.open_ports == []


@pytest.mark.spark
def test_the_demo_ends_and_reports_that_every_expectation_held(
    demo: subprocess.CompletedProcess[str],
) -> None:
    assert demo.returncode == 0, demo.stderr
    assert demo.stdout.count("✓") == 15
    assert "All 15 expectations held" in demo.stdout


@pytest.mark.spark
@pytest.mark.parametrize(
    "words",
    [
        f"A Hudi table of {ROWS} wine reviews",
        f"build: {ROWS} changed, 0 deleted, {ROWS} embedded",
        "exactly 1 row changed, 1 text embedded",
        "nothing else in the index was touched",
        "now the new text finds wine_0 first",
        "the old text fits it less than before",
        "1 row changed, 0 texts embedded",
        "the hit shows price",
        "exactly 1 row deleted, 0 texts embedded",
        "it cannot be found any more",
        "nothing to do",
        f"{ROWS - 1} rows were compared",
        "index and table agree",
    ],
)
def test_the_demo_prints_each_expected_line(
    words: str, demo: subprocess.CompletedProcess[str]
) -> None:
    assert words in demo.stdout


@pytest.mark.spark
def test_the_demo_reads_well_without_a_terminal(
    demo: subprocess.CompletedProcess[str],
) -> None:
    assert "\x1b" not in demo.stdout + demo.stderr
    commands = [line for line in demo.stdout.splitlines() if "lakewake " in line]
    assert max(len(x) for x in demo.stdout.splitlines() if x not in commands) <= 80


@pytest.mark.spark
def test_nothing_of_sparks_own_log_reaches_the_user(
    demo: subprocess.CompletedProcess[str],
) -> None:
    assert not [w for w in ("WARN", "INFO", "SLF4J", "log4j") if w in demo.stdout + demo.stderr]


@pytest.mark.spark
def test_the_three_commands_at_the_end_can_be_run_as_printed(
    home: Path, demo: subprocess.CompletedProcess[str]
) -> None:
    commands = demo.stdout.partition("Try next:\n")[2].splitlines()
    assert [shlex.split(c)[1] for c in commands] == ["search", "status", "sync"]
    for command in commands[:2]:
        done = subprocess.run(command, shell=True, cwd=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("wines: ")


@pytest.mark.spark
def test_the_index_of_the_demo_is_in_step_and_answers_in_json(
    home: Path, demo: subprocess.CompletedProcess[str]
) -> None:
    config = str(home / "lakewake-demo" / "lakewake.toml")
    done = lakewake(home, "search", "wines", "smoked seaweed", "-k", "3", "--json", "-c", config)
    result = json.loads(done.stdout)
    assert result["hits"][0]["key"] == "wine_0"
    assert len(result["hits"]) == 3
    status = json.loads(lakewake(home, "status", "--json", "-c", config).stdout)
    assert status["indexes"][0]["in_step"] is True
    assert status["indexes"][0]["rows"] == ROWS - 1


@pytest.mark.spark
@pytest.mark.usefixtures("demo", "spark")
def test_a_second_demo_on_the_real_csv_replaces_the_first_and_shows_the_same_as_json(
    home: Path,
) -> None:
    file = write_wine_csv(home / "winemag-data-130k-v2.csv", 40)
    done = run_here(home, "demo", "--csv", str(file), "--rows", "30", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [s["sync"]["action"] for s in report["steps"] if "sync" in s] == [
        "build",
        "follow",
        "follow",
        "follow",
        "nothing",
    ]
    # One of the five reviews of each wine repeats the text of another.
    assert [s["sync"]["embedded"] for s in report["steps"] if "sync" in s] == [24, 1, 0, 0, 0]
    assert report["steps"][0]["sync"]["rows_changed"] == 30
    assert report["steps"][-1]["verify"]["agrees"] is True
    assert done.stderr == ""


def test_a_foreign_folder_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with pytest.raises(ConfigError, match="not made by a demo"):
        prepare_folder(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["lake"]


def test_an_older_demo_loses_its_table_and_index_but_not_the_users_files(
    tmp_path: Path,
) -> None:
    prepare_folder(tmp_path)
    for part in ("lake", "index"):
        (tmp_path / part).mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    prepare_folder(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {MARK, "lakewake.toml", "notes.txt"}


def test_an_empty_folder_can_be_used(tmp_path: Path) -> None:
    assert prepare_folder(tmp_path).read_text() == CONFIG


def test_a_file_at_the_path_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")
    with pytest.raises(ConfigError, match="not made by a demo"):
        prepare_folder(tmp_path / "demo")
