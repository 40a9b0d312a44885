import datetime
import io
import json
import pkgutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import lakewake.cli
from lakewake.cli import COMMANDS, run
from lakewake.cli.failure import Terminated, explain, print_error
from lakewake.cli.history import History, show_history
from lakewake.cli.plan import show_plan
from lakewake.cli.screen import (
    cut,
    duration,
    json_value,
    moment,
    one_line,
    print_block,
    print_json,
    width,
)
from lakewake.cli.search import hit_lines, parse_vector, show_result
from lakewake.cli.status import show_status
from lakewake.cli.sync import show_sync, sync_facts
from lakewake.cli.verify import show_verify
from lakewake.errors import ConfigError, StoreError
from lakewake.model.history import SyncRecord
from lakewake.model.plan import Action
from lakewake.model.query import Hit, SearchResult
from lakewake.model.reads import Reads
from lakewake.model.recall import CellSizes, Retrained, Searching
from lakewake.model.report import (
    IndexDescription,
    PlanReport,
    StatusReport,
    SyncReport,
    VerifyReport,
)
from lakewake.model.rows import RowId
from lakewake.progress import Lines
from lakewake.sync.watch import failed_line
from support.cellar import make_cellar

NAMES = [command.__name__ for command, _ in COMMANDS]
PROPERTIES = """\
hoodie.table.name=wine_reviews
hoodie.table.type=COPY_ON_WRITE
hoodie.table.version=9
hoodie.table.recordkey.fields=wine_id
hoodie.timeline.path=timeline
hoodie.table.create.schema={"type":"record","name":"r","fields":[\
{"name":"wine_id","type":"string"},{"name":"description","type":["null","string"]}]}
"""
HIT = Hit("wine_0", "country=Italy", 0.81234, 0.81234, "Smoky.\nRed", "text", 0, {"price": 20.0})


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_module_with_an_example_is_a_command() -> None:
    modules = [m.name for m in pkgutil.iter_modules(lakewake.cli.__path__)]
    with_example = [
        name for name in modules if hasattr(import_module(f"lakewake.cli.{name}"), "EXAMPLE")
    ]
    of_commands = [command.__module__.rpartition(".")[2] for command, _ in COMMANDS]
    assert sorted(of_commands) == sorted(with_example)
    assert sorted(lakewake.cli.app.commands) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_ends_with_an_example_of_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith(f"lakewake {name}")
    assert max(map(len, lines)) <= 80


