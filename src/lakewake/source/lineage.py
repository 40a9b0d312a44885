"""Which file groups a window of commits touched, before it and after it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import (
    DUPLICATING,
    MAINTENANCE,
    REMOVING,
    CommitMetadata,
    FileGroup,
    Instant,
    Look,
    WriteStat,
    instant_of,
)
from lakewake.source import COMPARE_HINT
from lakewake.source.timeline import partition_columns

#: Up to this many bytes of base files, about 50,000 rows, are read faster by a query that is not
#: compiled.
SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Touched:
    """The file groups whose rows a window may have changed.

    The rows of these groups at the window's start and at its end differ only by what the window's
    data operations did: if clustering's inputs are included, so are its outputs, and vice versa.

    Attributes:
        groups: all of them.
        born: those whose first base file was written in the window (copy-on-write).
        replaced: those that hold no rows at its end.
        first: the base file that a group had at the start, if a commit of the window names it.
        last: the newest base file that the window wrote to a group.
        needs_before: rows may be gone, or stored twice; otherwise every change shows at the end.
        logged: log files were written; their partial updates can change a row and keep its version.
        overtaken: maintenance may have put back older rows, even next to newer ones.
    """

    groups: frozenset[FileGroup] = frozenset()
    born: frozenset[FileGroup] = frozenset()
    replaced: frozenset[FileGroup] = frozenset()
    first: Mapping[FileGroup, str] = field(default_factory=dict)
    last: Mapping[FileGroup, str] = field(default_factory=dict)
    needs_before: bool = False
    logged: bool = False
    overtaken: bool = False

    @property
    def after(self) -> frozenset[FileGroup]:
        """The groups that hold the rows at the end."""
        return self.groups - self.replaced


def is_small(commits: Sequence[CommitMetadata]) -> bool:
    """Whether so little has to be read that compiling the query would take longer than running it.

    Logs say nothing about the size of the files that they change, and commits nothing about the
    size of the groups that they replace.
    """
    files = [w for c in commits for w in c.writes]
    known = all(w.size and not w.is_log for w in files) and not any(c.replaced for c in commits)
    return known and sum(w.size for w in files) <= SMALL_BYTES


def touched_by(commits: Sequence[CommitMetadata], beside: Sequence[CommitMetadata] = ()) -> Touched:
    """What `commits`, in completion order, touched. No groups: only maintenance.

    Args:
        beside: commits absorbed earlier that were in flight at the same time as one of these.
    """
    data = [c for c in commits if not c.is_maintenance]
    groups = {g for c in data for g in c.groups}
    # Hudi never shows a replaced group again, whatever a slow writer puts into it.
    hidden = {g for c in beside for g in c.replaced}
    writes = [w for c in commits for w in c.writes if not w.is_log]
    others = [w for c in beside for w in c.writes if not w.is_log]
    first = _first(writes, others)
    began = {w.group: w.begins_group for w in reversed(writes)}
    return Touched(
        groups=frozenset(_with_clustered(groups, commits)) - hidden,
        born=frozenset(g for g, path in first.items() if not path and began[g]),
        replaced=frozenset(g for c in commits for g in c.replaced),
        first={g: path for g, path in first.items() if path},
        last={w.group: w.path for w in sorted([*others, *writes], key=lambda w: w.instant)},
        needs_before=_needs_before(data),
        logged=any(c.overtaken or any(w.is_log for w in c.writes) for c in data),
        overtaken=any(c.overtaken for c in data),
    )


def _first(writes: Sequence[WriteStat], others: Sequence[WriteStat]) -> dict[FileGroup, str]:
    """The base file that each written group had at the window's start; '' for none."""
    first: dict[FileGroup, str] = {}
    for write in writes:
        first.setdefault(write.group, write.beside(write.previous_base_file))
    for other in others:
        if other.group in first:
            first[other.group] = max(first[other.group], other.path, key=instant_of)
    return first


def beside(look: Look, frontier: Frontier, pending: Sequence[Instant]) -> dict[str, CommitMetadata]:
    """The absorbed commits that were in flight at the same time as one of `pending`.

    Raises:
        HistoryLost: one of them has been archived, so that it is unknown what it did.
    """
    begun = min(i.requested for i in pending)
    found = [r for r, completed in frontier.instants.items() if completed >= begun]
    for requested in found:
        if requested not in look.commits:
            raise HistoryLost(
                f"instant {requested}, absorbed while {begun} was in flight, is archived",
                hint=COMPARE_HINT,
            )
    return {requested: look.commits[requested] for requested in found}


