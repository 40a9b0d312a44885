"""Make the two lakes of `tests/data/older`. Run by hand, with the sources of an older commit.

`PYTHONPATH=<older checkout>/src:tests python tests/data/older/make.py OUT.tar.xz`
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import lakewake
from lakewake.spark.session import start_session
from support.hudi import SMALL_TABLES
from support.hudi.tables import HudiTables

COLUMNS = (
    "id string, part string, ts long, txt string, num int, tags array<string>, "
    "maker struct<name: string, year: int>, seen timestamp"
)
#: Small files: the table is committed to this repository.
TINY = {"hoodie.index.bloom.num_entries": "100", "hoodie.bloom.index.filter.type": "SIMPLE"}
CONFIG = """\
[[index]]
name    = "sample"
table   = "table"
text    = "{txt} seen {seen}"
payload = ["id", "num", "tags", "maker", "seen"]
store   = "lance://index"
chunk   = {tokens = 12, overlap = 0}
model   = {provider = "hashing", dimension = 32}
embedding_store = false
"""


def text_of(n: int) -> str:
    return " ".join(f"Sentence {s} of row {n} is about topic {n % 7}." for s in range(1 + n % 4))


def rows(numbers, ts: int, change: str = "") -> list[tuple]:
    return [
        (
            f"k{n}",
            "ab"[n % 2],
            ts,
            text_of(n) + change,
            n,
            [f"tag {n % 3}"],
            (f"maker {n}", 2000 + n),
            None,
        )
        for n in numbers
    ]


def make(spark, kind: str, lake: Path) -> None:
    lake.mkdir()
    table = HudiTables(spark, lake / "table", kind, options={**SMALL_TABLES, **TINY})
    (lake / "lakewake.toml").write_text(CONFIG)

    def write(some: list[tuple], operation: str = "upsert") -> None:
        frame = spark.createDataFrame(some, COLUMNS).drop("seen")
        frame = frame.selectExpr("*", "timestamp_seconds(1700000000 + num) as seen")
        table.write_frame(frame.coalesce(1), operation)

    with lakewake.open(lake / "lakewake.toml", spark=spark) as opened:
        index = opened["sample"]
        write(rows(range(40), 1))
        index.sync()
        write(rows((3, 4), 2, " It changed."))
        index.sync()
        write(rows((5, 6), 3), "delete")
        write(rows((7, 8), 4), "insert")  # stored twice from now on
        index.sync()
        assert index.verify().agrees


if __name__ == "__main__":
    spark = start_session({"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"})
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sys.argv[1], "w:xz") as archive:
        for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
            make(spark, kind, Path(folder) / kind)
            archive.add(Path(folder) / kind, kind)
