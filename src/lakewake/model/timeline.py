"""A table's timeline, as seen by one look."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Completed actions that may change rows. Compaction completes as `commit`, log compaction as
#: `deltacommit`, clustering as `replacecommit`.
DATA_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
#: Actions that, while in flight, may still become one of the above.
OPEN_ACTIONS = DATA_ACTIONS | {"compaction", "logcompaction", "clustering"}
#: Completed actions that take commits back.
UNDOING = frozenset({"restore", "rollback"})
#: Actions that remove files.
REMOVING = UNDOING | {"clean"}
#: Operations that move rows between files without changing any.
MAINTENANCE = frozenset({"COMPACT", "CLUSTER", "LOG_COMPACT"})
#: Operations whose schema Hudi does not use as the table's: they may have begun long before.
SCHEMALESS = MAINTENANCE | {"INDEX"}
#: Operations that can store a second version of a row id beside the first.
DUPLICATING = frozenset(
    {
        "INSERT",
        "INSERT_PREPPED",
        "BULK_INSERT",
        "BULK_INSERT_PREPPED",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
    }
)


@dataclass(frozen=True, order=True)
class Instant:
    """One action on the timeline. `completed` is None while it is in flight."""

    requested: str
    completed: str | None
    action: str

    @property
    def changes_data(self) -> bool:
        """Completed, and of a kind that may have changed rows."""
        return self.completed is not None and self.action in DATA_ACTIONS

    @property
    def may_change_data(self) -> bool:
        """Still in flight, and of a kind that may change rows once it completes."""
        return self.completed is None and self.action in OPEN_ACTIONS


@dataclass(frozen=True, order=True)
class FileGroup:
    """Hudi's unit of storage: the versions of one set of rows in one partition."""

    partition: str
    file_id: str


@dataclass(frozen=True)
class WriteStat:
    """What one commit did to one file group.

    Attributes:
        previous_base_file: the base file that this one replaces, if the writer names it.
        previous_commit: the commit that wrote what this file replaces.
        size: the bytes of the file; 0 if the writer does not record them.
    """

    group: FileGroup
    path: str
    previous_base_file: str | None
    inserts: int
    updates: int
    deletes: int
    previous_commit: str | None = None
    size: int = 0

    @property
    def begins_group(self) -> bool:
        """The first base file of its group. Flink names the previous commit, but not its file."""
        return not (self.is_log or self.previous_base_file or self.previous_commit)

    @property
    def is_log(self) -> bool:
        """A merge-on-read log file rather than a base file."""
        return self.path.rsplit("/", 1)[-1].startswith(".")

    @property
    def instant(self) -> str:
        """The instant in a base file's name: Hudi shows the newest, whichever was written last."""
        return instant_of(self.path)

    def beside(self, name: str | None) -> str:
        """The path of another file in the same folder; '' for none."""
        folder = self.path.rpartition("/")[0]
        return "" if not name else f"{folder}/{name}" if folder else name


def instant_of(base_file: str) -> str:
    """The instant in a base file's name, which ends in `_INSTANT.parquet`; '' for no file."""
    return base_file.rpartition("_")[2].partition(".")[0]


@dataclass(frozen=True)
class CommitMetadata:
    """The parts of a commit's metadata that following needs.

    Attributes:
        overtaken: another commit changed its file groups while it was in flight. Maintenance reads
            them as they were when it was planned, so it may put back older rows. Also set if Hudi
            shows rows differently after the maintenance.
    """

    operation: str
    writes: tuple[WriteStat, ...] = ()
    replaced: tuple[FileGroup, ...] = ()
    schema: Mapping[str, str] | None = None
    overtaken: bool = False

    @property
    def is_maintenance(self) -> bool:
        """Clustering or compaction: rows moved, none changed."""
        return self.operation in MAINTENANCE and not self.overtaken

    @property
    def groups(self) -> frozenset[FileGroup]:
        """The file groups that it wrote or replaced."""
        return frozenset(w.group for w in self.writes) | frozenset(self.replaced)

    @property
    def tells_schema(self) -> bool:
        """Whether Hudi shows the table in this commit's schema, unless a newer one has one."""
        return bool(self.schema) and self.operation not in SCHEMALESS


@dataclass(frozen=True)
class TableIdentity:
    """What makes a table the same table as before."""

    name: str
    record_key: str
    partition_fields: str
    type: str

    def as_dict(self) -> dict[str, str]:
        """The object for JSON."""
        return {
            "name": self.name,
            "record_key": self.record_key,
            "partition_fields": self.partition_fields,
            "type": self.type,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, str]) -> TableIdentity:
        """The inverse of `as_dict`."""
        return cls(**value)


@dataclass(frozen=True)
class Look:
    """Everything that one read of the table's metadata found, without reading a row.

    Attributes:
        instants: the whole active timeline.
        commits: metadata of the completed instants that the look was asked to open.
        schema: the table's columns and types after the newest commit.
        merges_contents: rows may change without a new row version (custom or partial-update merge).
        archived: the newest archived instant, if there are savepoints: Hudi can keep the commits
            that these mark on the active timeline and archive later ones; '' for none.
        location: the path or address that was looked at.
        date: the day, in UTC, on which rows are selected; at first that of the look.
    """

    table: TableIdentity
    instants: tuple[Instant, ...]
    schema: Mapping[str, str]
    commits: Mapping[str, CommitMetadata] = field(default_factory=dict)
    merges_contents: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    archived: str = ""
    location: str = ""
    date: str = ""

    @property
    def completed(self) -> dict[str, str]:
        """Requested time → completion time of the completed, data-changing instants."""
        return {i.requested: i.completed for i in self.instants if i.changes_data and i.completed}

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Requested times of what may still change rows."""
        return tuple(sorted(i.requested for i in self.instants if i.may_change_data))

    @property
    def first_active(self) -> str:
        """The oldest requested time on the active timeline, empty when there is none."""
        return min((i.requested for i in self.instants), default="")

    @property
    def newest(self) -> str:
        """The requested time of the data-changing instant that completed last."""
        done = self.completed
        return max(done, key=lambda r: (done[r], r), default="")

    def time_of(self, instant: str) -> datetime.datetime | None:
        """The time that an instant's name means; None if it means none.

        A table that does not declare UTC uses its writer's local time: we take it to be ours.
        """
        digits = instant[:17].ljust(17, "0")
        try:
            when = datetime.datetime.strptime(f"{digits}000", "%Y%m%d%H%M%S%f")
        except ValueError:
            return None
        if self.properties.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC":
            return when.replace(tzinfo=datetime.UTC)
        return when.astimezone(datetime.UTC)
