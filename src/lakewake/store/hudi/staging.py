"""Chunks on their way into a Hudi table: Parquet files beside it, written by any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakewake.errors import LakewakeError, StoreError
from lakewake.model.chunks import Batch
from lakewake.store import Removed
from lakewake.store.hudi.cells import Cells
from lakewake.store.hudi.layout import CELL, staged, staged_schema


class StagedFile(NamedTuple):
    """A Parquet file of chunks.

    Attributes:
        cells: the digest of the cells that its chunks were assigned to; '' if there are none.
    """

    path: str
    cells: str

    def to_bytes(self) -> bytes:
        """For the result of `HudiStaging.write`."""
        return json.dumps(self).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> StagedFile:
        """The inverse of `to_bytes`."""
        return cls(*json.loads(text))


@dataclass(frozen=True)
class HudiStaging:
    """Where the parts of one batch are written. It can be pickled.

    Attributes:
        cells: the cells of the index; None while a new index has none yet.
    """

    folder: Path
    cells: Cells | None

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks to a Parquet file, and return what finds it.

        Raises:
            StoreError: it cannot be written.
        """
        if not self.folder.is_dir():
            raise StoreError(
                f"executors do not see the folder of the index: {self.folder} is another folder "
                "on their machines, or does not exist there",
                hint="put the store where all machines reach it under the same path",
            )
        path = self.folder / f"{uuid4().hex}.parquet"
        try:
            with pq.ParquetWriter(path, staged_schema(schema), compression="none") as out:
                for batch in rows:
                    out.write_batch(staged(batch, cells_of(batch, self.cells)))
        except LakewakeError:
            raise
        except OSError as error:
            raise StoreError(
                f"rows cannot be written to {path}: {error}",
                hint="check that the folder is writable and the disk has room, then sync again",
            ) from error
        return StagedFile(str(path), self.cells.digest if self.cells else "").to_bytes()

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        nothing = schema.empty_table().to_reader
        return Batch(schema, nothing, removed.deletes, tuple(written), removed.replaced)


def cells_of(chunks: pa.RecordBatch, cells: Cells | None) -> pa.Array:
    """The cell of each chunk; 0 while there are no cells yet."""
    if cells is None or not chunks.num_rows:
        return pa.array([0] * chunks.num_rows, pa.int32())
    return pa.array(cells.of(vectors_of(chunks["_vector"], cells.centroids.shape[1])), pa.int32())


def vectors_of(column: pa.Array | pa.ChunkedArray, dimension: int) -> np.ndarray:
    """A list column as a matrix; zeros for a null vector."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    out = np.zeros((len(column), dimension), np.float32)
    held = column.drop_null()
    if len(held):
        flat = held.flatten().to_numpy(zero_copy_only=False)
        out[np.asarray(column.is_valid())] = flat.astype(np.float32).reshape(-1, dimension)
    return out


def assign(path: str, cells: Cells) -> None:
    """Write a staged file again, with the cell of each chunk."""
    source, target = Path(path), Path(path).with_suffix(".assigned")
    with (
        pq.ParquetFile(source) as file,
        pq.ParquetWriter(target, file.schema_arrow, compression="none") as out,
    ):
        at = file.schema_arrow.get_field_index(CELL)
        for batch in file.iter_batches():
            columns = batch.columns
            columns[at] = cells_of(batch, cells)
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=file.schema_arrow))
    target.rename(source)
