"""Turns changed rows into one batch for a store: chunk, reuse known vectors, embed the rest.

The batch is spooled to a temporary file, so memory stays flat, and the commit that follows is short
and can be tried again without embedding anything twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakewake.chunk import chunk_row
from lakewake.chunk.split import Splitter
from lakewake.embed import Embedder
from lakewake.errors import EmbedError, HistoryLost
from lakewake.model.chunks import VECTOR_FIELD, Batch, Chunk, StoredChunk, index_schema
from lakewake.model.frontier import Refusal
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch, RowId
from lakewake.plan.patch import Patch, build_patch
from lakewake.progress import Reporter, Stage
from lakewake.source import COMPARE_HINT
from lakewake.store import StoreReader
from lakewake.sync.deletes import DeleteGuard
from lakewake.sync.index_rows import index_rows
from lakewake.sync.spool import Ids, spooling
from lakewake.sync.tally import Tally
from lakewake.sync.vectors import TextVectors, VectorSources, column_vectors

#: Up to this many refused rows do not fail a sync, however small the batch.
REFUSED_ROWS = 10


class Preparation:
    """Turns the changes of one sync into a batch.

    Args:
        index: the version of the index that the batch is for; None: a new index.
        quarantine: the quarantined rows. The tally records which of them were read again.
        guard: is asked before rows are removed.
    """

    def __init__(
        self,
        recipe: Recipe,
        embedder: Embedder,
        index: StoreReader | None,
        sources: VectorSources,
        quarantine: AbstractSet[RowId] = frozenset(),
        guard: DeleteGuard | None = None,
    ) -> None:
        self.guard = guard
        self.recipe = recipe
        self.index = index
        self.sources = sources
        self.quarantine = quarantine
        self._embedder = embedder
        self.tally = Tally()
        self._text_vectors = TextVectors(embedder, sources, self.tally)

    @contextmanager
    def batch(self, changes: Changes, reporter: Reporter) -> Iterator[Batch]:
        """The whole batch, on disk while the context lasts.

        Raises:
            EmbedError: the embedder failed, or refused too many rows.
        """
        with ExitStack() as opened:
            with spooling():
                # A file without a name is removed when the process ends, however that happens.
                file = opened.enter_context(tempfile.TemporaryFile(prefix="lakewake-"))
                path = Path(f"/dev/fd/{file.fileno()}")
                schema, deletes = self._spool(changes, path, reporter)
            check_refused(self.tally, self.quarantine)
            yield Batch(schema, lambda: _reopened(path), deletes)

    def estimate(self, changes: Changes) -> Tally:
        """What `batch` would do, without embedding or writing anything."""
        unknown: set[str] = set()
        self.gone(changes)
        for rows in changes.rows:
            patch = self._patch(rows, self._existing(rows.ids))
            self._count(patch)
            texts = _texts(patch).keys()
            new = set() if rows.vectors is not None else texts - self.sources.vectors(texts).keys()
            self.tally.reused += len(patch.upserts) - len(new - unknown)
            unknown |= new
        self.tally.to_embed = len(unknown)
        return self.tally

    def _spool(self, changes: Changes, path: Path, reporter: Reporter) -> tuple[pa.Schema, Ids]:
        deletes = self.gone(changes)
        batches = iter(changes.rows)
        with reporter.stage("read", changes.total):
            first = next(batches, None)
        schema = self.schema(first.payload.schema if first else changes.payload)
        self.check_deletes(changes.total)
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_stream(file, schema) as out,
            reporter.stage("embed", changes.total) as stage,
        ):
            rows = chain([first] if first else [], batches)
            for made in self.index_rows(rows, schema, deletes, stage):
                out.write_batch(made)
        return schema, deletes

    def schema(self, payload: pa.Schema | None) -> pa.Schema:
        """The columns of the batch. A new index takes its payload columns from `payload`."""
        if self.index:
            return self.index.schema()
        return index_schema(self.recipe, payload or pa.schema([]))

    def index_rows(
        self, batches: Iterable[RowBatch], schema: pa.Schema, deletes: Ids, stage: Stage
    ) -> Iterator[pa.RecordBatch]:
        """The rows' chunks as the index stores them. Ids to remove are added to `deletes`."""
        for rows in batches:
            patch, vectors = self._made(rows, stage)
            deletes.add(patch.deletes)
            yield from index_rows(rows, patch, vectors, schema, self.recipe.model.dimension)

    def _made(self, rows: RowBatch, stage: Stage) -> tuple[Patch, np.ndarray]:
        """What the rows change in the index, and the vectors of the new chunks."""
        again = self._quarantined(rows.ids)
        self.tally.seen_again |= again
        # The index has no chunk of a quarantined row, so it cannot show that the row was there.
        self.tally.stored_twice |= rows.appeared & again
        existing = self._existing(rows.ids)
        patch = self._patch(rows, existing)
        if rows.vectors is not None:
            vectors = column_vectors(rows, patch, self.recipe)
            stage.advance(len(rows))
            self.tally.reused += len(patch.upserts)
        else:
            # By row, not by text: another row may rightly hold the text that broken bytes became.
            unread = [n for n, _ in patch.upserts if rows.ids[n] in rows.undecodable]
            aside = dict.fromkeys(unread, "its text is not valid UTF-8")
            patch = self._set_aside(rows, patch, existing, aside)
            by_hash, new = self._text_vectors.get(_texts(patch), len(rows), stage)
            refused = self._text_vectors.refused
            aside = {n: refused[c.hash] for n, c in patch.upserts if c.hash in refused}
            patch = self._set_aside(rows, patch, existing, aside)
            self.tally.reused += len(patch.upserts) - len(new & _texts(patch).keys())
            vectors = np.array([by_hash[c.hash] for _, c in patch.upserts], np.float32)
        self._count(patch)
        return patch, vectors

    def _quarantined(self, ids: Iterable[RowId]) -> set[RowId]:
        return {row for row in ids if row in self.quarantine} if self.quarantine else set()

    def _existing(self, ids: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        return self.index.existing(ids) if self.index and ids else {}

    def _patch(self, rows: RowBatch, existing: Mapping[RowId, tuple[StoredChunk, ...]]) -> Patch:
        if self.guard:
            self.guard.meet(rows.ids)
        return build_patch(
            rows, lambda n: self._chunks(rows, n), existing, trust=self.sources.trusted
        )

    def _count(self, patch: Patch) -> None:
        self.tally.rows_changed += patch.rows_changed
        self.tally.rows_emptied += patch.rows_emptied
        self.tally.chunks_upserted += len(patch.upserts)
        self.tally.chunks_deleted += len(patch.deletes)
        self.tally.stored_twice |= patch.stored_twice

    def gone(self, changes: Changes) -> Ids:
        """The chunks of rows that are gone from the table. Called before any row is embedded.

        Raises:
            HistoryLost: the deleted version is older than the indexed one.
        """
        deletes = Ids()
        named = {row: changes.removed.get(row, "") for row in changes.deleted}
        for removed in chain([named], changes.gone):
            self.tally.seen_again |= self._quarantined(removed)
            held = self._existing(removed.keys())
            _refuse_older(held, removed)
            deletes.add([chunk.id for chunks in held.values() for chunk in chunks])
            self.tally.rows_deleted += len(held)
        self.tally.chunks_deleted += len(deletes)
        return deletes

    def check_deletes(self, coming: int | None = 0) -> None:
        """Ask the guard whether the rows counted so far may be removed.

        Args:
            coming: rows that are still to be read; None: unknown.

        Raises:
            TooManyDeletes: too many rows would be removed.
        """
        if self.guard:
            self.guard.check(self.tally.removed(coming))

    @cached_property
    def _splitter(self) -> Splitter:
        model = self.recipe.model
        return Splitter(self.recipe.chunking, model.max_tokens, self._embedder.tokenizer)

    def _chunks(self, rows: RowBatch, n: int) -> tuple[Chunk, ...]:
        if rows.vectors is None:
            texts = {name: column[n] for name, column in rows.texts.items()}
            return chunk_row(rows.ids[n], texts, self._splitter.split)
        if not rows.vectors[n].is_valid:
            return ()
        return (Chunk(rows.ids[n], VECTOR_FIELD, 0, "", rows.source_hashes[n]),)

    def _set_aside(
        self,
        rows: RowBatch,
        patch: Patch,
        existing: Mapping[RowId, tuple[StoredChunk, ...]],
        aside: Mapping[int, str],
    ) -> Patch:
        """Quarantine rows, given by position with the reason. No chunk of them stays."""
        for n, reason in aside.items():
            self.tally.refused[rows.ids[n]] = Refusal(reason, rows.instants[n])
        return patch.without({n: rows.ids[n] for n in aside}, existing)


def _refuse_older(
    held: Mapping[RowId, tuple[StoredChunk, ...]], removed: Mapping[RowId, str]
) -> None:
    """Raise if a deleted version is older than the indexed one: the table must hold a newer copy.

    The table then held the row twice, unnoticed because one copy had no text. A deleted version
    that is newer than the indexed one is normal: of versions with equal values, the index keeps the
    first instant.
    """
    for row, instant in removed.items():
        if instant and any(instant < chunk.instant for chunk in held.get(row, ())):
            raise HistoryLost(
                f"the deleted version of row {row.key!r} is older than the indexed one: "
                "the table held it twice",
                hint=COMPARE_HINT,
            )


def check_refused(tally: Tally, quarantine: Collection[RowId]) -> None:
    """Raise if so large a share of the rows was refused that the model's settings must be wrong.

    Rows that were quarantined before do not count.

    Raises:
        EmbedError: more than a tenth of the rows, and more than `REFUSED_ROWS`, were refused.
    """
    new = {row: why for row, why in tally.refused.items() if row not in quarantine}
    refused = len(new)
    if refused > REFUSED_ROWS and refused * 10 > tally.rows_changed:
        row, why = next(iter(new.items()))
        raise EmbedError(
            f"the embedder refused {refused} of {tally.rows_changed} rows, such as "
            f"{row.key!r}: {why.reason}",
            hint="check the model's settings; only a few bad rows are quarantined",
        )


def _reopened(path: Path) -> pa.RecordBatchReader:
    # Arrow aligns files to 8 bytes. Lance needs decimals at 16, and crashes the process otherwise.
    aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
    return pa.ipc.open_stream(pa.OSFile(str(path)), options=aligned)


def _texts(patch: Patch) -> dict[str, str]:
    """The distinct texts that a patch writes, by hash."""
    return {chunk.hash: chunk.text for _, chunk in patch.upserts}
