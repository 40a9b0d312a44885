"""Several indexes of one table are synced one after another, and read its changes once.

Each index keeps its own plan, commit and frontier. Indexes share a read if they have absorbed the
same commits and select the same rows: the first of them that follows new ones reads these for all
the others, and the others use its look at the table. One that is behind the others, is built or is
reconciled reads on its own, and so does each if the read for all of them fails: no index depends on
another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from lakewake.model.avro import type_at
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes
from lakewake.model.timeline import Instant, Look
from lakewake.source import SharedRead, Table, TableMoved
from lakewake.sync.parts import IndexParts


@dataclass
class _Kept:
    """A read that indexes share, until none waits for it.

    Attributes:
        taking: the indexes that it was read for and that have not ended their sync.
    """

    look: Look
    absorbed: Mapping[str, str]
    read: SharedRead
    taking: set[str] = field(default_factory=set)


class Round:
    """One sync of each of several indexes, in any order.

    Args:
        members: the indexes by name, and their tables. The parts of an index are only asked for if
            another index of its table reads something.
    """

    def __init__(self, members: Mapping[str, tuple[str, Callable[[], IndexParts]]]) -> None:
        self._members = dict(members)
        self._waiting = dict(members)
        self._kept: list[_Kept] = []
        self._lock = threading.RLock()

    @contextmanager
    def taking_part(self, parts: IndexParts) -> Iterator[IndexParts]:
        """The parts with which an index takes part, until its sync has ended."""
        with self._lock:
            waited = self._waiting.pop(parts.name, None) is not None
        try:
            yield replace(parts, table=cast(Table, _Sharing(parts, self))) if waited else parts
        finally:
            self._release({parts.name})

    def close(self) -> None:
        """Free what has been read."""
        self._release(self._members.keys())

    def _release(self, names: Collection[str]) -> None:
        """Free the reads for which no other index waits."""
        with self._lock:
            for kept in self._kept:
                kept.taking.difference_update(names)
                if not kept.taking:
                    kept.read.close()
            self._kept = [kept for kept in self._kept if kept.taking]

    def read(
        self, parts: IndexParts, look: Look, frontier: Frontier, pending: Sequence[Instant]
    ) -> SharedRead | None:
        """What these commits changed, read for the index and those that share it; None: none do.

        Raises:
            TableMoved: a commit completed since the look; look again.
        """
        with self._lock:
            for kept in self._kept:
                if kept.look is look and parts.name in kept.taking:
                    return kept.read
            others = dict(self._sharing(parts, look, frontier))
            if not others:
                return None
            recipes = [parts.recipe, *others.values()]
            try:
                read = parts.table.read_together(recipes, look, frontier, pending)
            except TableMoved:
                raise
            # Any error: it may be the fault of another index, so this one reads on its own.
            except Exception as error:
                why = str(error).partition("\n")[0] or type(error).__name__
                parts.reporter.say(f"'{parts.name}' reads alone; the shared read failed: {why}")
                return None
            if read is not None:
                self._release(names := {parts.name, *others})
                self._kept.append(_Kept(look, frontier.instants, read, names))
            return read

    def look_for(self, name: str, frontier: Frontier | None) -> Look | None:
        """The look of the read that waits for this index, if it starts where that read does."""
        with self._lock:
            for kept in self._kept:
                if name in kept.taking and frontier and frontier.instants == kept.absorbed:
                    return kept.look
        return None

    def _sharing(
        self, parts: IndexParts, look: Look, frontier: Frontier
    ) -> Iterator[tuple[str, Recipe]]:
        """The waiting indexes of the same table that have absorbed the same commits."""
        table, _ = self._members[parts.name]
        for name, (at, parts_of) in self._waiting.items():
            # Any error: it is raised again when that index is synced.
            with suppress(Exception):
                if at == table and _shares(other := parts_of(), look, frontier, parts.recipe.where):
                    yield name, other.recipe


class _Sharing:
    """The table of one index that takes part in a round."""

    def __init__(self, parts: IndexParts, around: Round) -> None:
        self._parts, self._round = parts, around
        self._looked = False

    def __getattr__(self, name: str) -> Any:
        # All other reads are those of the table itself.
        return getattr(self._parts.table, name)

    def look(self, frontier: Frontier | None) -> Look:
        """The look of the read that waits for this index, the first time; then a new one."""
        first, self._looked = not self._looked, True
        shared = self._round.look_for(self._parts.name, frontier) if first else None
        return shared or self._parts.table.look(frontier)

    def changes(self, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> Changes:
        """What these commits changed, read here or by an index before."""
        read = self._round.read(self._parts, look, frontier, pending)
        return self._parts.table.changes(look, frontier, pending, read)


def _shares(other: IndexParts, look: Look, frontier: Frontier, where: str) -> bool:
    """Whether an index will follow the same commits of the same rows as one with this frontier."""
    index = other.store.open()
    return bool(
        index
        and index.frontier().instants == frontier.instants
        and index.frontier().date == frontier.date
        and other.recipe.where == where
        and not index.recipe().differs_from(other.recipe)
        and all(type_at(look.schema, column) is not None for column in other.recipe.columns)
    )
