"""Tables on untested file systems, and storage that does not answer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakewake.cli import run
from lakewake.config.file import parse_config
from lakewake.config.init import draft_config
from lakewake.errors import ConfigError
from lakewake.model.timeline import Look, TableIdentity
from lakewake.net import deadline

UNTESTED = [
    "gs://bucket/t",
    "abfss://container@account.dfs.core.windows.net/t",
    "hdfs://name:8020/t",
    "wasb://b/t",
    "http://host/t",
    "S3A://bucket/t",
    "s3://bucket/t",
    "s3n://bucket/t",
    "file:///lake/t",
    "://t",
]
CONFIG = '[[index]]\nname = "wines"\ntable = "{table}"\ntext = "{{t}}"\n'
#: The whole command, with shorter time limits.
IMPATIENT = """
import signal, sys
from lakewake import cli
from lakewake.net import deadline
# A shell ignores SIGINT for what it starts in the background, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
deadline.LOOK_SECONDS = float(sys.argv.pop(1))
cli.main()
"""


@pytest.mark.parametrize("table", UNTESTED)
def test_a_table_on_an_untested_file_system_is_refused_by_the_configuration(table: str) -> None:
    text = CONFIG.format(table=table)
    with pytest.raises(ConfigError, match="were not tested") as caught:
        parse_config(text, Path("/proj/lakewake.toml"))
    assert "untested_schemes = true" in caught.value.hint
    assert "\n" not in caught.value.fact
    allowed = parse_config(f"untested_schemes = true\n{text}", Path("/proj/lakewake.toml"))
    assert allowed.indexes[0].table == table


@pytest.mark.parametrize("table", ["lake/t", "/lake/t", "s3a://bucket/t", "a:b/t"])
def test_local_paths_and_s3a_are_accepted(table: str) -> None:
    assert parse_config(CONFIG.format(table=table), Path("/proj/lakewake.toml")).indexes


@pytest.mark.parametrize("table", UNTESTED)
def test_init_and_ingest_refuse_an_untested_file_system_before_reading(
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def look(*_: object) -> None:
        pytest.fail("it was looked at")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lakewake.source.look.look_at", look)
    monkeypatch.setattr("lakewake.ingest.existing_shape", look)
    (tmp_path / "rows.csv").write_text("id,t\n1,a\n")
    for command in (["init", table], ["ingest", "rows.csv", table, "--key", "id"]):
        assert run(command) == 2
        said = capsys.readouterr().err
        assert said.splitlines()[0].endswith("were not tested; a local path and s3a:// were")
        assert "account" not in said
    assert not (tmp_path / "lakewake.toml").exists()


@pytest.mark.parametrize(
    "store", ["lance+gs://b/i", "lance+az://b/i", "lance://gs://b/i", "gs://b"]
)
def test_a_store_on_an_untested_file_system_is_refused_before_reading(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lakewake.toml"
    file.write_text(CONFIG.format(table="s3a://bucket/t") + f'store = "{store}"\n')
    assert run(["status", "-c", str(file)]) == 2
    assert "store" in capsys.readouterr().err


def test_a_draft_for_an_untested_file_system_allows_it_for_later_commands(tmp_path: Path) -> None:
    look = Look(TableIdentity("t", "id", "", "COPY_ON_WRITE"), (), {"t": '"string"'})
    file = tmp_path / "lakewake.toml"
    draft_config("gs://bucket/t", look, file, untested_schemes=True)
    settings = parse_config(file.read_text(), file)
    assert (settings.untested_schemes, settings.indexes[0].table) == (True, "gs://bucket/t")


def test_a_call_that_ends_in_time_returns_its_result_or_raises_its_error() -> None:
    assert deadline.look(lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        deadline.look(lambda: Path("/nowhere").read_text())
    assert not deadline.still_asking()


def test_a_call_that_does_not_end_in_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "LOOK_SECONDS", 0.05)
    answer = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        deadline.look(answer.wait)
    assert deadline.still_asking()
    answer.set()
    deadline._given_up[-1].join()
    assert not deadline.still_asking()


@contextmanager
def silent_s3(patience: float) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """`lakewake init` of a table in an S3 that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        command = [sys.executable, "-c", IMPATIENT, str(patience), "init", "s3a://bucket/t"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            yield process, server


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "term")]
)
def test_a_look_at_unresponsive_storage_can_be_interrupted_at_once(
    number: signal.Signals, code: int, word: str
) -> None:
    with silent_s3(60) as (process, server):
        server.settimeout(60)
        connection, _ = server.accept()
        began = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        seconds = time.monotonic() - began
        connection.close()
    assert process.returncode == code, said
    assert said.startswith(f"error: {word}")
    # Arrow's own retries end after eleven seconds.
    assert seconds < 5


def test_a_look_at_unresponsive_storage_times_out() -> None:
    began = time.monotonic()
    with silent_s3(0.5) as (process, _):
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot read s3a://bucket/t/.hoodie/hoodie.properties: no answer within 0.5 s" in said
    assert "AWS_ENDPOINT_URL" in said
    assert time.monotonic() - began < 30


def test_a_request_that_is_interrupted_while_it_starts_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Event(), threading.Event()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            begun.wait()
            raise KeyboardInterrupt

    def question() -> None:
        begun.set()
        answered.wait()

    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        deadline.look(question)
    assert deadline.still_asking()
    answered.set()