def test_the_help_lists_the_commands_in_the_order_they_are_needed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out.split("Commands:\n")[1].split("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == NAMES


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: lakewake" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "lakewake 0.1.0\n"


def test_the_package_runs_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lakewake", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "lakewake 0.1.0\n"


def test_help_imports_no_package_but_click() -> None:
    script = (
        "import sys; before = set(sys.modules);"
        "from lakewake.cli import run; run(['--help']);"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - set(sys.stdlib_module_names)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.split() == ["click", "lakewake"]


def test_a_result_is_shown_without_rich() -> None:
    script = (
        "import sys; from lakewake.cli.search import show_result;"
        "from lakewake.cli.screen import print_block;"
        "from lakewake.model.query import Hit, SearchResult;"
        "show_result(SearchResult('wines', '', (Hit('k', '', 1, 1, 'red', 'text', 0),)));"
        "print_block('wines', [('why', 'new')]);"
        "sys.exit('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5), done.stderr


@pytest.mark.parametrize(
    ("properties", "options", "code", "said"),
    [
        (None, [], 2, "no key to create it with"),
        (None, ["--operation", "delete"], 1, "no table at"),
        (PROPERTIES, ["--key", "id"], 2, "wine_id"),
    ],
)
def test_an_ingest_that_contradicts_its_table_is_refused_before_spark_starts(
    properties: str | None,
    options: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start_session(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("lakewake.spark.session.start_session", start_session)
    table = tmp_path / "table"
    if properties:
        (table / ".hoodie").mkdir(parents=True)
        (table / ".hoodie/hoodie.properties").write_text(properties)
    rows = tmp_path / "wines.csv"
    rows.write_text("id,t\n1,a\n")
    assert run(["ingest", str(rows), str(table), *options]) == code
    assert said in capsys.readouterr().err


def test_a_command_that_is_terminated_still_removes_its_temporary_files(tmp_path: Path) -> None:
    script = (
        "import signal, sys, tempfile; from lakewake import cli\n"
        "def wait(args):\n"
        "    with tempfile.TemporaryDirectory(dir=args[0]) as made:\n"
        "        print(made, flush=True); signal.pause()\n"
        "cli._invoke = wait; cli.main()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = Path(process.stdout.readline().strip())
        assert made.is_dir()
        process.terminate()
    assert process.returncode == 128 + 15
    assert not made.exists()


class Screen(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("term", "styled"), [("xterm", True), ("dumb", False)])
def test_only_a_terminal_that_can_show_it_gets_bold_text(
    term: str, styled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hoodie" / "timeline").mkdir(parents=True)
    (tmp_path / ".hoodie" / "hoodie.properties").write_text(PROPERTIES)
    config = tmp_path / "lakewake.toml"
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    assert run(["init", str(tmp_path), "--config", str(config)]) == 0
    assert f"{config} is written" in screen.getvalue()
    assert ("\x1b[1m" in screen.getvalue()) is styled
    assert ("\x1b" in screen.getvalue()) is styled


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["serach"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    since = Version(metadata.version("click")) >= Version("8.4")
    suggestion = ". Did you mean 'search'?" if since else ""
    assert shown.err.startswith(f"error: No such command 'serach'{suggestion}\n")
    assert "\n  nothing was written\n  hint: " in shown.err


@pytest.mark.parametrize("k", ["0", "-3", "many"])
def test_a_k_below_one_is_a_usage_error(k: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "wines", "red", "-k", k]) == 2
    assert "'-k'" in capsys.readouterr().err


def test_with_json_a_usage_error_is_one_object_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["search", "wines", "red", "-k", "0", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert set(error) == {"error", "fact", "landed", "hint"}
    assert error["error"] == "ConfigError"


@pytest.mark.parametrize("args", [[], ["x", "--vector", "[1]"], ["x", "--like", "k"]])
def test_search_takes_exactly_one_of_text_vector_and_row(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "wines", *args]) == 2
    assert "exactly one of a text, --vector and --like" in capsys.readouterr().err


def test_a_partition_without_a_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "wines", "red", "--partition", "p"]) == 2
    assert "--partition works only with --like" in capsys.readouterr().err


def test_a_filter_that_is_not_json_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lakewake.toml").write_text('[[index]]\nname="wines"\ntable="t"\ntext="{a}"\n')
    assert run(["search", "wines", "red", "--where", '{"country": }']) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_a_hit_of_an_index_of_vectors_has_no_text() -> None:
    hit = Hit("k7", "", 0.5, 0.5, None, "vector", 0, {"num": 7})
    assert hit_lines(1, hit, 80) == ["  1  0.5000  k7", "     num=7"]


def test_a_page_of_hits_shows_how_to_see_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(SearchResult("wines", "", (HIT,), offset=5, more=True))
    out = capsys.readouterr().out
    assert "  6  " in out
    assert "more: --offset 6" in out


@pytest.mark.parametrize(
    "flag",
    [
        *("--rebuild", "--reconcile", "--retry-quarantined", "--allow-deletes", "--retrain"),
        "--limit=5",
    ],
)
def test_watch_cannot_be_combined_with_one_time_options(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sync", "--watch", flag]) == 2
    assert f"--watch and {flag.partition('=')[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["inf", "1e9", "0", "-1", "nan", "soon"])
def test_an_invalid_interval_is_a_usage_error(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sync", "--watch", "--interval", seconds]) == 2
    assert "'--interval'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list", "eval", "search"])
def test_an_interrupted_command_that_only_reads_reports_that_nothing_was_written(
    command: str,
) -> None:
    error = explain(KeyboardInterrupt(), [command, "wines"])
    assert (error.exit_code, error.landed) == (130, "nothing was written")


def test_an_interrupted_sync_reports_that_nothing_was_half_written() -> None:
    error = explain(KeyboardInterrupt(), ["sync"])
    assert error.exit_code == 130
    assert "nothing was written partly" in error.landed


def test_a_stopped_sync_reports_what_it_knows_about_its_commit() -> None:
    for stopped, code in ((KeyboardInterrupt(), 130), (Terminated(143), 143)):
        stopped.add_note("nothing was written to 'wines'")
        error = explain(stopped, ["sync"])
        assert (error.exit_code, error.landed) == (code, "nothing was written to 'wines'")


def test_an_interrupted_repair_does_not_claim_that_nothing_was_written() -> None:
    assert explain(KeyboardInterrupt(), ["verify"]).landed == "nothing was written"
    assert "partly" in explain(KeyboardInterrupt(), ["verify", "--repair"]).landed


HOSTILE = "a\nerror: \x1b[2Jfake \x9b31m\u202e\u2028\r\x07b"
SHOWN = r"a\nerror: \x1b[2Jfake \x9b31m\u202e\u2028\r\x07b"


def test_an_error_escapes_control_characters_of_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(ConfigError(f"no column {HOSTILE}", hint=f"columns are {HOSTILE}"))
    assert capsys.readouterr().err.splitlines() == [
        f"error: no column {SHOWN}",
        "  nothing was written",
        f"  hint: columns are {SHOWN}",
    ]


def test_blocks_progress_and_watch_lines_escape_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_block(HOSTILE, [("why", HOSTILE)])
    Lines(sys.stdout).say(HOSTILE)
    print(failed_line("wines", ConfigError(HOSTILE), 5))
    print(failed_line("wines", ValueError(HOSTILE), 5))
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 5
    assert all(c.isprintable() for line in said.splitlines() for c in line)


def test_json_escapes_control_characters_and_keeps_its_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"text": HOSTILE + "\u200b\ufeff\x7f\U000e0041 ü🍷"}
    print_json(value)
    said = capsys.readouterr().out
    assert json.loads(said) == value
    assert said.rstrip("\n").isprintable()
    assert "ü🍷" in said


def test_an_unexpected_error_is_one_line_that_calls_it_a_bug() -> None:
    error = explain(ZeroDivisionError("by\nzero"), ["sync"])
    assert error.exit_code == 1
    assert error.fact == "ZeroDivisionError: by"
    assert error.hint == "run it again with -v and report the traceback: this is a bug"


def test_our_own_errors_are_shown_unchanged() -> None:
    error = StoreError("full", landed="half", hint="free some space")
    assert explain(error, []) is error


def test_a_vector_can_be_given_as_json_or_as_a_json_file(tmp_path: Path) -> None:
    file = tmp_path / "query.json"
    file.write_text("[0.5, 1]")
    assert parse_vector("[0.5, 1]") == [0.5, 1.0] == parse_vector(str(file))


@pytest.mark.parametrize("given", ["[0.5", "nowhere.json", '["x"]', "[[1]]", "{}x", "", "[null]"])
def test_a_vector_that_is_not_a_list_of_numbers_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="--vector"):
        parse_vector(given)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal("1.50"), "1.50"),
        (datetime.date(2025, 3, 1), "2025-03-01"),
        (datetime.datetime(2025, 3, 1, 12, 0, 1), "2025-03-01T12:00:01"),
        (float("nan"), None),
        (b"\x00\xff", "00ff"),
        ([1, (2.5, None)], [1, [2.5, None]]),
        ({"a": {"b": True}}, {"a": {"b": True}}),
    ],
)
def test_payload_values_become_plain_json(value: Any, shown: Any) -> None:
    assert json_value(value) == shown


