"""Reads just the file groups that a window touched, as they were before it and after it.

Copy-on-write: the base files themselves, by name. Merge-on-read: Hudi's merged read of exactly
these groups up to a completion time; the incremental query does that when it begins at zero.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import FileGroup, Instant, Look
from lakewake.source.lineage import Touched
from lakewake.source.storage import Storage
from lakewake.source.view import hudi_reader, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

HINT = "`lakewake sync` compares index and table instead"
#: Who a row is, and which version of it.
META = (
    "_hoodie_partition_path",
    "_hoodie_record_key",
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
)
PARTITION_MARK = ".hoodie_partition_metadata"


class GroupReader:
    """The file groups of one window of one table.

    Args:
        stored: in which types files were found to hold the columns, by what wrote them. Kept by
            the caller from one window to the next, it spares a look into every new file.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
        stored: dict[object, StructType],
    ) -> None:
        self.look = look
        self._stored = stored
        self.pending = pending
        self._spark = spark
        self._path = path
        self._frontier = frontier
        self._storage = Storage(path)

    @property
    def overlaps(self) -> bool:
        """Whether a pending writer began before an absorbed one: a slow one that comes late."""
        newest = max(self._frontier.instants, default="")
        return any(i.requested < newest for i in self.pending)

    def after(self, touched: Touched, columns: Sequence[str]) -> DataFrame | None:
        """The rows of the touched groups at the window's end; None when no group is left."""
        if not touched.after:
            return None
        if self._merge_on_read:
            return self._merged(touched.after, max(i.completed or "" for i in self.pending))
        files = self._present([touched.last[g] for g in touched.after])
        wrote = self._wrote(columns)
        if wrote not in self._stored:
            self._stored[wrote] = self._types(files, columns)
        return self._as_shown(self._reader.schema(self._stored[wrote]).parquet(*files))

    def before(self, touched: Touched, columns: Sequence[str]) -> DataFrame | None:
        """The rows of the touched groups at its start; None when all groups are new."""
        if self._merge_on_read:
            self._refuse_disorder(touched)
            first = min(i.completed or "" for i in self.pending)
            return self._merged(touched.groups, just_before(first))
        paths = [
            touched.first.get(g) or self._newest_base(g) for g in touched.groups - touched.born
        ]
        if not paths:
            return None
        files = self._present(paths)
        return self._as_shown(self._reader.schema(self._types(files, columns)).parquet(*files))

    @property
    def _merge_on_read(self) -> bool:
        return self.look.table.type == "MERGE_ON_READ"

    @property
    def _reader(self) -> DataFrameReader:
        # Partition values may hold characters that Spark would take for a pattern.
        return self._spark.read.option("__globPaths__", "false")

    def _present(self, paths: Sequence[str]) -> list[str]:
        wanted = sorted(paths)
        missing = self._storage.missing(wanted)
        if missing:
            raise HistoryLost(f"the cleaner removed {missing[0]}", hint=HINT)
        return [f"{self._path}/{p}" for p in wanted]

    def _wrote(self, columns: Sequence[str]) -> object:
        """What decides in which types the window's files hold the columns."""
        commits = [self.look.commits[i.requested] for i in self.pending]
        schemas = [c.schema or {} for c in commits]
        return (
            frozenset(c.operation for c in commits),
            tuple((c, tuple(s.get(c) for s in schemas)) for c in columns),
        )

    def _types(self, files: Sequence[str], columns: Sequence[str]) -> StructType:
        """Hudi's schema of the columns, where the files hold them in just these types.

        A file older than a column lacks it, and reads as null. What Hudi stores otherwise than it
        shows (VECTOR, a partition column of a key generator) is left to Hudi's own reader.
        """
        from pyspark.sql.types import StringType, StructField, StructType

        meta = [StructField(name, StringType()) for name in META]
        if not columns:
            return StructType(meta)
        stored = self._reader.option("mergeSchema", "true").parquet(*files).schema
        shown = {f.name: f for f in hudi_reader(self._spark).load(self._path).schema}
        types = {f.name: f.dataType for f in stored}
        for column in columns:
            if column in types and types[column] != shown[column].dataType:
                raise HistoryLost(
                    f"the files hold column {column!r} as {types[column].simpleString()}, "
                    f"the table shows {shown[column].dataType.simpleString()}",
                    hint=HINT,
                )
        return StructType([*meta, *(shown[c] for c in columns)])

    def _as_shown(self, rows: DataFrame) -> DataFrame:
        """The rows of base files, partition columns as Hudi shows them: an empty one as null.

        It takes them from the path, which is the same for both.
        """
        from pyspark.sql import functions as F  # noqa: N812

        fields = self.look.table.partition_fields.split(",")
        # A key generator may stand behind the name.
        partitioned = {name.partition(":")[0] for name in fields}
        strings = {f.name for f in rows.schema if f.dataType.typeName() == "string"}
        columns = {c: F.col(quoted(c)) for c in sorted(partitioned & strings)}
        return rows.withColumns({c: F.when(value != "", value) for c, value in columns.items()})

    def _merged(self, groups: Collection[FileGroup], until: str) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        self._refuse_unseen_logs(until)
        self._refuse_dropped_partitions({g.partition for g in groups})
        ids = ",".join(sorted({g.file_id for g in groups}))
        partition = F.coalesce(F.col("_hoodie_partition_path"), F.lit(""))
        return (
            hudi_reader(self._spark)
            .option("hoodie.datasource.query.type", "incremental")
            .option("hoodie.datasource.read.begin.instanttime", "000")
            .option("hoodie.datasource.read.end.instanttime", until)
            # The underscore ends the file id in every file name: `-1` is not `-10`.
            .option("hoodie.datasource.read.incr.path.glob", f"*{{{ids}}}_*")
            # On by default, it answers a window whose files are gone with no rows and no error.
            .option("hoodie.datasource.read.incr.fallback.fulltablescan.enable", "false")
            .load(self._path)
            .where(partition.isin(sorted({g.partition for g in groups})))
        )

    def _newest_base(self, group: FileGroup) -> str:
        """The base file that a group had at the frontier, where no pending commit names it."""
        names = self._storage.names(group.partition) or ()
        prefix = f"{group.partition}/" if group.partition else ""
        first = self.look.first_active
        known = [
            (instant, name)
            for name in names
            if name.startswith(f"{group.file_id}_")
            for instant in [name.rsplit("_", 1)[1].split(".")[0]]
            if instant in self._frontier.instants or instant < first
        ]
        if not known:
            raise HistoryLost(f"the cleaner removed file group {prefix}{group.file_id}", hint=HINT)
        return prefix + max(known)[1]

    def _refuse_dropped_partitions(self, partitions: Collection[str]) -> None:
        """A merged read leaves out partitions that the cleaner dropped with the last of their rows.

        Hudi knows a partition by a file in it, which may have the ending of its base files.
        """
        marks = [f"{p}/{PARTITION_MARK}" for p in sorted(partitions) if p]
        for path in self._storage.missing(marks):
            folder = path.rpartition("/")[0]
            names = self._storage.names(folder) or ()
            if not any(name.startswith(PARTITION_MARK) for name in names):
                raise HistoryLost(f"the cleaner removed partition {folder}", hint=HINT)

    def _refuse_unseen_logs(self, until: str) -> None:
        """What completes after a compaction was planned goes to a file slice named by its plan.

        A merged read leaves out slices that are younger than all the commits it reads, and so the
        logs of a writer that was under way then and is the newest.
        """
        pending = {i.requested: i.completed or "" for i in self.pending}
        seen = {r: c for r, c in {**self._frontier.instants, **pending}.items() if c <= until}
        planned = [i.requested for i in self.look.instants if i.action in ("compaction", "commit")]
        for plan in planned:
            if max(seen, default=plan) < plan < max(seen.values()):
                raise HistoryLost(
                    f"compaction {plan} was planned while a writer was under way", hint=HINT
                )

    def _refuse_disorder(self, touched: Touched) -> None:
        """A merged read goes by completion time: an absorbed instant must not be the later one."""
        first = min(i.completed or "" for i in self.pending)
        late = [r for r, completed in self._frontier.instants.items() if completed >= first]
        for requested in late:
            commit = self.look.commits.get(requested)
            if commit is None or any(w.group in touched.groups for w in commit.writes):
                raise HistoryLost(
                    f"instant {self.pending[0].requested} completed before {requested}, "
                    "which the index absorbed first",
                    hint=HINT,
                )


def just_before(instant: str) -> str:
    """The last millisecond before an instant, in Hudi's form."""
    when = datetime.datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f")
    return (when - datetime.timedelta(milliseconds=1)).strftime("%Y%m%d%H%M%S%f")[:17]
