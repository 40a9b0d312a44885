"""Makes the batch of one attempt, and commits it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from lakewake.errors import ConfigError, StoreError
from lakewake.model.chunks import Batch
from lakewake.model.frontier import Frontier
from lakewake.model.rows import Changes
from lakewake.progress import Stage
from lakewake.store import Retrainable
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


def commit(
    parts: IndexParts, situation: Situation, batch: Batch, then: Frontier, chunks: int
) -> None:
    """Write rows, deletes and frontier in one commit. `chunks` is how many chunks there are."""
    with parts.reporter.stage("write", chunks) as stage:
        counted = replace(batch, rows=lambda: _advancing(batch, stage))
        if situation.plan.new_generation:
            parts.store.create(parts.recipe, counted, then, after=situation.generation)
        else:
            assert situation.frontier is not None
            parts.store.commit(counted, expect=situation.frontier, then=then)


def _advancing(batch: Batch, stage: Stage) -> pa.RecordBatchReader:
    """The rows of a batch; the stage advances as they are read."""

    def rows() -> Iterator[pa.RecordBatch]:
        with batch.rows() as reader:
            for some in reader:
                yield some
                stage.advance(some.num_rows)

    return pa.RecordBatchReader.from_batches(batch.schema, rows())


def maintain(parts: IndexParts) -> None:
    """Do the store's upkeep. The commit has landed, so a failure here does not fail the sync."""
    try:
        parts.store.maintain()
    except (StoreError, ConfigError) as error:
        parts.reporter.say(f"upkeep of '{parts.name}' is left for the next time: {error.fact}")


def retrainable(parts: IndexParts) -> Retrainable:
    """The store, if its cells can be trained again.

    Raises:
        ConfigError: they cannot.
    """
    if isinstance(parts.store, Retrainable):
        return parts.store
    raise ConfigError(
        f"index '{parts.name}' has no cells to train: it is not in the lake",
        hint="sync without --retrain: upkeep keeps the index of this store in shape",
    )
