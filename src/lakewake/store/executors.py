"""Machines that do parts of a store's upkeep. What they are is up to the caller."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executors(Protocol):
    """Machines that run tasks of a store."""

    @property
    def parallel(self) -> int:
        """How many tasks they run at the same time."""

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """The result of each task, in the order of the tasks.

        Tasks and results are pickled. A task may run twice, if a machine fails.

        Raises:
            StoreError: a task failed, or no machine can run it.
        """


#: The executors for work on this many chunks; None: this process does it alone.
Helpers = Callable[[int], Executors | None]


def nobody(chunks: int = 0) -> None:
    """No executors: this process does everything."""


def grouped(sizes: Mapping[int, int], groups: int, *, least: int = 1) -> list[tuple[int, ...]]:
    """The keys of `sizes` in up to this many groups of about the same size.

    Each group holds at least `least`, if all of them together do.
    """
    largest_first = sorted(sizes, key=lambda key: (-sizes[key], key))
    seeds = sum(size >= least for size in sizes.values())
    heap = [(0, n) for n in range(max(1, min(groups, seeds)))]
    found: list[list[int]] = [[] for _ in heap]
    for key in largest_first:
        held, n = heapq.heappop(heap)
        found[n].append(key)
        heapq.heappush(heap, (held + sizes[key], n))
    return [tuple(sorted(group)) for group in found if group]
