"""Reads just the file groups that a window touched, as they were before it and after it.

Copy-on-write: the base files themselves, by name. Merge-on-read: Hudi's merged read of exactly
these groups up to a completion time; the incremental query does that when it begins at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import FileGroup, Instant, Look
from lakewake.source.lineage import Touched
from lakewake.source.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

#: Java's and Hudi's names for "that file is not there any more".
GONE = frozenset(
    {
        "java.io.FileNotFoundException",
        "java.nio.file.NoSuchFileException",
        "org.apache.hudi.exception.HoodieIncrementalPathNotFoundException",
    }
)
REMEDY = "`lakewake sync NAME --rebuild` builds it anew; texts it knows are not embedded again"


class GroupReader:
    """The file groups of one window of one table."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
    ) -> None:
        self.look = look
        self.pending = pending
        self._spark = spark
        self._path = path
        self._frontier = frontier
        self._storage = Storage(path)

    def after(self, touched: Touched) -> DataFrame | None:
        """The rows of the touched groups at the window's end; None when no group is left."""
        if not touched.after:
            return None
        if self._merge_on_read:
            return self._merged(touched.after, max(i.completed or "" for i in self.pending))
        return self._base_files(touched.last[g] for g in touched.after)

    def before(self, touched: Touched) -> DataFrame | None:
        """The rows of the touched groups at its start; None when all groups are new."""
        if self._merge_on_read:
            self._refuse_disorder(touched)
            first = min(i.completed or "" for i in self.pending)
            return self._merged(touched.groups, str(int(first) - 1))
        paths = [
            touched.first.get(g) or self._newest_base(g) for g in touched.groups - touched.born
        ]
        return self._base_files(paths) if paths else None

    @property
    def _merge_on_read(self) -> bool:
        return self.look.table.type == "MERGE_ON_READ"

    def _base_files(self, paths: Iterable[str]) -> DataFrame:
        wanted = sorted(paths)
        missing = self._storage.missing(wanted)
        if missing:
            raise HistoryLost(f"the cleaner removed {missing[0]}", hint=REMEDY)
        return self._spark.read.parquet(*(f"{self._path}/{p}" for p in wanted))

    def _merged(self, groups: Iterable[FileGroup], until: str) -> DataFrame:
        ids = ",".join(sorted({g.file_id for g in groups}))
        return (
            self._spark.read.format("hudi")
            .option("hoodie.datasource.query.type", "incremental")
            .option("hoodie.datasource.read.begin.instanttime", "000")
            .option("hoodie.datasource.read.end.instanttime", until)
            .option("hoodie.datasource.read.incr.path.glob", f"*{{{ids}}}*")
            # On by default, it answers a window whose files are gone with no rows and no error.
            .option("hoodie.datasource.read.incr.fallback.fulltablescan.enable", "false")
            .load(self._path)
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
            raise HistoryLost(
                f"the cleaner removed file group {prefix}{group.file_id}", hint=REMEDY
            )
        return prefix + max(known)[1]

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
                    hint=REMEDY,
                )

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turns "a file is gone" into `HistoryLost`, whichever layer of Java says it."""
        try:
            yield
        except Exception as error:
            if _file_is_gone(error):
                raise HistoryLost(
                    "files of the commits to follow are gone: the cleaner removed them", hint=REMEDY
                ) from error
            raise

    def explained(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same for rows that are still to be streamed."""
        with self.explaining():
            yield from batches


def _file_is_gone(error: BaseException) -> bool:
    if getattr(error, "getErrorClass", lambda: None)() == "PATH_NOT_FOUND":
        return True
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        if cause.getClass().getName() in GONE:
            return True
        cause = cause.getCause()
    return False
