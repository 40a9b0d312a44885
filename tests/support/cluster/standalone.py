"""A real Spark cluster on this machine: a master and two workers, from PySpark's own package."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from lakewake.spark.java import find_java
from support import environment

HERE = "127.0.0.1"
WAIT_SECONDS = 600
SPARK = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Cluster:
    """A master and its workers."""

    master: str
    workers: tuple[int, ...]

    def executors(self) -> list[int]:
        """The processes of the executors, which the workers started."""
        return [pid for worker in self.workers for pid in _children(worker)]

    def kill_an_executor(self) -> int:
        """Kill an executor, as a failing machine would; return its process id."""
        killed = self.executors()[0]
        os.kill(killed, signal.SIGKILL)
        return killed

    def options(self, **more: str) -> str:
        """The `[spark]` section of a configuration for this cluster."""
        options = {
            "master": self.master,
            "driver.host": HERE,
            "driver.bindAddress": HERE,
            "driver.memory": "1g",
            "executor.memory": "700m",
            "executor.cores": "1",
            "sql.shuffle.partitions": "4",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return "[spark]\n" + "\n".join(f'{k} = "{v}"' for k, v in options.items()) + "\n"


class Driver:
    """A process that works on one index of a configuration, in one session."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, do: str, **how: Any) -> None:
        """Send a command without waiting."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **how}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the result of the last command."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the driver died"
        return json.loads(line)

    def ask(self, do: str, **how: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        self.tell(do, **how)
        return self.answer()


@contextmanager
def running_driver(config: Path) -> Iterator[Driver]:
    """Run a driver while the context lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "support.cluster.driving", str(config)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Driver(process)
        assert process.stdin
        process.stdin.close()


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    port, page = _free_port(), _free_port()
    master = f"spark://{HERE}:{port}"
    with ExitStack() as opened:

        def start(kind: str, *arguments: str) -> int:
            return opened.enter_context(_running(folder, kind, *arguments))

        start("master.Master", "--port", str(port), "--webui-port", str(page))
        wait_until(lambda: _workers(page) is not None)
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        places = [("--work-dir", str(folder / f"work{n}")) for n in range(2)]
        workers = [start("worker.Worker", *size, *place, master) for place in places]
        wait_until(lambda: _workers(page) == 2)
        yield Cluster(master, tuple(workers))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@contextmanager
def _running(folder: Path, kind: str, *arguments: str) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(SPARK / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "--host", HERE]
    settings = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": HERE,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (
        (folder / f"{kind}.log").open("ab") as log,
        subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env=settings,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process.pid
        finally:
            process.terminate()


def _workers(page: int) -> int | None:
    """How many workers the master knows; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HERE}:{page}/json/") as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    """The running processes that a process started.

    The kernel's own lists of children may leave some out while another one ends.
    """
    states = {int(p.parent.name): _read(p) for p in Path("/proc").glob("[0-9]*/stat")}
    return sorted(child for child, state in states.items() if _runs_under(state, pid))


def _runs_under(stat: str, pid: int) -> bool:
    # The name of the program, in brackets, may hold anything.
    state, parent, *_ = stat.rpartition(")")[2].split() or ("", "")
    return state != "Z" and parent == str(pid)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
