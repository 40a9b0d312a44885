"""Reads only the file groups that a window touched, as they were before it and after it.

In a copy-on-write table: the base files themselves, by name. In a merge-on-read table: Hudi's
merged read of exactly these groups up to a completion time, which is what an incremental query that
begins at zero returns.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.reads import Reads
from lakewake.model.recipe import name_of
from lakewake.model.timeline import FileGroup, Instant, Look
from lakewake.source import COMPARE_HINT, vectors
from lakewake.source.lineage import Touched
from lakewake.source.listing import group_of, listed_by
from lakewake.source.partitions import Shown, as_shown
from lakewake.source.session import beside
from lakewake.source.storage import Storage
from lakewake.source.timeline import partition_columns
from lakewake.source.view import hudi_reader, partition_path
from lakewake.spark.own import literal, plain_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

#: Types that Hudi shows as the text that a cast in Spark gives.
SAME_TEXT = (
    *("byte", "short", "integer", "long", "float", "double"),
    *("decimal", "date", "timestamp"),
)
#: The identity and version of a row.
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
        stored: the column types found in files, by what wrote the files. The caller keeps it from
            one window to the next, so that not every new file has to be opened.
        shown: how Hudi shows the partitions that it was asked about; kept in the same way.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
        stored: dict[object, StructType],
        shown: dict[object, Shown],
    ) -> None:
        self.look = look
        self._stored = stored
        self._known_shown = shown
        self.pending = pending
        self._spark = spark
        self._path = path
        self._frontier = frontier
        self._storage = Storage(path)
        # The bytes of each file that is read, by its path in the table.
        self._read: dict[str, int] = {}

    @property
    def reads(self) -> Reads:
        """How much of the table `before` and `after` have read."""
        groups = len({group_of(path) for path in self._read})
        return Reads(groups, sum(self._read.values()))

    @property
    def overlaps(self) -> bool:
        """Whether a pending writer began before an absorbed one: a slow writer that ended late."""
        newest = max(self._frontier.instants, default="")
        return any(i.requested < newest for i in self.pending)

    def after(self, touched: Touched, columns: Sequence[str]) -> DataFrame | None:
        """The rows of the touched groups at the window's end; None when no group is left."""
        if not touched.after:
            return None
        if self._merge_on_read:
            until = max(i.completed or "" for i in self.pending)
            return self._merged(touched.after, until, columns)
        paths = [touched.last[g] for g in touched.after]
        return self._base_files(paths, columns, wrote=self._wrote(columns))

    def before(self, touched: Touched, columns: Sequence[str]) -> DataFrame | None:
        """The rows of the touched groups at the window's start; None when all groups are new."""
        if self._merge_on_read:
            self._refuse_disorder(touched)
            first = min(i.completed or "" for i in self.pending)
            return self._merged(touched.groups, just_before(first), columns)
        paths = [
            touched.first.get(g) or self._newest_base(g) for g in touched.groups - touched.born
        ]
        return self._base_files(paths, columns) if paths else None

    @property
    def _merge_on_read(self) -> bool:
        return self.look.table.type == "MERGE_ON_READ"

    @property
    def _reader(self) -> DataFrameReader:
        return plain_reader(self._spark)

    def _present(self, paths: Sequence[str]) -> list[str]:
        wanted = sorted(paths)
        for path, size in zip(wanted, self._storage.sizes(wanted), strict=True):
            if size is None:
                raise HistoryLost(f"the cleaner removed {path}", hint=COMPARE_HINT)
            self._read[path] = size
        return [f"{self._path}/{p}" for p in wanted]

    def _wrote(self, columns: Sequence[str]) -> object:
        """A key for the types in which the window's files hold the columns."""
        commits = [self.look.commits[i.requested] for i in self.pending]
        schemas = [c.schema or {} for c in commits]
        return (
            frozenset(c.operation for c in commits),
            tuple((c, tuple(s.get(name_of(c)) for s in schemas)) for c in columns),
        )

    def _base_files(
        self, paths: Sequence[str], columns: Sequence[str], wrote: object = None
    ) -> DataFrame:
        """The rows of base files, with the columns as Hudi shows them."""
        files, partitions = self._present(paths), {path.rpartition("/")[0] for path in paths}
        types = self._stored.get(wrote)
        if types is None:
            shown, types = self._found(files, partitions, columns)
        else:
            shown = self._shown(partitions, columns)
        if wrote is not None:
            self._stored[wrote] = types
        rows = self._reader.schema(types).parquet(*map(literal, files))
        _refuse_unlisted(rows, files)
        rows = vectors.decoded(rows, types.fields)
        return shown.applied(rows, _names(columns)) if shown else rows

    def _found(
        self, files: Sequence[str], partitions: Collection[str], columns: Sequence[str]
    ) -> tuple[Shown | None, StructType]:
        """How Hudi shows the columns, and the types with which to read them from the files.

        Hudi is asked while Spark opens the files: each takes a third of a second in a JVM that has
        just started.
        """
        with beside(self._spark, lambda: self._stored_in(files) if columns else []) as stored:
            shown = self._shown(partitions, columns)
            wanted = [c for c in columns if shown is None or name_of(c) not in shown.types]
            schema = self._schema(shown) if wanted else None
        return shown, _types(wanted, schema, stored(), shown)

    def _schema(self, shown: Shown | None) -> StructType:
        """The columns as Hudi shows them."""
        return shown.schema if shown else hudi_reader(self._spark).load(self._path).schema

    def _shown(self, partitions: Collection[str], columns: Sequence[str]) -> Shown | None:
        """How Hudi shows the columns; None if it shows all of them as the files hold them."""
        if not partition_columns(self.look.table.partition_fields).intersection(_names(columns)):
            return None
        table = frozenset(self.look.properties.items()), frozenset(self.look.schema.items())
        known = self._known_shown.get(table)
        missing = set(partitions).difference(known.values if known else ())
        if known is None or (known.types and missing):
            asked = as_shown(self._spark, self._path, missing)
            known = replace(asked, values={**(known.values if known else {}), **asked.values})
            self._known_shown[table] = known
        return replace(known, values={p: known.values[p] for p in partitions if known.types})

    def _stored_in(self, files: Sequence[str]) -> list[StructType]:
        """The schemas of the files; files of one commit share one.

        One job if they can be merged. They cannot if a column changed its type, even one that the
        recipe does not use; then each is read by itself.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        one_each = [literal(f) for f in {name.rsplit("_", 1)[1]: name for name in files}.values()]
        try:
            return [self._reader.option("mergeSchema", "true").parquet(*one_each).schema]
        except (PySparkException, Py4JJavaError):
            return [self._reader.parquet(file).schema for file in one_each]

    def _merged(
        self, groups: Collection[FileGroup], until: str, columns: Sequence[str]
    ) -> DataFrame:
        self._refuse_unseen_logs(until)
        self._refuse_dropped_partitions({g.partition for g in groups})
        shown = self._shown({g.partition for g in groups}, columns)
        ids = ",".join(sorted({g.file_id for g in groups}))
        listed = (
            hudi_reader(self._spark)
            .option("hoodie.datasource.query.type", "incremental")
            .option("hoodie.datasource.read.begin.instanttime", "000")
            .option("hoodie.datasource.read.end.instanttime", until)
            # The underscore ends the file id in every file name: `-1` is not `-10`.
            .option("hoodie.datasource.read.incr.path.glob", f"*{{{ids}}}_*")
            # If it is on, the default, a window whose files are gone has no rows and no error.
            .option("hoodie.datasource.read.incr.fallback.fulltablescan.enable", "false")
            .load(self._path)
        )
        self._note_read(listed)
        rows = listed.where(partition_path().isin(sorted({g.partition for g in groups})))
        return shown.applied(rows, _names(columns)) if shown else rows

    def _note_read(self, listed: DataFrame) -> None:
        """Note the files of a merged read and their bytes."""
        found = listed_by(listed)
        if found is None:
            return
        paths = [relative_path(self._path, file) for file in found.files]
        sizes = self._storage.sizes(paths)
        self._read |= {path: size or 0 for path, size in zip(paths, sizes, strict=True)}

    def _newest_base(self, group: FileGroup) -> str:
        """The base file that a group had at the frontier, if no pending commit names it."""
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
                f"the cleaner removed file group {prefix}{group.file_id}", hint=COMPARE_HINT
            )
        return prefix + max(known)[1]

    def _refuse_dropped_partitions(self, partitions: Collection[str]) -> None:
        """Raise if the cleaner dropped a partition: a merged read would leave out its rows.

        Hudi recognizes a partition by a file in it, whose name may end like those of base files.
        """
        marks = [f"{p}/{PARTITION_MARK}" for p in sorted(partitions) if p]
        for path in self._storage.missing(marks):
            folder = path.rpartition("/")[0]
            names = self._storage.names(folder) or ()
            if not any(name.startswith(PARTITION_MARK) for name in names):
                raise HistoryLost(f"the cleaner removed partition {folder}", hint=COMPARE_HINT)

    def _refuse_unseen_logs(self, until: str) -> None:
        """Raise if a merged read up to `until` would leave out log files.

        What completes after a compaction was planned goes to a file slice named after the plan.
        A merged read leaves out slices that are newer than all the commits it reads, and with them
        the logs of a writer that was in flight at the time of the plan and is the newest.
        """
        pending = {i.requested: i.completed or "" for i in self.pending}
        seen = {r: c for r, c in {**self._frontier.instants, **pending}.items() if c <= until}
        planned = [i.requested for i in self.look.instants if i.action in ("compaction", "commit")]
        for plan in planned:
            if max(seen, default=plan) < plan < max(seen.values()):
                raise HistoryLost(
                    f"compaction {plan} was planned while a writer was in flight", hint=COMPARE_HINT
                )

    def _refuse_disorder(self, touched: Touched) -> None:
        """Raise if an absorbed instant completed later than a pending one.

        A merged read selects by completion time: the rows before the window would lack what that
        instant wrote.
        """
        first = min(i.completed or "" for i in self.pending)
        late = [r for r, completed in self._frontier.instants.items() if completed >= first]
        for requested in late:
            commit = self.look.commits.get(requested)
            if commit is None or any(w.group in touched.groups for w in commit.writes):
                raise HistoryLost(
                    f"instant {self.pending[0].requested} completed before {requested}, "
                    "which the index absorbed first",
                    hint=COMPARE_HINT,
                )


def relative_path(table: str, file: str) -> str:
    """The path of a file below its table, from the URI that Spark shows."""
    name = urlsplit(table).path if "://" in table else table
    return unquote(urlsplit(file).path).removeprefix(name.rstrip("/")).lstrip("/")


def _types(
    columns: Sequence[str],
    schema: StructType | None,
    stored: Sequence[StructType],
    shown: Shown | None,
) -> StructType:
    """The types with which to read the columns; those that are not in the files are left out.

    A file older than a column lacks it, and the column reads as null.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    meta = [StructField(name, StringType()) for name in META]
    if schema is None:
        return StructType(meta)
    fields = [_only(schema[name], columns) for name in _names(columns)]
    held = [StructType([_only(f, columns) for f in s]) for s in stored]
    return StructType([*meta, *(_read_as(f, held, shown) for f in fields)])


