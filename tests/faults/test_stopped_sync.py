"""A real `lakewake sync` that is killed, and one that is terminated, while it embeds."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import lakewake
from support.http_server import listening
from support.hudi.tables import HudiTables, row
from support.watching import CONFIG, LAKEWAKE

pytestmark = pytest.mark.spark


@contextmanager
def stalling_service() -> Iterator[tuple[int, threading.Semaphore]]:
    """An embedding service that never answers: its port, and one permit per request."""
    asked, end = threading.Semaphore(0), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.release()
            end.wait()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as port:
        try:
            yield port, asked
        finally:
            end.set()


def test_a_terminated_sync_reports_it_and_removes_the_files_of_a_killed_one(
    spark: Any, small_tables: dict[str, str], tmp_path: Path
) -> None:
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(5)])
    config, temporary = tmp_path / "lakewake.toml", tmp_path / "tmp"
    temporary.mkdir()

    def stopped(number: signal.Signals, asked: threading.Semaphore) -> tuple[int, str, list[Path]]:
        """Stop a sync while it embeds; return its exit code, its output and its folders."""
        before = set(temporary.iterdir())
        with subprocess.Popen(
            [LAKEWAKE, "sync", "--quiet", "--config", config],
            env={**os.environ, "TMPDIR": str(temporary)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert asked.acquire(timeout=300), process.stderr.read()
            made = [f for f in temporary.glob("lakewake-spark-*") if f not in before]
            if number is signal.SIGKILL:
                # Kill its JVM too, as when the machine runs out of memory.
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            _, said = process.communicate(timeout=120)
        return process.returncode, said, made

    with stalling_service() as (port, asked):
        config.write_text(CONFIG.format(port=port))
        code, _, left = stopped(signal.SIGKILL, asked)
        assert code == -signal.SIGKILL
        assert [f.is_dir() for f in left] == [True]
        code, said, own = stopped(signal.SIGTERM, asked)
    assert code == 128 + signal.SIGTERM
    assert said.splitlines() == [
        "error: terminated",
        "  nothing was written to 'sample'",
        "  hint: run the same command again to continue from there",
    ]
    assert own
    assert not [f for f in (*left, *own) if f.exists()]
    assert not list(temporary.glob("lakewake*"))
    with lakewake.open(config) as lake:
        assert not lake["sample"].status().built
