"""The driver of bar 31: makes the approximate index of an index on a cluster, and measures itself.

    python -m bench.parted_driver CONFIG INDEX PID…

The last line that it prints is JSON. The processes are those of the workers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import lakewake
from bench.workers import processor_seconds
from lakewake.spark.tasks import SparkExecutors
from lakewake.store.lance import distributed, upkeep
from lakewake.store.lance.store import LanceStore
from lakewake.store.recall import Asking


def main(config: str, name: str, pids: tuple[int, ...]) -> dict[str, object]:
    """Make the approximate index, do the rest of upkeep, and return what it took."""
    from pyspark import SparkContext

    with lakewake.open(config) as indexes:
        index = indexes[name]
        store = index.parts.store
        assert isinstance(store, LanceStore)
        executors = SparkExecutors.of(index._spark())
        assert executors is not None
        # Executors are sent their packages, and start Python.
        executors.run([os.getpid] * 2 * len(pids))
        dataset = store._versions.dataset(1)
        for made in dataset.describe_indices():
            dataset.drop_index(made.name)
        cores = executors.parallel
        before, began = [processor_seconds(pid) for pid in pids], time.perf_counter()
        chunks = upkeep.index_chunks(dataset, asking=Asking(), helpers=lambda n: executors)
        seconds = time.perf_counter() - began
        after = [processor_seconds(pid) for pid in pids]
        parts = len(distributed.fragment_groups(dataset, executors))
        rest = store.maintain()
        return {
            "chunks": chunks,
            "cores": cores,
            "parts": parts,
            "seconds": round(seconds, 2),
            "processor_seconds": [round(b - a, 2) for a, b in zip(before, after, strict=True)],
            "upkeep": rest,
            "python": peak("self"),
            "jvm": peak(SparkContext._gateway.proc.pid),
        }


def peak(pid: int | str) -> int:
    """The most bytes that a process held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3:])))))
