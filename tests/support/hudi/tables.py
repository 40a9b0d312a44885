"""Real Hudi tables for tests: written through Spark as users write them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.source.look import look_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: A restore past a clustering leaves it in flight, with a plan that names files which are gone:
#: Hudi then refuses every update of those file groups, unless it may roll the clustering back.
ROLLS_CLUSTERING_BACK = {
    "hoodie.clustering.updates.strategy": (
        "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
    ),
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true",
}
#: Allow updates of file groups with a planned clustering, and writers in flight.
WRITES_GO_ON = {
    "hoodie.clustering.updates.strategy": ROLLS_CLUSTERING_BACK[
        "hoodie.clustering.updates.strategy"
    ],
    "hoodie.clean.failed.writes.policy": "LAZY",
}
COLUMNS = "id string, sub string, part string, ts long, txt string, num int"


def row(
    key: str, txt: str | None = None, *, part: str = "a", ts: int = 1, num: int = 0, sub: str = "s"
) -> tuple[str, str, str, int, str | None, int]:
    """One row of the sample table."""
    return (key, sub, part, ts, txt if txt is not None else f"text of {key}", num)


@dataclass
class HudiTables:
    """One table under test. Each method is one or more commits.

    Attributes:
        also: further columns of every row, as SQL over the others.
        vectors: the columns that are written as Hudi's VECTOR type: `VECTOR(3)`, or
            `VECTOR(3, DOUBLE)`.
    """

    spark: SparkSession
    path: Path
    type: str = "COPY_ON_WRITE"
    keys: str = "id"
    partition: str = "part"
    options: Mapping[str, str] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)
    vectors: Mapping[str, str] = field(default_factory=dict)
    _slow: Future[None] | None = None

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
        self.write_frame(frame, operation, mode=mode, **more)

    def write_frame(
        self, frame: DataFrame, operation: str = "upsert", *, mode: str = "append", **more: str
    ) -> None:
        """Write rows with their own columns."""
        options = {**self._options(), "hoodie.datasource.write.operation": operation}
        options |= {k.replace("__", "."): v for k, v in more.items()}
        options = {k: v for k, v in options.items() if v}
        frame = frame.selectExpr("*", *(f"{made} AS {name}" for name, made in self.also.items()))
        frame = frame.withColumns({c: _vector(c, t) for c, t in self.vectors.items()})
        frame.write.format("hudi").options(**options).mode(mode).save(str(self.path))

    def write_blindly(self, rows: Iterable[tuple]) -> None:
        """An upsert by a writer that does not know where rows are, like Flink after a restart."""
        self.spark._jvm.org.apache.hudi.index.inmemory.HoodieInMemoryHashIndex.clear()
        # In a small file, Hudi would find the row anyway.
        self.write(rows, hoodie__index__type="INMEMORY", hoodie__parquet__small__file__limit="0")

    def delete(self, *keys: str, part: str = "a") -> None:
        """Hard deletes."""
        self.write([row(k, part=part, ts=10**6) for k in keys], "delete")

    def soft_delete(self, *keys: str, part: str = "a", ts: int = 10**6) -> None:
        """Deletes by the `_hoodie_is_deleted` column, in an upsert."""
        frame = self.spark.createDataFrame(
            [(*row(k, part=part, ts=ts), True) for k in keys],
            COLUMNS + ", _hoodie_is_deleted boolean",
        )
        self.write_frame(frame)

    def delete_partition(self, part: str) -> None:
        """Drops a partition's rows."""
        self.write(
            [row("x", part=part)],
            "delete_partition",
            hoodie__datasource__write__partitions__to__delete=f"part={part}",
        )

    def cluster(self) -> None:
        """Clustering, scheduled and run."""
        self._call(f"run_clustering(path => '{self.path}', op => 'scheduleAndExecute')")

    def compact(self) -> None:
        """Compaction, scheduled and run."""
        self._call(
            f"run_compaction(op => 'scheduleandexecute', path => '{self.path}', "
            "options => 'hoodie.compact.inline.max.delta.commits=1')"
        )

    def plan_clustering(self) -> None:
        """Clustering scheduled, to be run later."""
        self._call(f"run_clustering(path => '{self.path}', op => 'schedule')")

    def run_clustering(self) -> None:
        """Clustering that was scheduled before."""
        self._call(f"run_clustering(path => '{self.path}', op => 'execute')")

    def plan_compaction(self) -> None:
        """Compaction scheduled, to be run later."""
        self._call(
            f"run_compaction(op => 'schedule', path => '{self.path}', "
            "options => 'hoodie.compact.inline.max.delta.commits=1')"
        )

    def run_compaction(self) -> None:
        """Compaction that was scheduled before."""
        self._call(f"run_compaction(op => 'run', path => '{self.path}')")

    def clean(self, **retaining: str) -> None:
        """The cleaner, run by one of its policies."""
        options = ",".join(f"hoodie.clean.{k.replace('__', '.')}={v}" for k, v in retaining.items())
        self.sql(f"CALL run_clean(table => '{self.name}', options => '{options}')")

    def archive(self, keep: int) -> None:
        """Archives all but the newest `keep` commits."""
        metadata = self.options.get("hoodie.metadata.enable", "true")
        self._call(
            f"archive_commits(path => '{self.path}', min_commits => {keep}, "
            f"max_commits => {keep + 1}, retain_commits => {keep - 1}, "
            f"enable_metadata => {metadata})"
        )

    def savepoint(self) -> str:
        """Mark the newest commit and return its instant."""
        newest = look_at(str(self.path)).newest
        self.sql(f"CALL create_savepoint(table => '{self.name}', commit_time => '{newest}')")
        return newest

    def restore(self, savepoint: str) -> None:
        """Undoes all commits after a savepoint."""
        self.sql(
            f"CALL rollback_to_savepoint(table => '{self.name}', instant_time => '{savepoint}')"
        )

    def undo_last_commit(self) -> None:
        """Rolls a completed commit back."""
        newest = look_at(str(self.path)).newest
        self.sql(f"CALL rollback_to_instant(table => '{self.name}', instant_time => '{newest}')")

    def sql(self, *statements: str) -> None:
        """Run statements about the table, which they call `t`."""
        with self._configured():
            self.spark.sql(f"CREATE TABLE {self.name} USING hudi LOCATION '{self.path}'")
            try:
                for statement in statements:
                    self.spark.sql(statement).collect()
            finally:
                self.spark.sql(f"DROP TABLE {self.name}")

    @contextmanager
    def _configured(self) -> Iterator[None]:
        """Set the table's options in the session, where SQL reads them."""
        for key, value in self.options.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in self.options:
                self.spark.conf.unset(key)

    def begin_write(self, rows: Iterable[tuple], *, fails: bool = False) -> None:
        """Start a write that stays in flight until `finish_write`."""
        gate = self.path.with_name("gate")
        held = self.spark.sparkContext.parallelize(list(rows), 1).mapPartitions(
            _held_until(str(gate), fails)
        )
        before = look_at(str(self.path)).in_flight
        pool = ThreadPoolExecutor(1)
        self._slow = pool.submit(self.write_frame, self.spark.createDataFrame(held, COLUMNS))
        pool.shutdown(wait=False)
        _wait(lambda: look_at(str(self.path)).in_flight != before or self._slow.done())

    def finish_write(self) -> BaseException | None:
        """Let the slow write end; return its error, if any."""
        assert self._slow is not None
        gate = self.path.with_name("gate")
        gate.touch()
        error = self._slow.exception(timeout=WAIT_SECONDS)
        gate.unlink()
        return error

    def copy_to(self, folder: Path) -> None:
        """Keeps a copy of the table's files."""
        shutil.copytree(self.path, folder)

    def put_back(self, folder: Path) -> None:
        """Replaces the table's files by a copy kept before."""
        self.drop()
        shutil.copytree(folder, self.path)

    def _call(self, procedure: str) -> None:
        with self._configured():
            self.spark.sql(f"CALL {procedure}").collect()

    def drop(self) -> None:
        """Remove the table's files."""
        shutil.rmtree(self.path)


def _vector(column: str, type_: str) -> Column:
    """A column of arrays as Hudi wants a VECTOR: without nulls in them, and with a note beside."""
    from pyspark.sql import functions as F  # noqa: N812

    element = "double" if "DOUBLE" in type_ else "tinyint" if "INT8" in type_ else "float"
    of = F.col(column).cast(f"array<{element}>")
    known = F.transform(of, lambda x: F.coalesce(x, F.lit(0).cast(element)))
    return known.alias(column, metadata={"hudi_type": type_})


WAIT_SECONDS = 60


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def _held_until(gate: str, fails: bool) -> Any:
    def held(rows: Iterator[tuple]) -> Iterator[tuple]:
        # This runs in a Spark worker, which cannot import this module.
        import os
        import time

        while not os.path.exists(gate):
            time.sleep(0.02)
        if fails:
            raise RuntimeError("this write was to fail")
        yield from rows

    return held
