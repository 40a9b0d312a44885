"""Makes the batch of one attempt, and commits it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakewake.errors import StoreError
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.rows import Changes
from lakewake.sync.distributed import distributed_batch
from lakewake.sync.parts import IndexParts
from lakewake.sync.prepare import Preparation
from lakewake.sync.situation import Situation


@contextmanager
def prepared_batch(
    parts: IndexParts, situation: Situation, work: Preparation, changes: Changes
) -> Iterator[Batch]:
    """The batch, prepared by executors if there are many rows, otherwise in this process."""
    if changes.distributed is None or parts.model is None:
        with work.batch(changes, parts.reporter) as batch:
            yield batch
        return
    after = situation.generation if situation.plan.new_generation else None
    with (
        parts.store.staging(after) as staging,
        distributed_batch(work, changes, staging, parts.model, parts.reporter) as batch,
    ):
        yield batch


def commit(parts: IndexParts, situation: Situation, batch: Batch, then: Frontier) -> None:
    """Write rows, deletes and frontier in one commit."""
    if situation.plan.new_generation:
        parts.store.create(parts.recipe, batch, then, after=situation.generation)
    else:
        assert situation.frontier is not None
        parts.store.commit(batch, expect=situation.frontier, then=then)


def maintain(parts: IndexParts) -> None:
    """Do the store's upkeep. The commit has landed, so a failure here does not fail the sync."""
    try:
        parts.store.maintain()
    except StoreError as error:
        parts.reporter.say(f"upkeep of '{parts.name}' is left for the next time: {error.fact}")
