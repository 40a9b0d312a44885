"""Checks vectors: embeds some texts again and compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa

from lakewake.embed import Embedder
from lakewake.errors import TextRefused
from lakewake.model.rows import RowId
from lakewake.progress import Stage
from lakewake.store import StoreReader

COLUMNS = ("_partition", "_key", "_hash", "_text", "_vector")
#: Chunks in a sample. If 1 % of the vectors are wrong, it finds one with a probability of 0.92.
SAMPLE = 250
#: The same text on another machine or in another batch may differ in the last digits.
ALIKE = 0.999


class Vectors(Enum):
    """How many vectors `verify` checks."""

    NONE = "none"
    SAMPLE = "sample"
    ALL = "all"


@dataclass
class Checked:
    """What a check of vectors found: how many it saw, and the rows and texts with a wrong one."""

    chunks: int = 0
    rows: set[RowId] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)


def check_vectors(index: StoreReader, embedder: Embedder, how: Vectors, stage: Stage) -> Checked:
    """Compare vectors of an index with new ones of the same texts."""
    checked, metric = Checked(), index.recipe().metric
    for batch in _chosen(index, how):
        wrong = _unlike(batch, embedder, metric)
        rows = zip(batch["_partition"].to_pylist(), batch["_key"].to_pylist(), strict=True)
        for row, text_hash, bad in zip(rows, batch["_hash"].to_pylist(), wrong, strict=True):
            if bad:
                checked.rows.add(RowId(*row))
                checked.hashes.add(text_hash)
        checked.chunks += batch.num_rows
        stage.advance(batch.num_rows)
    return checked


def _chosen(index: StoreReader, how: Vectors) -> Iterator[pa.RecordBatch]:
    if how is Vectors.ALL:
        return index.scan(COLUMNS)
    return index.sample(SAMPLE, COLUMNS) if how is Vectors.SAMPLE else iter(())


def _unlike(batch: pa.RecordBatch, embedder: Embedder, metric: str = "cosine") -> np.ndarray:
    """For each chunk, whether its vector differs from a new one of its text."""
    held = np.stack(batch["_vector"].to_numpy(zero_copy_only=False)).astype(np.float64)
    texts = batch["_text"].to_pylist()
    try:
        made = embedder.embed([t or "" for t in texts]).astype(np.float64)
    except TextRefused as refusal:
        # A refused text cannot be compared. Its row is quarantined, or soon will be.
        fine = [n for n in range(len(texts)) if n not in refusal.reasons]
        out = np.zeros(len(texts), bool)
        if fine:
            out[fine] = _unlike(batch.take(pa.array(fine)), embedder, metric)
        return out
    long, longer = np.linalg.norm(held, axis=1), np.linalg.norm(made, axis=1)
    lengths = long * longer
    both_empty = lengths == 0
    cosine = (held * made).sum(axis=1) / np.where(both_empty, 1, lengths)
    unlike: np.ndarray = np.where(both_empty, (held != made).any(axis=1), cosine < ALIKE)
    if metric != "cosine":
        # These depend on the length of a vector too.
        unlike |= np.minimum(long, longer) < ALIKE * np.maximum(long, longer)
    return unlike
