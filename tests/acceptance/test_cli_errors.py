"""Bad input to the real executable: exit code, the three answers, and nothing lost."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LAKEWAKE = Path(sys.executable).with_name("lakewake")
CONFIG = """\
[[index]]
name  = "wines"
table = "lake/wine_reviews"
text  = "{description}"
model = { provider = "hashing", dimension = 16 }
"""

PROPERTIES = """\
hoodie.table.name=wine_reviews
hoodie.table.type=COPY_ON_WRITE
hoodie.table.version=9
hoodie.table.recordkey.fields=wine_id
hoodie.timeline.path=timeline
hoodie.table.create.schema={"type":"record","name":"r","fields":[{"name":"wine_id","type":"string"},\
{"name":"description","type":["null","string"]},{"name":"price","type":["null","double"]}]}
"""


def lakewake(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LAKEWAKE_CONFIG")}
    return subprocess.run(
        [LAKEWAKE, *args], cwd=folder, env={**env, "COLUMNS": "80"}, capture_output=True, text=True
    )


def refused(done: subprocess.CompletedProcess[str], code: int, fact: str) -> str:
    """Check that the run failed with the three answers and no traceback; return its output."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.match(rf"error: .*{fact}", done.stderr), done.stderr
    assert done.stderr.splitlines()[1].startswith("  ")
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lakewake.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize("command", ["sync", "status"])
def test_a_folder_without_a_configuration_is_a_usage_error_with_a_hint(
    command: str, tmp_path: Path
) -> None:
    words = refused(lakewake(tmp_path, command), 2, "lakewake.toml")
    assert "hint: " in words
    assert "lakewake init" in words
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_refused_with_the_likely_one(folder: Path) -> None:
    (folder / "lakewake.toml").write_text(CONFIG.replace("table =", "tabel ="))
    assert "table" in refused(lakewake(folder, "status"), 2, "tabel")


def test_toml_that_does_not_parse_names_the_line(folder: Path) -> None:
    (folder / "lakewake.toml").write_text(CONFIG + "name = = 3\n")
    assert "line 6" in refused(lakewake(folder, "status"), 2, "")


def test_an_unknown_command_is_refused_with_the_likely_one(folder: Path) -> None:
    assert "'status'" in refused(lakewake(folder, "statsu"), 2, "No such command 'statsu'")


@pytest.mark.parametrize("args", [["sync", "wine"], ["search", "wine", "red"]])
def test_an_unknown_index_is_refused_with_the_names_there_are(
    args: list[str], folder: Path
) -> None:
    assert "wines" in refused(lakewake(folder, *args), 2, "'?wine'?")


def make_empty_table(folder: Path) -> Path:
    """A table without a commit: it can be looked at and indexed without Spark."""
    (folder / "lakewake.toml").write_text(CONFIG)
    hoodie = folder / "lake" / "wine_reviews" / ".hoodie"
    (hoodie / "timeline").mkdir(parents=True)
    (hoodie / "hoodie.properties").write_text(PROPERTIES)
    return folder


@pytest.fixture
def empty_table(tmp_path: Path) -> Path:
    return make_empty_table(tmp_path)


@pytest.fixture(scope="module")
def empty_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_empty_table(tmp_path_factory.mktemp("empty"))
    assert lakewake(folder, "sync").returncode == 0
    return folder


@pytest.mark.parametrize("command", ["plan", "sync", "status"])
def test_no_table_at_the_path_is_an_error_that_names_it(command: str, folder: Path) -> None:
    refused(lakewake(folder, command), 1, ".*lake/wine_reviews")
    assert not (folder / "index").exists()


def test_a_folder_that_is_not_a_hudi_table_is_named_in_the_error(folder: Path) -> None:
    (folder / "lake" / "wine_reviews").mkdir(parents=True)
    refused(lakewake(folder, "sync"), 1, ".*lake/wine_reviews")
    assert not (folder / "index").exists()


