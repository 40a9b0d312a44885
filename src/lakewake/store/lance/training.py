"""Shows how far Lance is with an approximate index, by what Lance reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from lance.progress import IndexProgress

from lakewake.progress import Counted, Reporter, Steps, watched

#: Lance's stages, in our words.
NAMES = {
    "train_ivf": "train partitions",
    "train_quantizer": "train codes",
    "shuffle": "assign chunks",
    "merge_partitions": "write partitions",
}
#: Training may end before the last round, so its number is not a total.
ROUNDS = "iterations"


@contextmanager
def training(reporter: Reporter) -> Iterator[Callable[[IndexProgress], None] | None]:
    """Yields what Lance calls with its progress; None if nobody watches."""
    seen = watched(reporter)
    if seen is None:
        yield None
        return
    with closing(Steps(seen)) as steps:
        yield lambda event: steps.show({event.stage: counted(event)})


def counted(event: IndexProgress) -> Counted:
    """How far a stage of Lance is."""
    name = NAMES.get(event.stage, event.stage.replace("_", " "))
    total = None if event.unit == ROUNDS else event.total
    return Counted(name, event.completed or 0, total)
