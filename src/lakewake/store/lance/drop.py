"""Removes a Lance index for good, whatever other processes do at the same time.

Lance has no lock. A sync that still runs may add a version to a generation after its files were
removed, and a builder may finish a generation that nobody has seen yet. So every generation that
exists, and the next one, is marked first (see `generations`). The marks stay, and the upkeep of an
index that is built later removes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lakewake.errors import StoreError
from lakewake.model.drop import Dropped
from lakewake.store.lance.generations import DROPPED, Generations, dataset_name, generation_number

#: What is in the folder of a generation.
VERSIONS, LATEST = "_versions", "_latest.manifest"
OWN = (
    *("data", "_indices", "_transactions", "_deletions", "_refs", "_words"),
    *(LATEST, VERSIONS),
)


@dataclass(frozen=True)
class Dropping:
    """Finds and removes what belongs to one index.

    Attributes:
        is_foreign: whether the folder of a generation holds somebody else's dataset.
    """

    generations: Generations
    is_foreign: Callable[[int], bool]

    def found(self) -> Dropped:
        """What belongs to the index, and what only looks like it."""
        generations = self.generations
        # Also raises if the location cannot be reached.
        generations.check()
        ours, others = self._folders()
        address = generations.location.address
        held = [dataset_name(generations.name, n) for n in ours if self._held(n)]
        files = self._files()
        foreign = [*others, *self._foreign_files(), *(f for n in ours for f in self._inside(n))]
        marks = [self._mark(n) for n in ours if generations.is_dropped(n)]
        if held or files:
            marks = [self._mark(n) for n in self._marked(ours)]
        return Dropped(
            removed=tuple(map(address, [*held, *files])),
            marks=tuple(map(address, marks)),
            foreign=tuple(map(address, foreign)),
        )

    def drop(self) -> Dropped:
        """Remove it.

        Raises:
            StoreError: some of it is left.
        """
        found = self.found()
        if not found.removed:
            return found
        ours, _ = self._folders()
        for number in self._marked(ours):
            self.generations.mark_dropped(number)
        location = self.generations.location
        for file in self._files():
            location.remove(file) if file.endswith(".here") else location.discard("", [file])
        for number in ours:
            self.clear(number)
        if left := self.found().removed:
            raise StoreError(
                f"{left[0]} cannot be removed",
                landed="the index is dropped, but some of its files are left",
                hint="check that the folder is writable, then run the same command again",
            )
        return found

    def clear(self, number: int) -> None:
        """Remove what is ours of a generation, except for its mark."""
        location, dataset = self.generations.location, dataset_name(self.generations.name, number)
        versions = f"{dataset}/{VERSIONS}"
        # Manifests first: a generation without them does not count, even if this is killed.
        location.discard(versions, [n for n in location.names(versions) if n != DROPPED])
        for name in self._held(number):
            if name not in (VERSIONS, LATEST):
                location.remove(f"{dataset}/{name}")
        if LATEST in location.names(dataset):
            location.discard(dataset, [LATEST])

    def _folders(self) -> tuple[list[int], list[str]]:
        """The numbers of our generations, and the names of folders that look like one."""
        numbers = self.generations.numbers()
        others = [n for n in numbers if self._is_other(n)]
        names = [dataset_name(self.generations.name, n) for n in others]
        return [n for n in numbers if n not in others], names

    def _is_other(self, number: int) -> bool:
        """Whether there is a file or a dataset that is not ours."""
        names = self.generations.location.names(dataset_name(self.generations.name, number))
        if not names:
            return bool(self.generations.location.read(dataset_name(self.generations.name, number)))
        return self.generations.whole(number) and self.is_foreign(number)

    def _marked(self, ours: list[int]) -> list[int]:
        """The generations to mark: those that exist, and the one that may be in the making."""
        return [*ours, max([*self.generations.numbers(), 0]) + 1]

    def _mark(self, number: int) -> str:
        return f"{dataset_name(self.generations.name, number)}/{VERSIONS}/{DROPPED}"

    def _held(self, number: int) -> list[str]:
        """The names of what is ours in the folder of a generation, apart from its mark."""
        dataset = dataset_name(self.generations.name, number)
        location = self.generations.location
        names = [n for n in location.names(dataset) if n in OWN]
        only = [n for n in location.names(f"{dataset}/{VERSIONS}") if n != DROPPED]
        return [n for n in names if n != VERSIONS or only]

    def _inside(self, number: int) -> Iterator[str]:
        dataset = dataset_name(self.generations.name, number)
        names = self.generations.location.names(dataset)
        return (f"{dataset}/{name}" for name in sorted(names) if name not in OWN)

    def _files(self) -> list[str]:
        """The small files of the index, and marks of its staged writes."""
        name = re.escape(self.generations.name)
        draft, mark = r"\.[0-9a-f]{32}\.", rf"\.{name}\.[0-9a-f]{{32}}\.here"
        own = re.compile(rf"({draft})?{name}\.(json|deleted)|{mark}")
        names = self.generations.location.names()
        pointer = f"{self.generations.name}.json"
        return sorted(
            n for n in names if own.fullmatch(n) and (n != pointer or self._owns_pointer())
        )

    def _owns_pointer(self) -> bool:
        """Whether the pointer is one. A damaged one is, if there are generations of the index."""
        try:
            return bool(self.generations.read_pointer() or self._folders()[0])
        except ValueError:
            return bool(self._folders()[0])

    def _foreign_files(self) -> list[str]:
        """Names that begin like those of the index, but are not."""
        name, files = self.generations.name, self._files()
        return sorted(
            found
            for found in self.generations.location.names()
            if found.startswith(f"{name}.")
            and found not in files
            and found not in (f"{name}.history", f"{name}.hot")
            and generation_number(name, found) is None
        )
