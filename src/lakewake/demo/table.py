"""The folder of a demo, and the Hudi table in it that the demo changes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.errors import ConfigError, TableError
from lakewake.spark.options import WITHOUT_SERVER
from lakewake.spark.scratch import own_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Marks a folder as made by a demo, so that the next one may replace it.
MARK = ".lakewake-demo"
#: A small table on one machine: no metadata table, no timeline server, few tasks.
SMALL = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "false",
    **WITHOUT_SERVER,
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}


def make_folder(folder: Path, config: str) -> Path:
    """Make an empty demo folder with this configuration; an earlier demo in it is removed.

    Raises:
        ConfigError: the folder is not empty, and no demo made it.
    """
    if folder.exists() and not (folder / MARK).exists() and _holds_something(folder):
        fact = f"{folder} already exists and was not made by a demo"
        raise ConfigError(fact, hint="use another folder: `lakewake demo --folder DIR`")
    try:
        for part in ("lake", "index"):
            if (folder / part).exists():
                shutil.rmtree(folder / part)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        file = folder / "lakewake.toml"
        file.write_text(config)
    except OSError as error:
        fact = f"{folder} cannot be written: {error.strerror}"
        raise ConfigError(fact, hint="use another folder: `lakewake demo --folder DIR`") from error
    return file


def _holds_something(folder: Path) -> bool:
    return not folder.is_dir() or any(folder.iterdir())


@dataclass(frozen=True)
class TableSpec:
    """A table's name, the column that identifies its rows, and the partition column, if any."""

    name: str
    key: str
    partition: str = ""

    def options(self) -> dict[str, str]:
        """Hudi's write options for it."""
        own = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": self.key,
            "hoodie.datasource.write.partitionpath.field": self.partition,
        }
        if self.partition:
            own["hoodie.datasource.write.hive_style_partitioning"] = "true"
        return {**SMALL, **own}


class DemoTable:
    """The Hudi table, and the changes that a demo makes to it: each is one commit, and timed."""

    def __init__(self, spark: SparkSession, folder: Path, spec: TableSpec, rows: pa.Table) -> None:
        self._spark, self._spec, self._rows = spark, spec, rows
        # Hudi mistakes a relative path for a broken address.
        self._path = str(folder.resolve() / "lake" / spec.name)
        self._schema: Any = None
        self.rows = rows.num_rows

    def row(self, n: int) -> dict[str, Any]:
        """A row as it was first written."""
        found: dict[str, Any] = self._rows.slice(n, 1).to_pylist()[0]
        return found

    def create(self) -> None:
        """Write all rows, replacing an earlier table."""
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(dir=own_folder()) as folder:
            pq.write_table(self._rows, f"{folder}/rows.parquet")
            rows = self._spark.read.parquet(f"{folder}/rows.parquet")
            self._schema = rows.schema
            self._write(rows, "bulk_insert", "overwrite")

    def upsert(self, *rows: Mapping[str, Any]) -> float:
        """Insert or replace rows; return the seconds it took."""
        return self._change(rows, "upsert")

    def delete(self, *rows: Mapping[str, Any]) -> float:
        """Remove rows; return the seconds it took."""
        return self._change(rows, "delete")

    def _change(self, rows: Sequence[Mapping[str, Any]], operation: str) -> float:
        began = time.monotonic()
        later = [{**row, "ts": row["ts"] + 1} for row in rows]
        values = [tuple(row[name] for name in self._schema.names) for row in later]
        self._write(self._spark.createDataFrame(values, self._schema), operation, "append")
        return time.monotonic() - began

    def _write(self, rows: Any, operation: str, mode: str) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        options = {**self._spec.options(), "hoodie.datasource.write.operation": operation}
        try:
            rows.write.format("hudi").options(**options).mode(mode).save(self._path)
        except (Py4JError, PySparkException) as error:
            fact = f"Spark could not {operation} into {self._path}"
            raise TableError(fact, hint="run it again with -v to see Spark's log") from error
