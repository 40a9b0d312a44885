"""Turns changed rows into one batch for a store: chunk, reuse known vectors, embed the rest.

The batch is spooled to a temporary file, so memory stays flat, and the commit that follows is short
and can be tried again without embedding anything twice.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from lakewake.errors import (
    EmbedError,
    HistoryLost,
    TableError,
    TextRefused,
)
from lakewake.model.chunks import VECTOR_FIELD, Batch, Chunk, StoredChunk, index_schema
from lakewake.model.frontier import Refusal
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch, RowId
from lakewake.model.weights import cuts, weights
from lakewake.plan.patch import Patch, build_patch
from lakewake.progress import Reporter, Stage
from lakewake.source import COMPARE_HINT
from lakewake.store import StoreReader
from lakewake.sync.deletes import DeleteGuard
from lakewake.sync.spool import Ids, spooling
from lakewake.sync.tally import Tally
from lakewake.sync.vectors import VectorSources

#: Texts per call of the embedder. New vectors are kept, and progress is shown, in such steps.
EMBED_TEXTS = 128
#: Characters per call, for long texts that the model takes whole.
EMBED_CHARACTERS = 4_000_000
#: Chunks that are written at once, and about how many bytes.
WRITE_ROWS, WRITE_BYTES = 10_000, 16 * 1024 * 1024
#: Bytes of a chunk besides its text, vector and payload.
CHUNK_BYTES = 500
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
        # By text hash: a text that was refused in one batch of rows is not tried again in the next.
        self._refused: dict[str, str] = {}
        self.tally = Tally()

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
            sizes = _written_bytes(rows, patch, self.recipe.model.dimension)
            for start, count in cuts(sizes, WRITE_ROWS, WRITE_BYTES):
                some = patch.upserts[start : start + count]
                yield _index_rows(rows, some, vectors[start : start + count], schema)

    def _made(self, rows: RowBatch, stage: Stage) -> tuple[Patch, np.ndarray]:
        """What the rows change in the index, and the vectors of the new chunks."""
        again = self._quarantined(rows.ids)
        self.tally.seen_again |= again
        # The index has no chunk of a quarantined row, so it cannot show that the row was there.
        self.tally.stored_twice |= rows.appeared & again
        existing = self._existing(rows.ids)
        patch = self._patch(rows, existing)
        if rows.vectors is not None:
            vectors = _column_vectors(rows, patch, self.recipe)
            stage.advance(len(rows))
            self.tally.reused += len(patch.upserts)
        else:
            # By row, not by text: another row may rightly hold the text that broken bytes became.
            unread = [n for n, _ in patch.upserts if rows.ids[n] in rows.undecodable]
            aside = dict.fromkeys(unread, "its text is not valid UTF-8")
            patch = self._set_aside(rows, patch, existing, aside)
            by_hash, new = self._vectors(rows, patch, stage)
            aside = {n: self._refused[c.hash] for n, c in patch.upserts if c.hash in self._refused}
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

    def _vectors(
        self, rows: RowBatch, patch: Patch, stage: Stage
    ) -> tuple[dict[str, np.ndarray], set[str]]:
        """Vectors by text hash, without refused texts, and the hashes that are new."""
        texts = {h: t for h, t in _texts(patch).items() if h not in self._refused}
        known = self.sources.vectors(texts.keys())
        todo = sorted(texts.keys() - known.keys(), key=lambda h: (len(texts[h]), h))
        done, shown, new = 0, 0, set[str]()
        for some in _in_any_order(todo, texts):
            kept = self.sources.kept(some)
            fresh = {h: texts[h] for h in some if h not in kept}
            known |= kept | (self._embed(fresh) if fresh else {})
            new |= fresh.keys()
            done += len(some)
            stage.advance(len(rows) * done // len(todo) - shown)
            shown = len(rows) * done // len(todo)
        stage.advance(len(rows) - shown)
        return known, new

    def _embed(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        hashes = list(texts)
        try:
            vectors = self._embedder.embed(list(texts.values()))
        except TextRefused as refusal:
            self._refused |= {hashes[n]: why for n, why in refusal.reasons.items()}
            if refusal.vectors is None:
                return self._embed({h: t for h, t in texts.items() if h not in self._refused})
            vectors = refusal.vectors
        self.tally.embedded += len(texts)
        made = {h: v for h, v in zip(hashes, vectors, strict=True) if h not in self._refused}
        self.sources.vector_cache.put(made)
        return made

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


def _in_any_order(hashes: list[str], texts: Mapping[str, str]) -> list[list[str]]:
    """Hashes in groups that are embedded at once, in random order.

    Another sync may be embedding the same texts. In the same order, both would embed all of them.
    In random order, each finds most of the vectors that the other has kept.
    """
    sizes = np.array([len(texts[h]) for h in hashes])
    groups = [hashes[n : n + count] for n, count in cuts(sizes, EMBED_TEXTS, EMBED_CHARACTERS)]
    random.shuffle(groups)
    return groups


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


def _column_vectors(rows: RowBatch, patch: Patch, recipe: Recipe) -> np.ndarray:
    """The vectors from the table's own vector column."""
    assert rows.vectors is not None
    wanted = rows.vectors.take(pa.array([n for n, _ in patch.upserts], pa.int32()))
    lengths = set(wanted.value_lengths().to_pylist())
    if lengths - {recipe.model.dimension}:
        raise TableError(
            f"vectors in column {recipe.vector!r} have {min(lengths)} to {max(lengths)} numbers, "
            f"not {recipe.model.dimension}",
            hint="set `dimension` to the length of the vectors in the table",
        )
    flat = wanted.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    if not np.isfinite(flat).all():
        raise TableError(
            f"column {recipe.vector!r} holds vectors with nulls, NaN or infinite numbers",
            hint="correct these vectors in the table, then sync again",
        )
    vectors: np.ndarray = flat.reshape(-1, recipe.model.dimension)
    return vectors


