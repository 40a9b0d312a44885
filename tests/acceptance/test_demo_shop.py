"""The shop demo, as a new user runs it: the real executable, Spark, Hudi, the model and Lance."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lakewake.demo.shop import ADVICE, CONFIG, QUESTION, kept_config
from lakewake.demo.table import MARK, make_folder
from support.chat_service import Handler, says, serving
from support.shell import run_here

LAKEWAKE = Path(sys.executable).with_name("lakewake")

ROWS = 80
NEW = "Fellgate Stormchild Hiking Jacket"


def lakewake(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("LAKEWAKE_RECOMMEND")}
    return subprocess.run([LAKEWAKE, *args], cwd=folder, capture_output=True, text=True, env=own)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a shop with spaces")


@pytest.fixture(scope="module")
def demo(home: Path) -> subprocess.CompletedProcess[str]:
    return lakewake(home, "demo", "--shop", "--rows", str(ROWS))


@pytest.mark.spark
def test_the_answer_changes_with_the_table_and_every_expectation_holds(
    demo: subprocess.CompletedProcess[str],
) -> None:
    assert demo.returncode == 0, demo.stderr
    assert "All 9 expectations held" in demo.stdout
    for words in (
        f"A Hudi table of {ROWS} products",
        f"build: {ROWS} changed, 0 deleted, {ROWS} embedded",
        QUESTION,
        "all are in stock, as the filter asks: stock > 0",
        "2 rows changed, 1 text embedded: only the new one",
        f"{NEW}: new, 25 in stock",
        "is gone: stock 0",
        f"{NEW} is found",
        "since commit 2",
        "the answer changed",
    ):
        assert words in demo.stdout
    assert "\x1b" not in demo.stdout + demo.stderr
    commands = [line for line in demo.stdout.splitlines() if "lakewake " in line]
    assert max(len(x) for x in demo.stdout.splitlines() if x not in commands) <= 80


@pytest.mark.spark
def test_the_command_at_the_end_can_be_run_as_printed(
    home: Path, demo: subprocess.CompletedProcess[str]
) -> None:
    commands = demo.stdout.partition("Try next:\n")[2].splitlines()
    assert [shlex.split(c)[1] for c in commands] == ["recommend", "serve"]
    done = subprocess.run(commands[0], shell=True, cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert NEW in done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("demo", "spark")
def test_with_a_model_the_demo_shows_its_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def praises_the_first(handler: Handler) -> None:
        name = handler.rows[0].splitlines()[0].removeprefix("name: ")
        says(f"I would take the {name} [1].")(handler)

    with serving() as service:
        service.script = [praises_the_first]
        monkeypatch.setenv("LAKEWAKE_RECOMMEND_URL", f"http://127.0.0.1:{service.port}/v1")
        monkeypatch.setenv("LAKEWAKE_RECOMMEND_NAME", "tiny")
        done = run_here(home, "demo", "--shop", "--rows", "40", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answers = [
        s["recommendation"] for s in json.loads(done.stdout)["steps"] if "recommendation" in s
    ]
    assert [t["answered_by"] for t in answers] == ["model", "model"]
    assert answers[0]["used"] == [{"key": answers[0]["hits"][0]["key"], "partition": ""}]
    assert answers[0]["message"] != answers[1]["message"]
    assert all(hit["payload"]["stock"] > 0 for t in answers for hit in t["hits"])
    assert NEW in {hit["payload"]["name"] for hit in answers[1]["hits"]}


def test_additions_of_the_user_to_the_configuration_stay(tmp_path: Path) -> None:
    assert kept_config(tmp_path) == CONFIG + ADVICE
    make_folder(tmp_path, CONFIG + '[recommend]\nurl = "http://localhost:1/v1"\nname = "m"\n')
    assert kept_config(tmp_path).endswith('name = "m"\n')
    (tmp_path / MARK).unlink()
    assert kept_config(tmp_path) == CONFIG + ADVICE


def test_a_csv_of_wines_is_refused_by_the_shop_demo(tmp_path: Path) -> None:
    done = lakewake(tmp_path, "demo", "--shop", "--csv", "wines.csv")
    assert done.returncode == 2
    assert "leave out --csv" in done.stderr
    assert list(tmp_path.iterdir()) == []