def test_an_index_that_is_not_built_yet_cannot_be_searched(folder: Path) -> None:
    words = refused(lakewake(folder, "search", "wines", "red"), 3, ".*wines")
    assert "lakewake sync" in words


@pytest.mark.parametrize("k", ["0", "-1"])
def test_a_k_below_one_is_refused(k: str, folder: Path) -> None:
    words = refused(lakewake(folder, "search", "wines", "red", "-k", k), 2, ".*-k")
    assert k in words


def test_an_empty_table_gives_an_empty_index_in_step_with_it(empty_table: Path) -> None:
    assert lakewake(empty_table, "status").returncode == 3
    built = lakewake(empty_table, "sync", "--json")
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["indexes"][0]["action"] == "build"
    again = lakewake(empty_table, "sync", "--json")
    assert json.loads(again.stdout)["indexes"][0]["action"] == "nothing"
    assert lakewake(empty_table, "status").returncode == 0
    found = lakewake(empty_table, "search", "wines", "red", "--json")
    assert json.loads(found.stdout)["hits"] == []


@pytest.mark.parametrize("where", ["price <", "price < 3; DROP TABLE wines", "len(title) > 3", ""])
def test_an_invalid_filter_is_refused(where: str, empty_index: Path) -> None:
    done = lakewake(empty_index, "search", "wines", "red", "--where", where)
    assert "nothing was written" in refused(done, 2, "")


def test_with_json_an_error_is_one_object_on_stdout_and_text_on_stderr(tmp_path: Path) -> None:
    done = lakewake(tmp_path, "status", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)
    assert (error["error"], error["landed"]) == ("ConfigError", "nothing was written")
    assert done.stderr.startswith(f"error: {error['fact']}")


def test_with_json_an_index_that_fails_is_named(folder: Path) -> None:
    done = lakewake(folder, "status", "--json")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert (result["indexes"], result["index"], result["error"]) == ([], "wines", "TableMissing")


def test_one_failing_index_does_not_hide_the_others(folder: Path) -> None:
    other = CONFIG.replace('"wines"', '"beers"').replace("wine_reviews", "beer_reviews")
    (folder / "lakewake.toml").write_text(CONFIG + other)
    done = lakewake(folder, "status")
    assert done.returncode == 1
    assert [line.split(":")[1] for line in done.stderr.splitlines() if "error" in line] == [
        " wines",
        " beers",
    ]


def test_verbose_shows_the_trace_of_an_error(folder: Path) -> None:
    done = lakewake(folder, "status", "-v")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_demo_does_not_touch_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("do not lose")
    refused(lakewake(tmp_path, "demo", "--folder", "mine"), 2, "mine already exists")
    assert [f.name for f in mine.iterdir()] == ["thesis.txt"]


def test_init_does_not_replace_a_configuration(empty_table: Path) -> None:
    done = lakewake(empty_table, "init", "lake/wine_reviews")
    assert "--force" in refused(done, 2, "lakewake.toml already exists")
    assert (empty_table / "lakewake.toml").read_text() == CONFIG


def test_init_reports_its_guesses_and_writes_a_configuration_that_works(
    empty_table: Path,
) -> None:
    (empty_table / "lakewake.toml").unlink()
    done = lakewake(empty_table, "init", "lake/wine_reviews", "--name", "wines")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lakewake.toml is written")
    assert "key wine_id" in done.stdout
    assert "description" in done.stdout
    assert json.loads(lakewake(empty_table, "status", "--json").stdout)["indexes"][0]["index"] == (
        "wines"
    )


def test_init_writes_nothing_if_there_is_no_table_at_the_path(tmp_path: Path) -> None:
    refused(lakewake(tmp_path, "init", "lake/wine_reviews"), 1, ".*lake/wine_reviews")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    # stdout closed for reading before anything is written
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [LAKEWAKE, "--help"], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_output_has_no_colour_without_a_terminal(folder: Path) -> None:
    done = lakewake(folder, "status")
    assert "\x1b" not in done.stdout + done.stderr
