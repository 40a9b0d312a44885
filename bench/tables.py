"""Hudi tables for the bars, written through Spark as users write them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"
#: For bars that measure the index and would otherwise spend most of their time in Hudi's commits.
QUICK_COMMITS = {
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.upsert.shuffle.parallelism": "2",
}
WORDS = (
    "cedar", "plum", "smoke", "salt", "honey", "thyme", "slate", "cherry", "leather", "lemon",
    "pepper", "almond", "violet", "tar", "mint", "fig", "clove",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """One Hudi table."""

    spark: SparkSession
    path: str
    key: str
    partition: str
    type: str = COPY_ON_WRITE
    options: Mapping[str, str] = field(default_factory=dict)

    def load(self, frame: DataFrame) -> None:
        """Write the first rows, one file for each partition."""
        files = frame.repartition(2, self.partition).sortWithinPartitions(self.partition)
        self._write(files, "bulk_insert", "overwrite", {"hoodie.bulkinsert.sort.mode": "NONE"})

    def upsert(self, frame: DataFrame) -> float:
        """Make one commit; returns its seconds."""
        return self._write(frame, "upsert")

    def delete(self, frame: DataFrame) -> float:
        """Make one commit of hard deletes; returns its seconds."""
        return self._write(frame, "delete")

    def rows(self) -> DataFrame:
        """The current rows of the table."""
        return self.spark.read.format("hudi").load(self.path)

    def scan(self) -> float:
        """Scan all rows and columns with bare Spark; returns seconds."""
        began = time.perf_counter()
        self.rows().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def incremental(self, after: str) -> float:
        """Run a bare incremental query of commits completed after a time; returns seconds."""
        began = time.perf_counter()
        self.spark.read.format("hudi").options(
            **{
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": after,
            }
        ).load(self.path).collect()
        return time.perf_counter() - began

    def completed(self) -> list[Path]:
        """The files of the timeline's completed instants, in order of completion."""
        done = Path(self.path, ".hoodie", "timeline").glob("*_*.*")
        return sorted(done, key=lambda file: completion(file))

    def _write(
        self,
        frame: DataFrame,
        operation: str,
        mode: str = "append",
        more: Mapping[str, str] | None = None,
    ) -> float:
        options = {
            "hoodie.table.name": Path(self.path).name,
            "hoodie.datasource.write.table.type": self.type,
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": self.key,
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": self.partition,
            # Rounds must be alike, so none of them compacts.
            "hoodie.compact.inline": "false",
            **self.options,
            **(more or {}),
        }
        began = time.perf_counter()
        frame.write.format("hudi").options(**options).mode(mode).save(self.path)
        return time.perf_counter() - began


def completion(instant: Path) -> str:
    """The completion time in a completed instant's file name."""
    return instant.name.partition("_")[2].partition(".")[0]


def wide_rows(numbers: DataFrame, partitions: int) -> DataFrame:
    """A row with a sentence for each number, spread evenly over partitions; made inside Spark."""
    words = ", ".join(f"'{w}'" for w in WORDS)
    some = ", ".join(
        f"element_at(array({words}), cast(pmod(xxhash64(id, {n}), {len(WORDS)}) AS int) + 1)"
        for n in range(8)
    )
    return numbers.selectExpr(
        "concat('row_', id) AS id",
        f"concat('p', id % {partitions}) AS part",
        f"concat_ws(' ', 'number', id, {some}) AS txt",
        "cast(id % 100 AS int) AS points",
        "0L AS ts",
    )


def vector_rows(numbers: DataFrame, dimension: int, partitions: int) -> DataFrame:
    """A row with a vector for each number, made inside Spark."""
    return numbers.selectExpr(
        "concat('row_', id) AS id",
        f"concat('p', id % {partitions}) AS part",
        f"transform(sequence(1, {dimension}), i -> "
        "cast(pmod(xxhash64(id, i), 2001) / 1000.0 - 1 AS float)) AS embedding",
        "cast(id % 100 AS int) AS points",
        "0L AS ts",
    )
