"""Removes an index from Qdrant for good, whatever other processes do at the same time.

The frontier point is changed first. From then on no commit and no build lands: each of them waits
for a state of the point that will not come again. The collection of the frontier goes last, so a
drop that was interrupted finds what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakewake.errors import StoreError, StoreUnreachable
from lakewake.model.drop import Dropped
from lakewake.store.qdrant.fence import Fence, Head
from lakewake.store.qdrant.upkeep import generation_number


@dataclass(frozen=True)
class Dropping:
    """Finds and removes what belongs to one index.

    Attributes:
        collection: how the names of its collections begin.
    """

    fence: Fence
    collection: str

    def drop(self, *, dry_run: bool = False) -> Dropped:
        """Remove it, or only find it.

        Raises:
            StoreError: the collections belong to another index, or cannot be removed.
        """
        points, head = self.fence.points, self._head()
        names = points.names()
        own = sorted(n for n in names if generation_number(self.collection, n) is not None)
        frontier = [n for n in names if n == self.fence.collection]
        alias = [self.collection] if self._aliased() else []
        known = {*own, *frontier}
        near = (f"{self.collection}.", self.collection)
        foreign = sorted(n for n in names if n.startswith(near[0]) or n == near[1])
        found = Dropped(
            removed=(*alias, *own, *frontier), foreign=tuple(n for n in foreign if n not in known)
        )
        if not dry_run and found.removed:
            self._close(head)
            if alias:
                points.remove_alias(self.collection)
            for name in (*own, *frontier):
                points.drop(name)
        return found

    def _head(self) -> Head | None:
        """The frontier point; None if there is none, or nobody can read it."""
        try:
            return self.fence.read()
        except StoreUnreachable:
            raise
        except StoreError:
            if not self.fence.is_damaged():
                # It belongs to another index.
                raise
            return None

    def _close(self, head: Head | None) -> None:
        """Give the point a state that nobody has seen, without a version."""
        while head is not None:
            closed = Head(self.fence.name, generation=head.generation + 1)
            if self.fence.move(head, closed):
                return
            head = self._head()

    def _aliased(self) -> bool:
        """Whether the alias with the plain name points at a generation of the index."""
        to = self.fence.points.alias(self.collection)
        return to is not None and generation_number(self.collection, to) is not None
