"""A driver process. It reads commands from stdin, one line of JSON each, and answers on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lakewake
from lakewake.errors import LakewakeError


def peak_megabytes(pid: int | str) -> int:
    """The peak memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) // 1024


def memory() -> dict[str, int]:
    """The peaks of this process and of its JVM."""
    from pyspark import SparkContext

    return {"python": peak_megabytes("self"), "jvm": peak_megabytes(SparkContext._gateway.proc.pid)}


def done(index: lakewake.Index, command: dict[str, Any]) -> dict[str, Any]:
    """Run one line and return the result."""
    what = command.pop("do")
    if what == "memory":
        return memory()
    try:
        report: Any = getattr(index, what)(**command)
    except LakewakeError as error:
        return error.as_dict()
    return report.as_dict()


def main() -> None:
    with lakewake.open(sys.argv[1]) as indexes:
        for line in sys.stdin:
            print(json.dumps(done(indexes[indexes.names[0]], json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
