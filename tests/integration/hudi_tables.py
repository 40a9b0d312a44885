"""Real Hudi tables for tests: written through Spark as users write them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id string, sub string, part string, ts long, txt string, num int"


def row(
    key: str, txt: str | None = None, *, part: str = "a", ts: int = 1, num: int = 0, sub: str = "s"
) -> tuple[str, str, str, int, str | None, int]:
    """One row of the sample table."""
    return (key, sub, part, ts, txt if txt is not None else f"text of {key}", num)


@dataclass
class HudiTables:
    """One table under test. Each method is one or more commits."""

    spark: SparkSession
    path: Path
    type: str = "COPY_ON_WRITE"
    keys: str = "id"
    partition: str = "part"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The table's name."""
        return "t"

    def _options(self) -> dict[str, str]:
        return {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.table.type": self.type,
            "hoodie.datasource.write.recordkey.field": self.keys,
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": self.partition,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.compact.inline": "false",
            **self.options,
        }

    def write(
        self, rows: Iterable[tuple], operation: str = "upsert", *, mode: str = "append", **more: str
    ) -> None:
        """One commit by any of Hudi's write operations."""
        frame = self.spark.createDataFrame(list(rows), COLUMNS).coalesce(1)
        options = {**self._options(), "hoodie.datasource.write.operation": operation}
        options |= {k.replace("__", "."): v for k, v in more.items()}
        frame.write.format("hudi").options(**options).mode(mode).save(str(self.path))

    def delete(self, *keys: str, part: str = "a") -> None:
        """Hard deletes."""
        self.write([row(k, part=part, ts=10**6) for k in keys], "delete")

    def soft_delete(self, *keys: str, part: str = "a") -> None:
        """Deletes by the `_hoodie_is_deleted` column, in an upsert."""
        frame = self.spark.createDataFrame(
            [(*row(k, part=part, ts=10**6), True) for k in keys],
            COLUMNS + ", _hoodie_is_deleted boolean",
        )
        frame.write.format("hudi").options(**self._options()).mode("append").save(str(self.path))

    def delete_partition(self, part: str) -> None:
        """Drops a partition's rows."""
        self.write(
            [row("x", part=part)],
            "delete_partition",
            hoodie__datasource__write__partitions__to__delete=f"part={part}",
        )

    def cluster(self) -> None:
        """Clustering, scheduled and run."""
        self._call(
            f"run_clustering(path => '{self.path}', op => 'scheduleAndExecute', "
            "options => 'hoodie.metadata.enable=false')"
        )

    def compact(self) -> None:
        """Compaction, scheduled and run."""
        self._call(
            f"run_compaction(op => 'scheduleandexecute', path => '{self.path}', "
            "options => 'hoodie.compact.inline.max.delta.commits=1,hoodie.metadata.enable=false')"
        )

    def _call(self, procedure: str) -> None:
        self.spark.sql(f"CALL {procedure}").collect()

    def drop(self) -> None:
        """Remove the table's files."""
        shutil.rmtree(self.path)