def test_text_for_a_terminal_has_no_line_breaks_and_no_escape_sequences() -> None:
    assert one_line("a\n\x1b[31mb\t\x00c é🍷") == "a [31mb c é🍷"


def test_a_text_is_cut_to_the_width_with_an_ellipsis() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"


def test_an_instant_is_shown_as_a_date_and_an_unknown_form_unchanged() -> None:
    assert moment("20250301120001123") == "2025-03-01 12:00:01.123"
    assert moment("00000000x") == "00000000x"
    assert moment("") == "none"


def test_durations_are_shown_in_a_suitable_unit() -> None:
    shown = [duration(s) for s in (0.32, 4.2, 180, 9000)]
    assert shown == ["320 ms", "4.2 s", "3 min", "2.5 h"]


def test_output_to_a_pipe_is_neither_cut_nor_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS")
    long = "a/very/long/path " * 30
    print_block("setup", [("bundle", long)])
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=1)[1] == long.strip()
    assert cut(long, width()) == long


def test_a_hit_shows_rank_score_key_text_and_payload_within_the_width() -> None:
    assert hit_lines(1, HIT, 80) == [
        "  1  0.8123  wine_0  in country=Italy",
        "     Smoky. Red",
        "     price=20.0",
    ]
    assert max(len(line) for line in hit_lines(1, HIT, 12)) == 12


