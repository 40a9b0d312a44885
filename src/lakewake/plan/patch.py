"""Decides what a batch of rows changes in an index. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lakewake.model.chunks import Chunk, StoredChunk
from lakewake.model.rows import RowBatch, RowId


@dataclass(frozen=True)
class Patch:
    """What a batch of rows changes.

    Attributes:
        upserts: chunks to write, with the position of their row in the batch.
        deletes: ids of chunks to remove.
        rows_changed: rows with any chunk written or removed.
        stored_twice: rows that a plain insert added although the index already had them.
        rows_emptied: rows that have chunks in the index now and none afterwards.
    """

    upserts: tuple[tuple[int, Chunk], ...]
    deletes: tuple[str, ...]
    rows_changed: int
    stored_twice: frozenset[RowId]
    rows_emptied: int = 0

    def without(
        self, rows: Mapping[int, RowId], existing: Mapping[RowId, tuple[StoredChunk, ...]]
    ) -> Patch:
        """The same, but these rows (by position) write nothing and lose all their chunks."""
        gone = tuple(h.id for row in rows.values() for h in existing.get(row, ()))
        return replace(
            self,
            upserts=tuple((n, c) for n, c in self.upserts if n not in rows),
            deletes=tuple(dict.fromkeys(self.deletes + gone)),
        )


def build_patch(
    batch: RowBatch,
    chunks_of: Callable[[int], tuple[Chunk, ...]],
    existing: Mapping[RowId, tuple[StoredChunk, ...]],
    *,
    trust: bool = True,
) -> Patch:
    """Compare rows with their chunks in an index.

    A row whose source and payload are those of the index is left alone, and is not chunked. If its
    text changed, chunks whose own text and payload did not change stay. The first chunk of each
    field is always written, because it records what all of them were made from. Without `trust` in
    the index's own hashes, every row is written again.
    """
    upserts: list[tuple[int, Chunk]] = []
    deletes: list[str] = []
    changed = emptied = 0
    for n, row in enumerate(batch.ids):
        held = existing.get(row, ())
        if trust and _same(batch, n, held):
            continue
        chunks = chunks_of(n)
        wanted = {c.id for c in chunks}
        gone = [h.id for h in held if h.id not in wanted]
        stay = _staying(batch.payload_hashes[n], held) if trust else frozenset()
        upserts += [(n, c) for c in chunks if c.n == 0 or (c.id, c.hash) not in stay]
        deletes += gone
        changed += bool(chunks or gone)
        emptied += bool(held and not chunks)
    twice = batch.appeared & existing.keys()
    return Patch(tuple(upserts), tuple(deletes), changed, twice, emptied)


def _same(batch: RowBatch, n: int, held: tuple[StoredChunk, ...]) -> bool:
    first = [h.source_hash == batch.source_hashes[n] for h in held if h.n == 0]
    return bool(first) and all(first) and len(_staying(batch.payload_hashes[n], held)) == len(held)


def _staying(payload: str, held: tuple[StoredChunk, ...]) -> frozenset[tuple[str, str]]:
    """Chunks, by id and hash, whose payload is up to date."""
    return frozenset((h.id, h.hash) for h in held if h.payload_hash == payload)
