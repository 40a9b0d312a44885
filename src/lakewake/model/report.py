"""What a run did. The same object is returned, printed, and shown as `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakewake.model.plan import Action
from lakewake.model.reads import NO_READS, Reads
from lakewake.model.rows import RowId
from lakewake.show.notebook import Shown
from lakewake.show.redact import without_secrets

if TYPE_CHECKING:
    from lakewake.errors import LakewakeError
    from lakewake.model.canaries import Canaries
    from lakewake.model.history import SyncRecord
    from lakewake.model.hot import HotStatus
    from lakewake.model.recall import Retrained, Searching

#: How many row ids a report lists; the full count is beside the list.
LISTED = 100


@dataclass(frozen=True)
class PlanReport(Shown):
    """What the next sync would do, and how much.

    Attributes:
        refused: why it would be refused unless deletes are allowed; empty if it would not be.
        new_generation: the index would be written again from the whole table.
    """

    index: str
    action: Action
    why: str
    pending: tuple[str, ...]
    rows_changed: int
    rows_deleted: int
    to_embed: int
    reused: int
    from_instant: str
    to_instant: str
    refused: str = ""
    new_generation: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The object that `plan --json` prints for each index."""
        return {
            "index": self.index,
            "action": self.action.value,
            "why": self.why,
            "pending": list(self.pending),
            "rows_changed": self.rows_changed,
            "rows_deleted": self.rows_deleted,
            "to_embed": self.to_embed,
            "reused": self.reused,
            "from_instant": self.from_instant,
            "to_instant": self.to_instant,
            "refused": self.refused,
        }


@dataclass(frozen=True)
class SyncReport(Shown):
    """What one sync did.

    Attributes:
        rows_changed: rows whose text, vector or payload differs from what the index held.
        embedded: texts the embedder received.
        reused: chunks written with a vector that was already known.
        tokens: what the embedding service counted; estimated if it does not. 0: there is none.
        seconds: per stage, and `total`.
        instants: requested → completion time of the commits that it brought into the index.
        reads: how much of the table it read, and how much there is.
        retrained: how the retrain that was asked for ended; None if none was.
        canaries: how well the canaries were answered afterwards; None if there are none.
    """

    index: str
    action: Action
    why: str
    rows_changed: int = 0
    rows_deleted: int = 0
    chunks_upserted: int = 0
    chunks_deleted: int = 0
    embedded: int = 0
    reused: int = 0
    quarantined: int = 0
    from_instant: str = ""
    to_instant: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    instants: Mapping[str, str] = field(default_factory=dict)
    reads: Reads = NO_READS
    retrained: Retrained | None = None
    canaries: Canaries | None = None
    tokens: int = 0

    @property
    def did_something(self) -> bool:
        """Whether the sync moved the index, or embedded texts for it before another sync did."""
        return self.action is not Action.NOTHING or self.embedded > 0

    def plus(self, later: SyncReport) -> SyncReport:
        """This sync and one right after it, as one."""
        if later.action is Action.NOTHING:
            return self
        rows = ("rows_changed", "rows_deleted", "quarantined")
        counts = (*rows, "chunks_upserted", "chunks_deleted", "embedded", "reused", "tokens")
        return replace(
            self,
            why=f"{self.why}; {later.why}",
            to_instant=later.to_instant,
            instants={**self.instants, **later.instants},
            reads=self.reads.plus(later.reads),
            canaries=later.canaries or self.canaries,
            seconds={
                k: self.seconds.get(k, 0) + later.seconds.get(k, 0)
                for k in {**self.seconds, **later.seconds}
            },
            **{c: getattr(self, c) + getattr(later, c) for c in counts},
        )

    def as_dict(self) -> dict[str, Any]:
        """The object that `sync --json` prints for each index."""
        return {
            "index": self.index,
            "action": self.action.value,
            "why": self.why,
            "rows_changed": self.rows_changed,
            "rows_deleted": self.rows_deleted,
            "chunks_upserted": self.chunks_upserted,
            "chunks_deleted": self.chunks_deleted,
            "embedded": self.embedded,
            "reused": self.reused,
            "quarantined": self.quarantined,
            "from_instant": self.from_instant,
            "to_instant": self.to_instant,
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "reads": asdict(self.reads),
            **({"tokens": self.tokens} if self.tokens else {}),
            **({"retrained": asdict(self.retrained)} if self.retrained else {}),
            **({"canaries": self.canaries.as_dict()} if self.canaries else {}),
        }


