"""Turns changed rows into one batch for a store: chunk, reuse known vectors, embed the rest.

The batch is spooled to a temporary file, so memory stays flat, and the commit that follows is short
and can be tried again without embedding anything twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakewake.chunk import chunk_row
from lakewake.chunk.split import Splitter
from lakewake.embed import LOT, Embedder
from lakewake.errors import EmbedError, HistoryLost, TableError
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
from lakewake.sync.vectors import TextVectors, VectorSources, column_vectors, unusable_vectors

#: Up to this many refused rows do not fail a sync, however small the batch.
REFUSED_ROWS = 10
#: Most batches of rows that are held for one call of an embedder that asks for many texts.
GROUPED = 32


@dataclass(frozen=True)
class _Draft:
    """Some rows, what the index holds of them, and what they change in it."""

    rows: RowBatch
    existing: Mapping[RowId, tuple[StoredChunk, ...]]
    patch: Patch

    @property
    def texts(self) -> dict[str, str]:
        """The distinct texts that the patch writes, by hash."""
        return {chunk.hash: chunk.text for _, chunk in self.patch.upserts}


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
            self.check_refused()
            yield Batch(schema, lambda: _reopened(path), deletes)

    def estimate(self, changes: Changes) -> Tally:
        """What `batch` would do, without embedding or writing anything."""
        unknown: set[str] = set()
        self.gone(changes)
        for rows in changes.rows:
            patch = self._patch(rows, self._existing(rows.ids))
            self._count(patch)
            texts = {chunk.hash for _, chunk in patch.upserts}
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
        for group in self._groups(batches):
            drafts = [self._drafted(rows) for rows in group]
            for draft, vectors in self._completed(drafts, stage):
                deletes.add(draft.patch.deletes)
                yield from index_rows(
                    draft.rows, draft.patch, vectors, schema, self.recipe.model.dimension
                )

    def _groups(self, batches: Iterable[RowBatch]) -> Iterator[list[RowBatch]]:
        """Batches of rows whose texts are embedded together, as many as the embedder asks for."""
        most = 1 if self.recipe.vector else self._text_vectors.lot
        group: list[RowBatch] = []
        for rows in batches:
            group.append(rows)
            if len(group) == GROUPED or sum(map(len, group)) >= most or most <= LOT:
                yield group
                group = []
        if group:
            yield group

    def _drafted(self, rows: RowBatch) -> _Draft:
        """What the rows change in the index, before anything is embedded."""
        again = self._quarantined(rows.ids)
        self.tally.seen_again |= again
        # The index has no chunk of a quarantined row, so it cannot show that the row was there.
        self.tally.stored_twice |= rows.appeared & again
        existing = self._existing(rows.ids)
        patch = self._patch(rows, existing)
        if rows.vectors is None:
            # By row, not by text: another row may rightly hold the text that broken bytes became.
            unread = [n for n, _ in patch.upserts if rows.ids[n] in rows.undecodable]
            aside = dict.fromkeys(unread, "its text is not valid UTF-8")
            patch = self._set_aside(rows, patch, existing, aside)
        return _Draft(rows, existing, patch)

    def _completed(
        self, drafts: Sequence[_Draft], stage: Stage
    ) -> Iterator[tuple[_Draft, np.ndarray]]:
        """The drafts without the rows that must be set aside, and the vectors of the new chunks."""
        texts = {h: t for draft in drafts if not self.recipe.vector for h, t in draft.texts.items()}
        rows = 0 if self.recipe.vector else sum(len(draft.rows) for draft in drafts)
        by_hash, new = self._text_vectors.get(texts, rows, stage)
        for draft in drafts:
            if draft.rows.vectors is not None:
                yield self._of_column(draft, stage)
                continue
            done = self._without_refused(draft)
            here = done.texts.keys()
            # A text that several batches hold is embedded for the first of them.
            self.tally.reused += len(done.patch.upserts) - len(new & here)
            new -= here
            self._count(done.patch)
            yield done, np.array([by_hash[c.hash] for _, c in done.patch.upserts], np.float32)

    def _of_column(self, draft: _Draft, stage: Stage) -> tuple[_Draft, np.ndarray]:
        unusable = unusable_vectors(draft.rows, draft.patch, self.recipe)
        self.tally.other_length += len(unusable.other_length)
        done = self._reduced(draft, unusable.reasons)
        stage.advance(len(done.rows))
        self.tally.reused += len(done.patch.upserts)
        self._count(done.patch)
        return done, column_vectors(done.rows, done.patch, self.recipe)

    def _without_refused(self, draft: _Draft) -> _Draft:
        refused = self._text_vectors.refused
        aside = {n: refused[c.hash] for n, c in draft.patch.upserts if c.hash in refused}
        return self._reduced(draft, aside)

    def _reduced(self, draft: _Draft, aside: Mapping[int, str]) -> _Draft:
        patch = self._set_aside(draft.rows, draft.patch, draft.existing, aside)
        return replace(draft, patch=patch)

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

    def check_refused(self) -> None:
        """Raise if so large a share of the rows was refused that the settings must be wrong.

        That is more than a tenth and more than `REFUSED_ROWS`, or all rows of a new index because
        their vectors have another length. Rows that were quarantined before do not count.

        Raises:
            EmbedError: too many texts were refused.
            TableError: too many vectors cannot be used.
        """
        new = {row: why for row, why in self.tally.refused.items() if row not in self.quarantine}
        refused, changed = len(new), self.tally.rows_changed
        all_odd = not self.index and 0 < changed == self.tally.other_length
        if not all_odd and (refused <= REFUSED_ROWS or refused * 10 <= changed):
            return
        row, why = next(iter(new.items()))
        such_as = f"{refused} of {changed} rows, such as {row.key!r}: {why.reason}"
        if self.recipe.vector:
            raise TableError(
                f"column {self.recipe.vector!r} cannot be used in {such_as}",
                hint="set `dimension` to the length of the vectors in the table, "
                "or correct these vectors; only a few bad rows are quarantined",
            )
        raise EmbedError(
            f"the embedder refused {such_as}",
            hint="check the model's settings; only a few bad rows are quarantined",
        )

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


def _reopened(path: Path) -> pa.RecordBatchReader:
    # Arrow aligns files to 8 bytes. Lance needs decimals at 16, and crashes the process otherwise.
    file = pa.OSFile(str(path))
    if hasattr(pa.ipc, "Alignment"):
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
        return pa.ipc.open_stream(file, options=aligned)
    # Arrow before 21 cannot align what it reads. What it copies is aligned.
    read = pa.ipc.open_stream(file)
    copies = (batch.take(pa.array(range(len(batch)), pa.int32())) for batch in read)
    return pa.RecordBatchReader.from_batches(read.schema, copies)
