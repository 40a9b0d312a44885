"""From changed rows to one batch for a store: chunk, reuse what is known, embed the rest.

The batch is spooled to a temporary file, so that memory stays flat and the commit that follows is
short and can be tried again without embedding anything a second time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakewake.chunk import chunk_row
from lakewake.chunk.split import Splitter
from lakewake.embed import Embedder
from lakewake.errors import StoreError, TableError
from lakewake.model.chunks import Batch, Chunk, index_schema
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, RowBatch, RowId
from lakewake.plan.patch import Patch, build_patch
from lakewake.progress import Reporter, Stage
from lakewake.store import StoreReader
from lakewake.store.embeddings import EmbeddingStore

#: Texts per call of the embedder: what is embedded is kept, and shown, in steps of this size.
EMBED_TEXTS = 128


@dataclass
class Tally:
    """Counts of one sync. `embedded` counts over all its attempts, the rest is of the last one."""

    rows_changed: int = 0
    rows_deleted: int = 0
    chunks_upserted: int = 0
    chunks_deleted: int = 0
    embedded: int = 0
    reused: int = 0
    to_embed: int = 0
    stored_twice: set[RowId] = field(default_factory=set)


class Preparation:
    """Turns the changes of one sync into a batch.

    `index` is the version of the index that the batch is for (None: a new one), `known` an index
    whose vectors may be copied.
    """

    def __init__(
        self,
        recipe: Recipe,
        embedder: Embedder,
        embeddings: EmbeddingStore,
        index: StoreReader | None,
        known: StoreReader | None,
    ) -> None:
        self._recipe = recipe
        self._embedder = embedder
        self._embeddings = embeddings
        self._index = index
        self._vectors_of = known
        self.tally = Tally()

    @contextmanager
    def batch(self, changes: Changes, reporter: Reporter) -> Iterator[Batch]:
        """The whole batch, on disk while the context lasts."""
        with tempfile.TemporaryDirectory(prefix="lakewake-") as folder:
            path = Path(folder) / "batch.arrow"
            try:
                schema, deletes = self._spool(changes, path, reporter)
            except OSError as error:
                raise StoreError(
                    f"cannot write the batch to {folder}: {error.strerror or error}",
                    hint="free some space, or set TMPDIR to a folder that has it",
                ) from error
            yield Batch(schema, lambda: _reopened(path), deletes)

    def price(self, changes: Changes) -> Tally:
        """What `batch` would do, without embedding or writing anything."""
        unknown: set[str] = set()
        for rows in changes.rows:
            patch = self._patch(rows)
            texts = _texts(patch)
            new = set() if rows.vectors is not None else texts.keys() - self._known(texts).keys()
            self.tally.reused += len(patch.upserts) - len(new - unknown)
            unknown |= new
        self.tally.to_embed = len(unknown)
        self._gone(changes)
        return self.tally

    def _spool(
        self, changes: Changes, path: Path, reporter: Reporter
    ) -> tuple[pa.Schema, tuple[str, ...]]:
        batches = iter(changes.rows)
        with reporter.stage("read", changes.total):
            first = next(batches, None)
        schema = self._schema(changes, first)
        deletes: list[str] = []
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_stream(file, schema) as out,
            reporter.stage("embed", changes.total) as stage,
        ):
            for rows in chain([first] if first else [], batches):
                patch = self._patch(rows)
                deletes += patch.deletes
                if patch.upserts:
                    vectors = self._vectors(rows, patch, stage)
                    out.write_batch(_index_rows(rows, patch, vectors, schema))
                else:
                    stage.advance(len(rows))
        return schema, (*deletes, *self._gone(changes))

    def _schema(self, changes: Changes, first: RowBatch | None) -> pa.Schema:
        if self._index:
            return self._index.schema()
        payload = first.payload.schema if first else changes.payload or pa.schema([])
        return index_schema(self._recipe, payload)

    def _patch(self, rows: RowBatch) -> Patch:
        existing = self._index.existing(rows.ids) if self._index else {}
        patch = build_patch(rows, lambda n: self._chunks(rows, n), existing)
        self.tally.rows_changed += patch.rows_changed
        self.tally.chunks_upserted += len(patch.upserts)
        self.tally.chunks_deleted += len(patch.deletes)
        self.tally.stored_twice |= patch.stored_twice
        return patch

    def _gone(self, changes: Changes) -> list[str]:
        """The chunks of rows that are gone from the table."""
        held = self._index.existing(changes.deleted) if self._index and changes.deleted else {}
        deletes = [chunk.id for chunks in held.values() for chunk in chunks]
        self.tally.rows_deleted += len(held)
        self.tally.chunks_deleted += len(deletes)
        return deletes

    @cached_property
    def _splitter(self) -> Splitter:
        model = self._recipe.model
        return Splitter(self._recipe.chunking, model.max_tokens, self._embedder.tokenizer)

    def _chunks(self, rows: RowBatch, n: int) -> tuple[Chunk, ...]:
        if rows.vectors is None:
            texts = {name: column[n] for name, column in rows.texts.items()}
            return chunk_row(rows.ids[n], texts, self._splitter.pieces)
        if not rows.vectors[n].is_valid:
            return ()
        return (Chunk(rows.ids[n], "vector", 0, "", rows.source_hashes[n]),)

    def _vectors(self, rows: RowBatch, patch: Patch, stage: Stage) -> np.ndarray:
        """One vector for each upsert, in order."""
        if rows.vectors is not None:
            stage.advance(len(rows))
            return _column_vectors(rows, patch, self._recipe)
        texts = _texts(patch)
        known = self._known(texts)
        todo = sorted(texts.keys() - known.keys(), key=lambda h: (len(texts[h]), h))
        self.tally.reused += len(patch.upserts) - len(todo)
        shown = 0
        for start in range(0, len(todo), EMBED_TEXTS):
            some = todo[start : start + EMBED_TEXTS]
            known |= self._embed({h: texts[h] for h in some})
            done = len(rows) * (start + len(some)) // len(todo)
            stage.advance(done - shown)
            shown = done
        stage.advance(len(rows) - shown)
        return np.stack([known[c.hash] for _, c in patch.upserts])

    def _known(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        found = self._vectors_of.vectors(texts.keys()) if self._vectors_of and texts else {}
        rest = texts.keys() - found.keys()
        return {**found, **self._embeddings.get(rest)} if rest else found

    def _embed(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        vectors = self._embedder.embed(list(texts.values()))
        self.tally.embedded += len(texts)
        made = dict(zip(texts, vectors, strict=True))
        self._embeddings.put(made)
        return made


def _reopened(path: Path) -> pa.RecordBatchReader:
    # Arrow files are aligned to 8 bytes; Lance wants decimals at 16 and ends the process otherwise.
    aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
    return pa.ipc.open_stream(pa.memory_map(str(path)), options=aligned)


def _texts(patch: Patch) -> dict[str, str]:
    """The distinct texts that a patch writes, by hash."""
    return {chunk.hash: chunk.text for _, chunk in patch.upserts}


def _column_vectors(rows: RowBatch, patch: Patch, recipe: Recipe) -> np.ndarray:
    """The vectors that stand in the table itself."""
    assert rows.vectors is not None
    wanted = rows.vectors.take(pa.array([n for n, _ in patch.upserts], pa.int32()))
    lengths = set(wanted.value_lengths().to_pylist())
    if lengths - {recipe.model.dimension}:
        raise TableError(
            f"vectors in column {recipe.vector!r} have {min(lengths)} to {max(lengths)} numbers, "
            f"not {recipe.model.dimension}",
            hint="set `dimension` to what the table holds",
        )
    flat = wanted.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    if not np.isfinite(flat).all():
        raise TableError(
            f"column {recipe.vector!r} holds vectors with nulls, NaN or infinite numbers",
            hint="correct them in the table",
        )
    vectors: np.ndarray = flat.reshape(-1, recipe.model.dimension)
    return vectors


def _index_rows(
    rows: RowBatch, patch: Patch, vectors: np.ndarray, schema: pa.Schema
) -> pa.RecordBatch:
    """The chunks as rows of the index."""
    at = [n for n, _ in patch.upserts]
    chunks = [chunk for _, chunk in patch.upserts]
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    payload = rows.payload.take(pa.array(at, pa.int32()))
    columns: dict[str, Collection[object]] = {
        "_id": [c.id for c in chunks],
        "_key": [c.row.key for c in chunks],
        "_partition": [c.row.partition for c in chunks],
        "_field": [c.field for c in chunks],
        "_chunk": [c.n for c in chunks],
        "_hash": [c.hash for c in chunks],
        "_source_hash": [rows.source_hashes[n] for n in at],
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
