"""Real `lakewake sync --watch` processes on one index, and an embedding service that counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from time import monotonic
from typing import Any

from lakewake.embed.hashing import HashingEmbedder
from support.http_server import listening
from support.oracle import HASHING

LAKEWAKE = Path(sys.executable).with_name("lakewake")
INTERVAL = 0.5
CONFIG = """
[[index]]
name = "sample"
table = "table"
text = "{{txt}}"
payload = ["id", "num"]
model = {{ provider = "http", name = "m", url = "http://127.0.0.1:{port}/v1", dimension = 32 }}

[spark]
sql.shuffle.partitions = 2
default.parallelism = 2
ui.enabled = false
"""


class Watcher:
    """One `lakewake sync --watch`, its output in files beside the configuration."""

    def __init__(self, config: Path, name: str) -> None:
        self._said = config.with_name(f"{name}.err")
        self._told = config.with_name(f"{name}.out")
        command = [str(LAKEWAKE), "sync", "--watch", "--interval", str(INTERVAL), "--json"]
        with self._said.open("w") as said, self._told.open("w") as told:
            self._process = subprocess.Popen(
                [*command, "--config", str(config)], stdout=told, stderr=said
            )

    @property
    def said(self) -> str:
        """What it said to a person."""
        return self._said.read_text()

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The syncs that did something."""
        lines = self._told.read_text().splitlines()
        return [report for line in lines for report in json.loads(line)["indexes"]]

    def kill_jvm(self) -> None:
        """Its Java, and nothing else, is gone at once."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        children = [int(pid) for file in threads for pid in file.read_text().split()]
        jvms = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n"]
        assert len(jvms) == 1
        os.kill(jvms[0], signal.SIGKILL)

    def lives(self, seconds: float = 0) -> bool:
        """Whether it is still there after that time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.lives():
            self.stop()


@contextmanager
def watching(config: Path, number: int = 2) -> Iterator[list[Watcher]]:
    """Run this many watchers at once, and end them whatever happens."""
    with ExitStack() as started:
        watchers = [Watcher(config, f"watcher{n}") for n in range(number)]
        for watcher in watchers:
            started.callback(watcher.end)
        yield watchers


def wait_until(true: Callable[[], bool], watchers: Sequence[Watcher], seconds: float = 180) -> None:
    """Wait for something that living watchers will bring about."""
    give_up = monotonic() + seconds
    while not true():
        for watcher in watchers:
            assert watcher.lives(0.1), f"a watcher ended: {watcher.said}"
        assert monotonic() < give_up, [watcher.said for watcher in watchers]


def embedded_by(watchers: Sequence[Watcher]) -> int:
    """What the watchers say that they embedded."""
    return sum(report["embedded"] for watcher in watchers for report in watcher.reports)


@contextmanager
def counting_service() -> Iterator[tuple[int, list[str]]]:
    """An embedding service on this machine: its port, and every text it was ever sent."""
    received: list[str] = []
    embedder = HashingEmbedder(HASHING)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            received.extend(texts)
            vectors = embedder.embed(texts).tolist()
            data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as port:
        yield port, received
