"""What each sync did, and which sync brought each of the table's commits into the index."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakewake.errors import LakewakeError
from lakewake.model.canaries import Canaries
from lakewake.model.frames import data_frame
from lakewake.model.frontier import Frontier
from lakewake.model.reads import Reads
from lakewake.model.report import SyncReport
from lakewake.model.timeline import Instant, Look
from lakewake.show.notebook import Shown
from lakewake.show.redact import without_secrets

FORMAT = 1
#: The action of a sync that failed: what it would have done may not have been known yet.
FAILED = "failed"
_COUNTS = (
    "rows_changed",
    "rows_deleted",
    "chunks_upserted",
    "chunks_deleted",
    "embedded",
    "reused",
    "quarantined",
)


@dataclass(frozen=True)
class SyncRecord(Shown):
    """One sync that did something, or failed.

    Attributes:
        time: when it ended, in UTC.
        action: `build`, `follow` or `reconcile`; `failed`; or `nothing`, if the sync embedded texts
            for a batch that another sync wrote first.
        error: the fact of the error it failed with.
        instants: requested → completion time of the commits that it brought into the index.
        reads: how much of the table it read; None if an earlier Lakewake wrote the record.
        canaries: how well the canaries were answered afterwards; None if there are none.
    """

    time: datetime.datetime
    index: str
    action: str
    why: str = ""
    from_instant: str = ""
    to_instant: str = ""
    rows_changed: int = 0
    rows_deleted: int = 0
    chunks_upserted: int = 0
    chunks_deleted: int = 0
    embedded: int = 0
    reused: int = 0
    quarantined: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    instants: Mapping[str, str] = field(default_factory=dict)
    reads: Reads | None = None
    canaries: Canaries | None = None

    def __post_init__(self) -> None:
        # Also for records of an older version: an error may have named an address.
        object.__setattr__(self, "why", without_secrets(self.why))
        if self.error is not None:
            object.__setattr__(self, "error", without_secrets(self.error))

    @property
    def took(self) -> float:
        """Seconds in total."""
        return self.seconds.get("total", 0.0)

    @classmethod
    def of(cls, report: SyncReport, time: datetime.datetime) -> SyncRecord:
        """The record of a sync that ended with this report."""
        return cls(
            time=time,
            index=report.index,
            action=report.action.value,
            why=report.why,
            from_instant=report.from_instant,
            to_instant=report.to_instant,
            seconds=report.seconds,
            instants=report.instants,
            reads=report.reads,
            canaries=report.canaries,
            **{name: getattr(report, name) for name in _COUNTS},
        )

    @classmethod
    def of_failure(
        cls, index: str, error: Exception, seconds: float, time: datetime.datetime
    ) -> SyncRecord:
        """The record of a sync that ended with an error."""
        if isinstance(error, LakewakeError):
            fact = error.fact
        else:
            fact = f"{type(error).__name__}: {error}".splitlines()[0]
        return cls(time, index, FAILED, seconds={"total": seconds}, error=fact)

    def as_dict(self) -> dict[str, Any]:
        """The object that `history --json` prints for each sync."""
        return {
            "time": iso(self.time),
            "index": self.index,
            "action": self.action,
            "why": self.why,
            "from_instant": self.from_instant,
            "to_instant": self.to_instant,
            **{name: getattr(self, name) for name in _COUNTS},
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "error": self.error,
            "reads": asdict(self.reads) if self.reads else None,
            # Only if there are any: an earlier Lakewake refuses what it does not know.
            **({"canaries": self.canaries.as_dict()} if self.canaries else {}),
        }

    def to_stored(self) -> dict[str, Any]:
        """The object that is stored."""
        return {"format": FORMAT, **self.as_dict(), "instants": dict(self.instants)}

    @classmethod
    def from_stored(cls, value: Mapping[str, Any]) -> SyncRecord:
        """The inverse of `to_stored`, up to the rounding of seconds.

        Raises:
            ValueError, KeyError, TypeError: not a record in a format that this Lakewake reads.
        """
        if value["format"] != FORMAT:
            raise ValueError(f"history format {value['format']!r}, this Lakewake reads {FORMAT}")
        fields = {k: v for k, v in value.items() if k != "format"}
        reads = Reads(**value["reads"]) if value.get("reads") else None
        canaries = Canaries(**value["canaries"]) if value.get("canaries") else None
        time = datetime.datetime.fromisoformat(value["time"])
        return cls(**{**fields, "time": time, "reads": reads, "canaries": canaries})


class SyncHistory(Shown, tuple[SyncRecord, ...]):
    """Syncs, newest first: a tuple of records that a notebook shows as a table."""

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {"history": [record.as_dict() for record in self]}

    def to_pandas(self) -> Any:
        """A DataFrame with one row for each sync; `took` has its seconds in total.

        Raises:
            SetupError: pandas is not installed.
        """
        columns = ("time", "index", "action", *_COUNTS, "took", "why", "error")
        return data_frame([{n: getattr(r, n) for n in columns} for r in self], columns)


@dataclass(frozen=True)
class CommitMark(Shown):
    """One commit of the table: whether it is in the index, and which sync brought it there.

    Attributes:
        completed: when it completed, in UTC; None while it is in flight.
        record: the sync that absorbed it; None if none has, or if its record is gone.
    """

    instant: str
    action: str
    completed: datetime.datetime | None
    absorbed: bool
    record: SyncRecord | None = None

    @property
    def synced(self) -> datetime.datetime | None:
        """When the sync that absorbed it ended."""
        return self.record.time if self.record else None

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {
            "instant": self.instant,
            "action": self.action,
            "completed": iso(self.completed) if self.completed else None,
            "absorbed": self.absorbed,
            "synced": iso(self.synced) if self.synced else None,
            "record": self.record.as_dict() if self.record else None,
        }


def iso(time: datetime.datetime) -> str:
    """ISO 8601 in UTC: `2025-03-01T12:00:01.123456Z`."""
    utc = time.astimezone(datetime.UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def mark_commits(
    look: Look, frontier: Frontier | None, records: Iterable[SyncRecord], limit: int
) -> tuple[CommitMark, ...]:
    """The newest data-changing commits on the active timeline, newest first.

    Args:
        frontier: that of the index; None if there is no index.
        records: its history, newest first; read only as far as needed.
    """
    instants = [i for i in look.instants if i.changes_data or i.may_change_data]
    shown = sorted(instants, key=_order, reverse=True)[:limit]
    held = frontier.instants if frontier else {}
    absorbed = {i.requested: i.completed for i in shown if held.get(i.requested) == i.completed}
    by = dict(_absorbers({r: c for r, c in absorbed.items() if c}, records))
    return tuple(
        CommitMark(
            instant=i.requested,
            action=i.action,
            completed=look.time_of(i.completed) if i.completed else None,
            absorbed=bool(i.completed) and i.requested in absorbed,
            record=by.get(i.requested),
        )
        for i in shown
    )


def _order(instant: Instant) -> tuple[str, str]:
    # What is in flight is ordered by when it began; else a dead writer would be newest forever.
    return instant.completed or instant.requested, instant.requested


def _absorbers(
    wanted: Mapping[str, str], records: Iterable[SyncRecord]
) -> Iterator[tuple[str, SyncRecord]]:
    """The sync that brought each commit; the latest, if an index was removed and built again."""
    left = dict(wanted)
    for record in records if left else ():
        # By completion time as well: a compaction that was undone keeps its requested time.
        for requested in [r for r, c in left.items() if record.instants.get(r) == c]:
            yield requested, record
            del left[requested]
        if not left:
            return