def _names(columns: Sequence[str]) -> list[str]:
    """The columns that are read, each once."""
    return list(dict.fromkeys(map(name_of, columns)))


def _only(field: StructField, paths: Sequence[str]) -> StructField:
    """A struct with only those of its fields that are read; they may change while others do not."""
    from pyspark.sql.types import StructField, StructType

    inside = [p.partition(".")[2] for p in paths if name_of(p) == field.name]
    if "" in inside or not inside or not isinstance(field.dataType, StructType):
        return field
    kept = [_only(f, inside) for f in field.dataType if f.name in _names(inside)]
    return StructField(field.name, StructType(kept), field.nullable, field.metadata)


def _read_as(field: StructField, stored: Sequence[StructType], shown: Shown | None) -> StructField:
    """The field with which to read a column from the files.

    Raises:
        HistoryLost: the files hold it in another type than Hudi shows.
    """
    from pyspark.sql.types import BinaryType, StructField

    wanted = bare(field.dataType)
    held = {bare(s[field.name].dataType) for s in stored if field.name in s.names}
    if vectors.is_vector(field) and held <= {BinaryType()}:
        return vectors.as_stored(field)
    if held <= {wanted}:
        return StructField(field.name, wanted)
    # The column from which a key generator formats partition paths: Hudi shows its value as text.
    if shown and wanted.typeName() == "string" and len(held) == 1:
        (kept,) = held
        if kept.typeName() in SAME_TEXT:
            return StructField(field.name, kept)
    types = ", ".join(sorted(t.simpleString() for t in held))
    raise HistoryLost(
        f"the files hold column {field.name!r} as {types}, "
        f"the table shows {field.dataType.simpleString()}",
        hint=COMPARE_HINT,
    )


def _refuse_unlisted(rows: DataFrame, files: Sequence[str]) -> None:
    """Raise if Spark did not list every file: it would leave a hidden file out without an error."""
    listed = len(rows._jdf.inputFiles())
    if listed != len(files):
        raise HistoryLost(f"Spark lists {listed} of {len(files)} base files", hint=COMPARE_HINT)


def bare(type_: DataType) -> DataType:
    """The type without nullability and metadata: files record less of these than Hudi does."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(type_, ArrayType):
        return ArrayType(bare(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(bare(type_.keyType), bare(type_.valueType))
    if isinstance(type_, StructType):
        return StructType([StructField(f.name, bare(f.dataType)) for f in type_])
    return type_


def just_before(instant: str) -> str:
    """The last millisecond before an instant, in Hudi's form."""
    when = datetime.datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f")
    return (when - datetime.timedelta(milliseconds=1)).strftime("%Y%m%d%H%M%S%f")[:17]
