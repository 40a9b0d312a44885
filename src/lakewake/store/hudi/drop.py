"""Removes an index in the lake for good, whatever other processes do at the same time.

Commits take the lock, so none is under way. A builder takes no lock: the drop claims the number
that it wants, and so its table never becomes a generation. That claim and the lock stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from lakewake.errors import StoreError
from lakewake.model.drop import Dropped
from lakewake.store.hudi.generations import PINS, STAGING, WORDS, Generations, reaching
from lakewake.store.hudi.layout import CELL
from lakewake.store.hudi.lock import LOCK, Check

_CLAIM = re.compile(r"g([1-9][0-9]*)\.json")
_TABLE = re.compile(r"g[1-9][0-9]*-[0-9a-f]{12}")
_SEARCHING = re.compile(r"searching-g[1-9][0-9]*\.json")
#: A small file whose writer was killed before it was whole.
_DRAFT = re.compile(r"\.[0-9a-f]{32}(\..+)?")
#: What is in the folder of a table: its metadata, and a folder for each cell.
_IN_TABLE = re.compile(rf"\.hoodie|{CELL}=.*")
_FOLDERS = (STAGING, PINS, WORDS)


class Names(NamedTuple):
    """The names in the folder of an index, by what a drop does with them."""

    removed: list[str]
    marks: list[str]
    foreign: list[str]


@dataclass(frozen=True)
class Dropping:
    """Finds and removes what belongs to the index in a folder."""

    generations: Generations

    def found(self) -> Dropped:
        """What belongs to the index, and what only is in its folder."""
        address, names = self.generations.location.address, self._names()
        return Dropped(*(tuple(map(address, some)) for some in names))

    def drop(self, check: Check) -> Dropped:
        """Remove it, while the lock is held.

        Raises:
            StoreError: some of it is left.
            StaleFrontier: the lock was lost.
        """
        before = self.found()
        while not self.generations.is_dropped():
            check()
            # A builder may claim its number first: then that generation is dropped too.
            self.generations.claim_for_nothing(self.generations.highest() + 1)
        for name in self._names().removed:
            check()
            self._remove(name)
        left = self.found()
        if left.removed:
            raise StoreError(
                f"{left.removed[0]} cannot be removed",
                landed="the index is dropped, but some of its files are left",
                hint="check that the folder is writable, then run the same command again",
            )
        return Dropped(before.removed, left.marks, before.foreign)

    def _names(self) -> Names:
        location, name = self.generations.location, self.generations.name
        with reaching(location, name):
            names = sorted(location.names())
            if not names:
                location.check()
            own = [n for n in names if self._is_own(n)]
            foreign = [n for n in names if n not in (*own, LOCK, f"{name}.history", f"{name}.hot")]
            foreign += [f for n in own if _TABLE.fullmatch(n) for f in self._foreign_inside(n)]
            marks = self._marks(own)
            removed = [n for n in own if n not in marks and self._is_held(n)]
        return Names(removed, [*marks, *(n for n in names if n == LOCK and own)], foreign)

    def _marks(self, own: list[str]) -> list[str]:
        """The claim of a drop, if that is the newest claim."""
        claims = [n for n in own if _CLAIM.fullmatch(n)]
        if not claims or not self.generations.is_dropped():
            return []
        return [max(claims, key=lambda n: int(n[1 : -len(".json")]))]

    def _is_own(self, name: str) -> bool:
        patterns = (_CLAIM, _TABLE, _SEARCHING, _DRAFT)
        return (
            name in _FOLDERS
            or name == f"{self.generations.name}.deleted"
            or any(pattern.fullmatch(name) for pattern in patterns)
        )

    def _is_held(self, name: str) -> bool:
        """Whether there is anything of ours at a name, and not only what somebody put there."""
        if not _TABLE.fullmatch(name):
            return True
        inside = self.generations.location.names(name)
        return not inside or any(map(_IN_TABLE.fullmatch, inside))

    def _foreign_inside(self, table: str) -> list[str]:
        names = sorted(self.generations.location.names(table))
        return [f"{table}/{n}" for n in names if not _IN_TABLE.fullmatch(n)]

    def _remove(self, name: str) -> None:
        location = self.generations.location
        if name in _FOLDERS:
            location.remove(name)
        elif not _TABLE.fullmatch(name):
            location.discard("", [name])
        elif not self._foreign_inside(name):
            location.remove(name)
        else:
            for inside in location.names(name):
                if _IN_TABLE.fullmatch(inside):
                    location.remove(f"{name}/{inside}")