def window_of(
    look: Look, frontier: Frontier, pending: Sequence[Instant], columns: Collection[str] = ()
) -> list[CommitMetadata]:
    """The commits of `pending`, with maintenance marked that is overtaken or changes `columns`."""
    commits = [look.commits[i.requested] for i in pending]
    if not any(c.operation in MAINTENANCE for c in commits):
        return commits
    if look.table.type == "MERGE_ON_READ" and _formatted_timestamps(look) & set(columns):
        return [replace(c, overtaken=c.operation in MAINTENANCE) for c in commits]
    spans = [(i.requested, i.completed or "", look.commits[i.requested]) for i in pending]
    for requested, commit in beside(look, frontier, pending).items():
        spans.append((requested, frontier.instants[requested], commit))
    return [
        replace(commit, overtaken=any(_overtakes(span, i, commit) for span in spans))
        if commit.operation in MAINTENANCE
        else commit
        for i, commit in zip(pending, commits, strict=True)
    ]


def _formatted_timestamps(look: Look) -> frozenset[str]:
    """The timestamps from which partition paths may be formatted.

    Hudi shows the one of a row in a log file as microseconds, and that in a base file as a date
    and time. So a compaction changes it.
    """
    partition = partition_columns(look.table.partition_fields)
    return frozenset(c for c in partition if "timestamp-" in look.schema.get(c, ""))


def _overtakes(
    span: tuple[str, str, CommitMetadata], instant: Instant, maintenance: CommitMetadata
) -> bool:
    """Whether a commit changed what `maintenance` had planned to read.

    A compaction leaves what began after its plan to the next file slice; it can only reorder the
    rows of a writer that was already in flight.
    """
    requested, completed, commit = span
    if requested == instant.requested or not commit.groups & maintenance.groups:
        return False
    if maintenance.operation == "COMPACT":
        return requested < instant.requested < completed
    return requested < (instant.completed or "") and instant.requested < completed


def inserted_at_once(look: Look, frontier: Frontier, pending: Sequence[Instant]) -> bool:
    """Whether a pending commit added rows while another writer was in flight.

    An upsert looks up which keys exist. Of two upserts at the same time, neither sees what the
    other adds, so both may store the same new key.
    """
    maintenance = {r for r, commit in look.commits.items() if commit.is_maintenance}
    others = {**frontier.instants, **look.completed}
    spans = [(r, c) for r, c in others.items() if r not in maintenance]
    adding = (i for i in pending if any(w.inserts for w in look.commits[i.requested].writes))
    return any(
        requested < (i.completed or "") and i.requested < completed
        for i in adding
        if i.requested not in maintenance
        for requested, completed in spans
        if requested != i.requested
    )


def _with_clustered(groups: set[FileGroup], commits: Sequence[CommitMetadata]) -> set[FileGroup]:
    """The groups, and all that clustering in the window connected with them, as input or output."""
    moves = [
        {w.group for w in c.writes} | set(c.replaced)
        for c in commits
        if c.is_maintenance and c.replaced
    ]
    joined = [m for m in moves if m & groups]
    grown = groups.union(*joined)
    return grown if grown == groups else _with_clustered(grown, commits)


def _needs_before(data: Sequence[CommitMetadata]) -> bool:
    return any(
        c.overtaken or c.replaced or adds_rows(c) or any(w.deletes or w.is_log for w in c.writes)
        for c in data
    )


def adds_rows(commit: CommitMetadata) -> bool:
    """Whether a commit may have stored a second copy of a row that the table already holds.

    An upsert looks up where a row is. But a writer whose index has lost that (Flink's state after a
    restart, a changed number of buckets) adds it again.
    """
    added = any(w.inserts or w.begins_group for w in commit.writes)
    return commit.operation in DUPLICATING or (added and not commit.is_maintenance)


def outlives(look: Look, again: Look, kept: Mapping[str, str]) -> bool:
    """Whether every file that the table had at `look` was still there at `again`.

    Args:
        kept: for each clean of `again`, the instant from which on it keeps all visible files.
    """
    if again.table != look.table or look.completed.items() - again.completed.items():
        return False
    # A writer in flight may have replaced a file between what is kept and `look`.
    oldest = min([*look.in_flight, max(look.completed, default="")])
    known = {i.requested for i in look.instants}
    new = [i for i in again.instants if i.requested not in known and i.action in REMOVING]
    return all(i.action == "clean" and "" < kept.get(i.requested, "") <= oldest for i in new)