@dataclass(frozen=True)
class SyncedTogether:
    """What a sync of several indexes did.

    Attributes:
        reports: of the indexes whose sync succeeded, in order.
        failed: index name → the error of each one that failed.
    """

    reports: tuple[SyncReport, ...] = ()
    failed: Mapping[str, LakewakeError] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The object that `sync --json` prints."""
        first = next(iter(self.failed.items()), None)
        error = {"index": first[0], **first[1].as_dict()} if first else {}
        return {"indexes": [report.as_dict() for report in self.reports], **error}


@dataclass(frozen=True)
class VerifyReport(Shown):
    """Whether index and table agree, at one instant.

    Attributes:
        pending: rows that changed since the index's frontier; not a fault.
        duplicated: rows that the table holds more than once; not a fault either.
        vectors_checked: chunks whose text was embedded again to compare.
        repaired: rows that were repaired before this comparison.
        date: the day on which the rows were selected; '' if the day does not matter.
        limit: the index holds only this many rows, of a first try, and no row counts as missing;
            0: it holds all.
    """

    index: str
    instant: str
    rows: int
    chunks: int
    pending: int = 0
    quarantined: int = 0
    missing: tuple[RowId, ...] = ()
    orphaned: tuple[RowId, ...] = ()
    stale: tuple[RowId, ...] = ()
    duplicated: tuple[RowId, ...] = ()
    wrong_model: int = 0
    vectors_checked: int = 0
    repaired: int = 0
    date: str = ""
    limit: int = 0

    @property
    def agrees(self) -> bool:
        """Whether there is no fault. Pending rows and duplicates in the table do not count."""
        return not (self.missing or self.orphaned or self.stale or self.wrong_model)

    def as_dict(self) -> dict[str, Any]:
        """The object that `verify --json` prints for each index."""
        out: dict[str, Any] = {
            "index": self.index,
            "instant": self.instant,
            "agrees": self.agrees,
            "rows": self.rows,
            "chunks": self.chunks,
            "pending": self.pending,
            "quarantined": self.quarantined,
        }
        for name in ("missing", "orphaned", "stale", "duplicated"):
            ids: tuple[RowId, ...] = getattr(self, name)
            out[name] = [{"partition": i.partition, "key": i.key} for i in ids[:LISTED]]
            out[f"{name}_count"] = len(ids)
        out["wrong_model"] = self.wrong_model
        out["vectors_checked"] = self.vectors_checked
        out["repaired"] = self.repaired
        return out | _selected(date=self.date, limit=self.limit)


@dataclass(frozen=True)
class IndexDescription:
    """What an index records about itself.

    Attributes:
        address: opens it without a configuration; '' if its store does not allow that.
        table: where its table is; '' if an older version of Lakewake wrote the index.
        table_name: the name of the table in Hudi.
        built: whether there is an index at all.
        instant: the newest table commit that it holds.
        date: the day on which its rows were selected; '' if the day does not matter.
        limit: it holds only this many rows, of a first try; 0: it holds all.
    """

    index: str
    store: str
    table: str
    table_name: str = ""
    built: bool = False
    rows: int = 0
    chunks: int = 0
    generation: int = 0
    instant: str = ""
    address: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    limit: int = 0

    def __post_init__(self) -> None:
        for name in ("table", "store", "address"):
            object.__setattr__(self, name, without_secrets(getattr(self, name)))

    def as_dict(self) -> dict[str, Any]:
        """The object that `list --json` prints for each index."""
        value = {k: v for k, v in asdict(self).items() if k not in ("date", "limit")}
        return value | {"recipe": dict(self.recipe)} | _selected(date=self.date, limit=self.limit)


@dataclass(frozen=True)
class StatusReport(Shown):
    """How far an index is behind its table, and what it holds.

    Attributes:
        built: whether there is an index at all.
        lag_commits: completed, data-changing instants the index has not absorbed.
        lag_seconds: age of the oldest of them, or of what undid commits; 0 if there is none.
            For a commit dated in the future, the age of its file.
        ahead_seconds: how far such a commit is dated ahead of this machine's clock.
        would: the action the next sync would take, and why.
        freshness_limit: how many seconds the index may be behind; None: no limit was set.
        last_sync: the last one that did something, or failed.
        searching: how it is searched by vector; None if there is no index.
        hot: what this process holds of it in memory; None if it was not asked.
        canaries: how well the canaries were answered the last time; None if they never were.
        where: the condition that selects its rows; '': all are selected.
        date: the day on which they were selected; '' if the day does not matter.
        limit: it holds only this many rows, of a first try; 0: it holds all.
    """

    index: str
    built: bool
    table: str
    store: str
    instant: str
    newest_instant: str
    lag_commits: int
    lag_seconds: float
    rows: int
    chunks: int
    generation: int
    duplicates: int
    quarantined: int
    model: Mapping[str, Any]
    would: Action
    why: str
    freshness_limit: float | None = None
    last_sync: SyncRecord | None = None
    ahead_seconds: float = 0.0
    searching: Searching | None = None
    hot: HotStatus | None = None
    canaries: Canaries | None = None
    where: str = ""
    date: str = ""
    limit: int = 0

    def __post_init__(self) -> None:
        for name in ("table", "store", "why"):
            object.__setattr__(self, name, without_secrets(getattr(self, name)))

    @property
    def fresh(self) -> bool:
        """Whether it is built, and not further behind than it may be."""
        limit = self.freshness_limit
        return self.built and (limit is None or self.lag_seconds <= limit)

    @property
    def in_step(self) -> bool:
        """Whether it is built, has absorbed every commit, and a sync would do nothing."""
        return self.built and self.lag_commits == 0 and self.would is Action.NOTHING

    def as_dict(self) -> dict[str, Any]:
        """The object that `status --json` prints for each index."""
        return {
            "index": self.index,
            "built": self.built,
            "in_step": self.in_step,
            "table": self.table,
            "store": self.store,
            "instant": self.instant,
            "newest_instant": self.newest_instant,
            "lag_commits": self.lag_commits,
            "lag_seconds": round(self.lag_seconds, 1),
            "ahead_seconds": round(self.ahead_seconds, 1),
            "rows": self.rows,
            "chunks": self.chunks,
            "generation": self.generation,
            "duplicates": self.duplicates,
            "quarantined": self.quarantined,
            "model": dict(self.model),
            "would": self.would.value,
            "why": self.why,
            "fresh": self.fresh,
            "freshness_limit": self.freshness_limit,
            "last_sync": self.last_sync.as_dict() if self.last_sync else None,
            "searching": self.searching.as_dict() if self.searching else None,
            "hot": self.hot.as_dict() if self.hot else None,
            **({"canaries": self.canaries.as_dict()} if self.canaries else {}),
            **_selected(where=self.where, date=self.date, limit=self.limit),
        }


def _selected(**given: str | int) -> dict[str, str | int]:
    """How the rows of an index were selected; what does not apply is left out."""
    return {name: value for name, value in given.items() if value}
