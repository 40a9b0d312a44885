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


def asked(statement: str) -> list[list[Any]]:
    """The rows of a statement, in the session that an earlier command started."""
    from pyspark.sql import SparkSession

    import lakewake.sql

    spark = SparkSession.builder.getOrCreate()
    lakewake.sql.register(spark, sys.argv[1])
    return [list(row) for row in lakewake.sql.run(spark, statement).collect()]


def joined(index: lakewake.Index, questions: str, out: str, **how: Any) -> dict[str, Any]:
    """Search for the questions of a Parquet file, and write the result to another."""
    frame = index._spark().read.parquet(questions)
    index.search_batch(frame, **how).write.parquet(out)
    return {"rows": index.to_dataframe(["_key"]).count()}


def done(index: lakewake.Index, command: dict[str, Any]) -> dict[str, Any]:
    """Run one line and return the result."""
    what = command.pop("do")
    if what == "memory":
        return memory()
    if what == "upkeep":
        return index.parts.store.maintain()
    if what == "sql":
        return {"rows": asked(command["statement"])}
    if what == "join":
        return joined(index, **command)
    try:
        report: Any = getattr(index, what)(**command)
    except LakewakeError as error:
        return error.as_dict()
    return report.as_dict()


def main() -> None:
    with lakewake.open(sys.argv[1]) as indexes:
        for line in sys.stdin:
            print(
                json.dumps(done(indexes[indexes.names[0]], json.loads(line)), default=str),
                flush=True,
            )


if __name__ == "__main__":
    main()