def test_a_search_shows_the_instant_of_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(SearchResult("wines", "20250301120001123", (HIT,)))
    assert capsys.readouterr().out.startswith("wines: 1 row, table at 2025-03-01 12:00:01.123\n")


def test_a_text_that_looks_like_markup_is_shown_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hit = Hit("[bold]k[/]", "", 1, 1, ":wine_glass: [red]", "text", 0)
    show_result(SearchResult("wines", "", (hit,)))
    shown = capsys.readouterr().out
    assert "[bold]k[/]" in shown
    assert ":wine_glass: [red]" in shown


def test_a_sync_shows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    report = SyncReport(
        "wines",
        Action.FOLLOW,
        "1 commit",
        rows_changed=1,
        rows_deleted=2,
        embedded=1234,
        to_instant="20250301120001123",
        seconds={"read": 0.25, "total": 1.5},
        reads=Reads(3, 1_250_000, 120, 80_000_000),
    )
    show_sync(report)
    assert capsys.readouterr().out.splitlines() == [
        "wines: follow",
        "  why       1 commit",
        "  rows      1 row changed, 2 deleted",
        "  texts     1,234 texts embedded, 0 reused",
        "  read      3 of 120 file groups, 1.2 MB of 80.0 MB",
        "  table at  2025-03-01 12:00:01.123",
        "  took      1.5 s (read 250 ms)",
    ]


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (
            Retrained("now", True, "fewer are read", recall_before=0.96, recall_after=0.98),
            "new cells are in use: fewer are read; recall 0.980, before 0.960",
        ),
        (Retrained("now", False, "it has one cell"), "the cells stay as they are: it has one cell"),
    ],
)
def test_a_sync_shows_how_a_retrain_ended(ended: Retrained, line: str) -> None:
    report = SyncReport("wines", Action.NOTHING, "in step", retrained=ended)
    assert ("retrained", line) in sync_facts(report)
    assert report.as_dict()["retrained"]["switched"] is ended.switched


def test_an_index_outside_the_lake_has_no_cells_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_cellar(tmp_path)
    assert run(["sync", "wines", "--retrain", "-c", str(config), "--json"]) == 2
    assert "it is not in the lake" in json.loads(capsys.readouterr().out)["fact"]


def test_a_long_reason_wraps_within_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    show_sync(SyncReport("wines", Action.NOTHING, "because " * 40))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80


def test_a_plan_shows_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    pending = ("20250301120001123",)
    show_plan(PlanReport("wines", Action.FOLLOW, "1 commit", pending, 3, 1, 2, 1, "", pending[0]))
    shown = capsys.readouterr().out
    assert "3 rows to write, 1 to delete" in shown
    assert "2 texts to embed, 1 reused" in shown
    assert "refused" not in shown


