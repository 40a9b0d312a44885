"""A Spark cluster on this machine: a master, and workers that are pinned to one core each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from bench.ground import environment
from bench.memory import descendants

HERE = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
#: How long a cluster may take to start.
WAIT_SECONDS = 120
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Workers:
    """A running cluster.

    Attributes:
        pids: the processes of its workers, which start the executors.
    """

    master: str
    pids: tuple[int, ...]

    @property
    def options(self) -> str:
        """The `[spark]` section of a configuration for this cluster."""
        options = {
            "master": self.master,
            "driver.host": HERE,
            "driver.bindAddress": HERE,
            # A small heap is collected often, so that the JVM holds only what it needs.
            "driver.memory": "512m",
            "pyspark.python": sys.executable,
            "executor.memory": "700m",
            "executor.cores": "1",
            "executorEnv.LANCE_CPU_THREADS": "1",
            "executorEnv.OMP_NUM_THREADS": "1",
            "executorEnv.OPENBLAS_NUM_THREADS": "1",
        }
        return "[spark]\n" + "\n".join(f'{key} = "{value}"' for key, value in options.items())


def processor_seconds(pid: int) -> float:
    """The processor time of a process and all its descendants, also ended ones."""
    return sum(map(_ticks, descendants(pid))) / TICKS


def _ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name of the program, in brackets, may hold anything.
    return sum(int(value) for value in stat.rpartition(")")[2].split()[11:15])


@contextmanager
def running_workers(folder: Path, count: int) -> Iterator[Workers]:
    """A master and this many workers of one core each, while the context lasts."""
    cores = sorted(os.sched_getaffinity(0))
    port, page = _free_port(), _free_port()
    master = f"spark://{HERE}:{port}"
    with ExitStack() as opened:

        def start(kind: str, *arguments: str, core: int | None = None) -> int:
            return opened.enter_context(_running(folder, kind, arguments, core))

        start("master.Master", "--port", str(port), "--webui-port", str(page))
        _wait_for(page, 0)
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        pids = [
            start(
                "worker.Worker",
                *(*size, "--work-dir", str(folder / f"work{n}"), master),
                core=cores[n % len(cores)],
            )
            for n in range(count)
        ]
        _wait_for(page, count)
        yield Workers(master, tuple(pids))


@contextmanager
def _running(
    folder: Path, kind: str, arguments: tuple[str, ...], core: int | None
) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(SPARK / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "--host", HERE]
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    settings = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": HERE, "SPARK_DAEMON_MEMORY": "256m"}
    with (
        (folder / f"{kind}.log").open("ab") as log,
        subprocess.Popen(
            [*pinned, *command, *arguments],
            cwd=folder,
            env={**environment(), **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process.pid
        finally:
            process.terminate()


def _wait_for(page: int, workers: int) -> None:
    """Wait until the master answers and knows this many workers."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{HERE}:{page}/json/") as answer:
                if int(json.load(answer)["aliveworkers"]) >= workers:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the cluster did not start within {WAIT_SECONDS} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])
