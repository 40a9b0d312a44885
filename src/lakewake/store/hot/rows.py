"""Chunks in memory: their vectors, and the columns that a hit shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.lazy import lazy
from lakewake.store.ranking import HIDDEN, as_matrix

#: Arrow counts the characters of a column with 32 bits unless its type is one of these.
LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that a hit shows."""
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def large(schema: pa.Schema) -> pa.Schema:
    """The same columns with types for any number of characters."""
    return pa.schema([pa.field(f.name, LARGE.get(f.type, f.type)) for f in schema])


@dataclass(frozen=True)
class HeldRows:
    """Chunks with vectors, in any order.

    Attributes:
        vectors: one per chunk, as the index holds them.
        columns: what a hit shows, with the types of `large`.
    """

    vectors: np.ndarray
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.vectors)

    @lazy
    def lengths(self) -> np.ndarray:
        """The lengths of the vectors."""
        squares: np.ndarray = np.einsum("ij,ij->i", self.vectors, self.vectors)
        out: np.ndarray = np.sqrt(squares)
        return out

    @lazy
    def are_first(self) -> bool:
        """Whether each is the first chunk of its text."""
        return not pc.any(pc.not_equal(self.columns["_chunk"], 0)).as_py()

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return int(self.vectors.nbytes + self.columns.nbytes + 4 * len(self))

    def take(self, positions: np.ndarray) -> HeldRows:
        """Some of them."""
        return HeldRows(self.vectors[positions], self.columns.take(as_indices(positions)))

    def closeness(self, metric: str, question: np.ndarray, among: np.ndarray | None) -> np.ndarray:
        """How near each is in single precision, or each of those in `among`; larger is nearer."""
        vectors = self.vectors if among is None else self.vectors[among]
        lengths = self.lengths if among is None else self.lengths[among]
        return scored(metric, products(vectors, question), lengths)


_VECDOT = hasattr(np, "vecdot")


def products(
    vectors: np.ndarray, question: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """The product of each vector with a question, in `out` if that is given.

    One thread computes it: `@` uses several for many vectors, and these wait for one another if
    many searches run at the same time.
    """
    # numpy before 2 has no vecdot; this is a little slower.
    if _VECDOT:
        found: np.ndarray = np.vecdot(vectors, question, out=out)
        return found
    return np.einsum("ij,j->i", vectors, question, out=out)


def scored(metric: str, near: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """How near vectors are, from their products with a question; larger is nearer."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if metric == "cosine":
            near = near / lengths
        elif metric == "l2":
            near = 2 * near - lengths * lengths
    out: np.ndarray = np.where(np.isnan(near), -np.inf, near)
    return out


def as_indices(positions: np.ndarray) -> pa.Array:
    """Positions as Arrow takes them."""
    return pa.array(positions, pa.int64())


def held_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, dimension: int) -> HeldRows:
    """The chunks of these batches that have a vector; `schema` is that of the shown columns."""
    vectors, columns, wide = [], [], large(schema)
    for batch in batches:
        with_vector = batch if batch["_vector"].null_count == 0 else _with_vector(batch)
        vectors.append(as_matrix(with_vector["_vector"], dimension))
        columns.append(with_vector.select(schema.names).cast(wide))
    matrix = np.concatenate(vectors) if vectors else np.empty((0, dimension), np.float32)
    return HeldRows(matrix, one_batch(columns, wide))


def _with_vector(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.is_valid(batch["_vector"]))


def one_batch(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The batches as one: a row of a column in several parts takes much longer to find."""
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    found = table.to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=schema)


def joined(rows: Sequence[HeldRows]) -> HeldRows:
    """All of these as one; `rows` is not empty."""
    if len(rows) == 1:
        return rows[0]
    batches = [one.columns for one in rows]
    return HeldRows(
        np.concatenate([one.vectors for one in rows]), one_batch(batches, batches[0].schema)
    )


def same_content(one: pa.RecordBatch, other: pa.RecordBatch) -> np.ndarray:
    """Which rows are equal in each column. A number that is NaN counts as different."""
    same = np.ones(one.num_rows, bool)
    for first, second in zip(one.columns, other.columns, strict=True):
        same &= _equal(first, second)
    return same


def _equal(first: pa.Array, second: pa.Array) -> np.ndarray:
    if pa.types.is_nested(first.type):
        pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), bool, len(first))
    equal = pc.fill_null(pc.equal(first, second), False)
    both_null = pc.and_(pc.is_null(first), pc.is_null(second))
    mask: np.ndarray = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return mask