def test_a_plan_shows_that_its_deletes_would_be_refused(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(PlanReport("wines", Action.FOLLOW, "1 commit", (), 3, 1, 2, 1, "", "", "too many"))
    assert "too many; `sync --allow-deletes` allows it" in capsys.readouterr().out


def status_report(**changes: Any) -> StatusReport:
    values: dict[str, Any] = {
        "index": "wines",
        "built": True,
        "table": "lake/wines",
        "store": "lance://index",
        "instant": "20250301120001123",
        "newest_instant": "20250301120001123",
        "lag_commits": 0,
        "lag_seconds": 0.0,
        "rows": 10,
        "chunks": 12,
        "generation": 1,
        "duplicates": 0,
        "quarantined": 0,
        "model": {"name": "all-MiniLM-L6-v2", "precision": "fp32", "dimension": 384},
        "would": Action.NOTHING,
        "why": "nothing new",
    }
    return StatusReport(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "wines: in step"),
        ({"quarantined": 2}, "wines: in step, complete except 2 rows"),
        ({"lag_commits": 2, "lag_seconds": 4.0}, "wines: 2 commits behind, 4.0 s"),
        ({"built": False}, "wines: not built yet"),
        ({"would": Action.RECONCILE}, "wines: out of step"),
    ],
)
def test_the_first_line_of_a_status_shows_whether_the_index_is_in_step(
    changes: dict[str, Any], headline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(status_report(**changes))
    assert capsys.readouterr().out.splitlines()[0].rstrip() == headline


PROBED = Searching(
    "approximate",
    "a probe reached the promised recall",
    probes=20,
    partitions=253,
    recall_mean=0.9958,
    recall_worst_tenth=0.975,
    probed_at="2025-03-01T12:00:00+00:00",
    questions=36,
    kinds={"stored": 1.0, "deleted": 0.9917},
)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            PROBED,
            "searched approximately, 20 of 253 partitions, recall promised 0.99, found 0.996, "
            "worst tenth 0.975 by 36 questions at 2025-03-01T12:00:00+00:00",
        ),
        (
            replace(PROBED, recall_mean=None, recall_worst_tenth=None),
            "searched approximately, 20 of 253 partitions, recall not probed yet",
        ),
        (
            replace(PROBED, probes=256, partitions=0),
            "searched approximately, 256 candidates held, recall promised 0.99, found 0.996, ",
        ),
        (replace(PROBED, kind="ivf_sq"), "searched approximately (ivf_sq), 20 of 253 partitions"),
        (Searching(why="its recall is 1"), "searched exactly: its recall is 1"),
        (
            replace(PROBED, cells=CellSizes.of([300, 500, 600, 1000])),
            "cells 4, 300 to 1,000 chunks each, median 600; the largest holds 1.7 × the mean",
        ),
    ],
)
def test_a_status_shows_how_the_index_is_searched(
    how: Searching, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = status_report(searching=how)
    show_status(report)
    assert said in " ".join(capsys.readouterr().out.split())
    assert report.as_dict()["searching"]["recall_mean"] == how.recall_mean


def test_a_verify_that_differs_names_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    stale = tuple(RowId("p", f"k{n}") for n in range(7))
    show_verify(VerifyReport("wines", "20250301120001123", 10, 10, stale=stale))
    shown = capsys.readouterr().out
    assert shown.startswith("wines: index and table differ")
    assert "7 rows: p/k0, p/k1, p/k2, p/k3, p/k4, …" in shown


def test_selected_and_partial_indexes_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    selected = {"where": "num > 1", "date": "2026-01-03", "limit": 5}
    show_verify(VerifyReport("wines", "2025", 5, 5, date="2026-01-03", limit=5))
    shown = capsys.readouterr().out
    assert "only the first 5 rows" in shown
    assert "on 2026-01-03" in shown
    show_status(status_report(**selected))
    shown = capsys.readouterr().out
    assert "num > 1, on 2026-01-03" in shown
    again = "only the first 5 rows of a first try; `lakewake sync wines` completes it"
    assert again in " ".join(shown.split())
    assert {k: status_report(**selected).as_dict()[k] for k in selected} == selected
    assert not selected.keys() & status_report().as_dict().keys()
    description = IndexDescription("wines", "s", "t", recipe={"where": "num > 1"}, limit=5)
    assert description.as_dict()["limit"] == 5
    assert "limit" not in IndexDescription("wines", "s", "t").as_dict()


def test_a_first_try_is_of_one_row_or_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sync", "--limit", "0"]) == 2
    assert "'--limit'" in capsys.readouterr().err


def test_a_first_try_does_not_go_with_a_rebuild(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_cellar(tmp_path)
    assert run(["sync", "wines", "--limit", "5", "--rebuild", "-c", str(config)]) == 2
    assert "a limit cannot be combined" in capsys.readouterr().err
    assert run(["sync", "wines", "--limit", "5", "-c", str(config)]) == 2
    assert "holds all its rows already" in capsys.readouterr().err


def test_a_verify_that_agrees_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_verify(VerifyReport("wines", "20250301120001123", 10, 10))
    assert capsys.readouterr().out.startswith("wines: index and table agree")


FOLLOWED = SyncRecord(
    datetime.datetime(2025, 3, 1, 12, 0, 2, 900_000, datetime.UTC),
    "wines",
    "follow",
    "1 new commit (upsert)",
    "20250301115900000",
    "20250301120001123",
    rows_changed=3,
    rows_deleted=1,
    embedded=1234,
    reused=2,
    seconds={"read": 0.25, "total": 0.8},
)
FAILED = SyncRecord(
    datetime.datetime(2025, 3, 1, 12, 5, tzinfo=datetime.UTC),
    "wines",
    "failed",
    seconds={"total": 2.5},
    error="the model\n is \x1b[31mdown",
)


def test_a_status_shows_the_last_sync_and_the_freshness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_status(status_report(lag_seconds=2.0, freshness_limit=30.0, last_sync=FOLLOWED))
    shown = " ".join(capsys.readouterr().out.split())
    assert "freshness fresh: 2.0 s behind, limit 30 s" in shown
    assert (
        "last sync 2025-03-01 12:00:02 UTC: follow: 3 rows changed, 1 deleted, "
        "1,234 texts embedded, 2 reused, 800 ms"
    ) in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lag_seconds": 600.0}, "STALE: 10 min behind, limit 30 s"),
        ({"built": False}, "STALE: not built yet, limit 30 s"),
    ],
)
def test_a_status_makes_a_stale_index_obvious(
    changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(status_report(freshness_limit=30.0, **changes))
    assert said in capsys.readouterr().out


def test_a_status_without_a_limit_does_not_mention_freshness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_status(status_report(last_sync=FAILED))
    shown = capsys.readouterr().out
    assert "fresh" not in shown
    assert "2025-03-01 12:05:00 UTC: failed: the model is [31mdown" in shown


def test_a_history_is_a_table_that_fits_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    show_history(History("wines", (FAILED, FOLLOWED)))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "wines: 2 syncs",
        "  when (UTC)           action     changed  deleted  embedded   reused     took",
        "  2025-03-01 12:05:00  failed                                            2.5 s",
        "    the model is [31mdown",
        "  2025-03-01 12:00:02  follow           3        1     1,234        2   800 ms",
        "    20250301115900000 → 20250301120001123: 1 new commit (upsert)",
    ]
    assert max(map(len, lines)) <= 80