def _written_bytes(rows: RowBatch, patch: Patch, dimension: int) -> np.ndarray:
    """About how many bytes each chunk takes in the index. Each chunk carries the payload."""
    # A batch without columns does not know how many rows it has.
    payload = weights(rows.payload) if rows.payload.num_columns else np.zeros(len(rows))
    own = [payload[n] + 4 * len(chunk.text) for n, chunk in patch.upserts]
    return np.array(own, np.float64) + CHUNK_BYTES + 4 * dimension


def _index_rows(
    rows: RowBatch, upserts: Sequence[tuple[int, Chunk]], vectors: np.ndarray, schema: pa.Schema
) -> pa.RecordBatch:
    """The chunks as rows of the index."""
    at = [n for n, _ in upserts]
    chunks = [chunk for _, chunk in upserts]
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    payload = rows.payload.take(pa.array(at, pa.int32()))
    columns: dict[str, Collection[object]] = {
        "_id": [c.id for c in chunks],
        "_key": [c.row.key for c in chunks],
        "_partition": [c.row.partition for c in chunks],
        "_field": [c.field for c in chunks],
        "_chunk": [c.n for c in chunks],
        "_hash": [c.hash for c in chunks],
        # In the first chunk only, so that the others stay when text elsewhere in the row changes.
        "_source_hash": ["" if c.n else rows.source_hashes[n] for n, c in upserts],
        "_payload_hash": [rows.payload_hashes[n] for n in at],
        "_instant": [rows.instants[n] for n in at],
        "_text": [None if rows.vectors is not None else c.text for c in chunks],
        "_vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        "_checkpoint": [None] * len(chunks),
        **{name: payload.column(name) for name in payload.schema.names},
    }
    arrays = [_typed(columns[f.name], f) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(values: Collection[object], field: pa.Field) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == field.type else values.cast(field.type)
    return pa.array(values, field.type)
