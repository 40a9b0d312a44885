"""Which file groups a window of commits touched, before it and after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakewake.model.frontier import Frontier
from lakewake.model.timeline import DUPLICATING, CommitMetadata, FileGroup, Instant, Look, WriteStat


@dataclass(frozen=True)
class Touched:
    """The file groups whose rows a window may have changed.

    The rows of these groups at the window's start and at its end are the same rows but for what the
    window's data operations did: clustering's inputs and outputs always come together.

    Attributes:
        groups: all of them.
        born: those whose first base file was written in the window (copy-on-write).
        replaced: those that hold no row any more at its end.
        first: the base file a group had at the start, as far as a commit of the window names it.
        last: the newest base file that the window wrote to a group.
        needs_before: rows may be gone, or stored twice; otherwise every change shows at the end.
        logged: log files were written, whose partial updates can change a row and keep its version.
    """

    groups: frozenset[FileGroup] = frozenset()
    born: frozenset[FileGroup] = frozenset()
    replaced: frozenset[FileGroup] = frozenset()
    first: Mapping[FileGroup, str] = field(default_factory=dict)
    last: Mapping[FileGroup, str] = field(default_factory=dict)
    needs_before: bool = False
    logged: bool = False

    @property
    def after(self) -> frozenset[FileGroup]:
        """The groups that hold the rows at the end."""
        return self.groups - self.replaced


def touched_by(commits: Sequence[CommitMetadata]) -> Touched:
    """What commits, in completion order, touched. No groups: only maintenance."""
    data = [c for c in commits if not c.is_maintenance]
    groups = {w.group for c in data for w in c.writes} | {g for c in data for g in c.replaced}
    writes = [w for c in commits for w in c.writes if not w.is_log]
    first: dict[FileGroup, WriteStat] = {}
    for write in writes:
        first.setdefault(write.group, write)
    former = {g: w.beside(w.previous_base_file) for g, w in first.items()}
    return Touched(
        groups=frozenset(_with_clustered(groups, commits)),
        born=frozenset(g for g, write in first.items() if write.begins_group),
        replaced=frozenset(g for c in commits for g in c.replaced),
        first={g: path for g, path in former.items() if path},
        last={w.group: w.path for w in writes},
        needs_before=_needs_before(data),
        logged=any(w.is_log for c in data for w in c.writes),
    )


def inserted_at_once(look: Look, frontier: Frontier, pending: Sequence[Instant]) -> bool:
    """Whether a pending commit added rows while another writer was at work.

    An upsert looks up which keys there are; of two at a time neither sees what the other adds, and
    both may store the same new one.
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
    """The groups, and all that clustering in the window joined with them, either way."""
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
        c.replaced or c.operation in DUPLICATING or any(w.deletes or w.is_log for w in c.writes)
        for c in data
    )