def test_an_empty_history_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    show_history(History("wines", ()))
    assert capsys.readouterr().out == "wines: no syncs yet\n"


CONFIG = """
[[index]]
name = "wines"
table = "table"
text = "{description}"
model = {provider = "hashing", dimension = 16}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, and a table without a commit, which is indexed without Spark."""
    timeline = tmp_path / "table" / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    (timeline.parent / "hoodie.properties").write_text(PROPERTIES)
    (tmp_path / "lakewake.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEWAKE_CONFIG", raising=False)
    return tmp_path


def commit_to(folder: Path) -> None:
    """A commit of long ago."""
    name = "20250301120000000_20250301120001000.commit"
    timeline = folder / "table" / ".hoodie" / "timeline"
    (timeline / name).write_text('{"operationType": "UPSERT"}')


def test_the_history_of_each_index_is_one_object(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sync", "-q"]) == 0
    capsys.readouterr()
    assert run(["history", "--json", "-n", "3"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["indexes"]
    assert answer["index"] == "wines"
    (record,) = answer["history"]
    assert (record["action"], record["error"], record["rows_changed"]) == ("build", None, 0)
    assert len(list((folder / "index" / "wines.history").iterdir())) == 1
    assert run(["history", "wines"]) == 0
    assert "build" in capsys.readouterr().out
    assert run(["history", "-n", "0"]) == 2


def test_a_check_fails_if_the_index_is_not_built(folder: Path) -> None:
    assert run(["status", "--check"]) == 3
    assert run(["sync", "-q"]) == 0
    assert run(["status", "--check"]) == 0


def test_a_check_fails_if_the_index_lags_beyond_its_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sync", "-q"]) == 0
    commit_to(folder)
    assert run(["status", "--check"]) == 0
    assert run(["status"]) == 3
    (folder / "lakewake.toml").write_text(CONFIG + 'freshness = "30s"')
    capsys.readouterr()
    assert run(["status", "--check"]) == 3
    assert "STALE: " in capsys.readouterr().out
    (folder / "lakewake.toml").write_text(CONFIG + 'freshness = "36500d"')
    assert run(["status", "--check"]) == 0
