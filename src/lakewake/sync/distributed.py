"""Does the work of `prepare.py` on Spark's executors, each with a share of the rows.

Executors write their chunks to the store themselves, as staged writes. Only counts come back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lakewake.config.settings import ModelSettings
from lakewake.embed import Embedder
from lakewake.embed.cache import FILE, MemoryVectorCache, SqliteVectorCache
from lakewake.embed.registry import kept_embedder, model_files, sent_embedder
from lakewake.errors import LakewakeError
from lakewake.model.chunks import Batch
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch, RowId
from lakewake.progress import Reporter, Silent
from lakewake.spark.scratch import own_folder
from lakewake.store import Removed, Staging, StoreReader
from lakewake.sync.prepare import Preparation
from lakewake.sync.spool import Ids
from lakewake.sync.tally import Tally
from lakewake.sync.vectors import VectorSources


@dataclass(frozen=True)
class TaskResult:
    """One executor's staged write, the ids to remove, and its counts."""

    written: bytes
    removed: Removed
    tally: Tally


@dataclass(frozen=True)
class Task:
    """The work on one share of the rows. It can be pickled.

    Attributes:
        model: the settings of the embedder, which each process loads once.
        files: the model's settings that name files, and the files' paths on the driver.
        vectors: a copy of the vector cache on the driver; None if the cache is empty.
    """

    recipe: Recipe
    model: ModelSettings
    index: StoreReader | None
    sources: VectorSources
    quarantine: frozenset[RowId]
    schema: pa.Schema
    staging: Staging
    files: Mapping[str, Path]
    vectors: Path | None

    def __call__(
        self, rows: Iterator[RowBatch], found: Mapping[Path, Path]
    ) -> TaskResult | LakewakeError:
        """Prepare and write the rows.

        Our own errors are returned: Spark would retry a raised one, and report it as text only.
        """
        try:
            return self._made(rows, found)
        except LakewakeError as error:
            return error

    def _made(self, rows: Iterator[RowBatch], found: Mapping[Path, Path]) -> TaskResult:
        # A private cache for new vectors, so that equal texts of a task are embedded once.
        copy = found[self.vectors] if self.vectors else None
        vector_cache = SqliteVectorCache(copy, self.recipe.model)
        sources = replace(self.sources, vector_cache=vector_cache)
        work = Preparation(self.recipe, self._embedder(found), self.index, sources, self.quarantine)
        deletes = Ids()
        ids: list[str] = []
        try:
            with Silent().stage("embed") as stage:
                made = work.index_rows(rows, self.schema, deletes, stage)
                # A new index replaces nothing, and its ids would be as many as its chunks.
                passed = _noting(made, ids) if self.index else made
                written = self.staging.write(self.schema, passed)
        finally:
            vector_cache.close()
        return TaskResult(written, Removed(tuple(deletes), tuple(ids)), work.tally)

    def _embedder(self, found: Mapping[Path, Path]) -> Embedder:
        if self.recipe.vector:
            column = ModelSettings(provider="column", dimension=self.recipe.model.dimension)
            return kept_embedder(column, self.recipe.vector)
        files = {name: found[path] for name, path in self.files.items()}
        return sent_embedder(self.model, files, self.recipe.model)


@contextmanager
def distributed_batch(
    work: Preparation, changes: Changes, staging: Staging, model: ModelSettings, reporter: Reporter
) -> Iterator[Batch]:
    """The whole batch, as staged writes of the executors; `work` gets its counts.

    Raises:
        EmbedError: the embedder failed, or refused too many rows.
        StoreError: executors cannot write to the store.
    """
    assert changes.distributed is not None
    schema = work.schema(changes.payload)
    gone = work.gone(changes)
    work.check_deletes(changes.total)
    with tempfile.TemporaryDirectory(prefix="tasks-", dir=own_folder()) as folder:
        task = _task(work, schema, staging, model, Path(folder))
        files = [*task.files.values(), *([task.vectors] if task.vectors else [])]
        with reporter.stage("embed", changes.total) as stage:
            results = _all_or_raise(changes.distributed(task, files))
            stage.advance(changes.total or 0)
    for result in results:
        work.tally.add(result.tally)
    work.check_refused()
    for result in results:
        gone.add(result.removed.deletes)
    replaced = chain.from_iterable(result.removed.replaced for result in results)
    removed = Removed(gone, tuple(replaced))
    yield staging.batch(schema, [result.written for result in results], removed)


def _noting(rows: Iterator[pa.RecordBatch], ids: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        ids += batch["_id"].to_pylist()
        yield batch


def _task(
    work: Preparation, schema: pa.Schema, staging: Staging, model: ModelSettings, folder: Path
) -> Task:
    embeds = not work.recipe.vector
    copy = folder / FILE
    return Task(
        recipe=work.recipe,
        model=model,
        index=work.index,
        sources=replace(work.sources, vector_cache=MemoryVectorCache()),
        quarantine=frozenset(work.quarantine),
        schema=schema,
        staging=staging,
        files=model_files(model) if embeds else {},
        vectors=copy if embeds and work.sources.vector_cache.copy_to(copy) else None,
    )


def _all_or_raise(outcomes: list[TaskResult | LakewakeError]) -> list[TaskResult]:
    """The results of all tasks; raises the error of the first that failed."""
    results: list[TaskResult] = []
    for outcome in outcomes:
        if isinstance(outcome, LakewakeError):
            raise outcome
        results.append(outcome)
    return results
