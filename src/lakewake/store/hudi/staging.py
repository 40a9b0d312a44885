"""Chunks on their way into a Hudi table: Parquet files beside it, written by any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from lakewake.store.location import Location


class StagedFile(NamedTuple):
    """A Parquet file of chunks.

    Attributes:
        path: its name in the folder of the index.
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
        location: the folder of the index.
        folder: the folder in it for these parts.
        cells: the cells of the index; None while a new index has none yet.
    """

    location: Location
    folder: str
    cells: Cells | None

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks to a Parquet file, and return what finds it.

        Raises:
            StoreError: it cannot be written.
        """
        if not self.location.sees(self.folder):
            raise StoreError(
                "executors do not see the folder of the index: "
                f"{self.location.address(self.folder)} is another folder "
                "on their machines, or does not exist there",
                hint="put the store where all machines reach it under the same path",
            )
        path = new_part(self.folder)
        try:
            with part_writer(self.location, path, staged_schema(schema)) as out:
                for batch in rows:
                    out.write_batch(staged(batch, cells_of(batch, self.cells)))
        except LakewakeError:
            raise
        except OSError as error:
            raise StoreError(
                f"rows cannot be written to {self.location.address(path)}: {error}",
                hint=self.location.hint,
            ) from error
        return StagedFile(path, self.cells.digest if self.cells else "").to_bytes()

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


def new_part(folder: str) -> str:
    """The name of a new Parquet file."""
    return f"{folder}/{uuid4().hex}.parquet"


def part_writer(location: Location, path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Writes a Parquet file in the folder of the index."""
    return pq.ParquetWriter(
        location.path(path), schema, filesystem=location.files, compression="none"
    )


def opened_part(location: Location, path: str) -> pq.ParquetFile:
    """A Parquet file in the folder of the index."""
    return pq.ParquetFile(location.path(path), filesystem=location.files)


def assigned_name(path: str) -> str:
    """The name of a staged file once each chunk has its cell."""
    return f"{path.removesuffix('.parquet')}.assigned.parquet"


def assign(location: Location, path: str, cells: Cells) -> None:
    """Write a staged file again under another name, with the cell of each chunk."""
    with (
        opened_part(location, path) as file,
        part_writer(location, assigned_name(path), file.schema_arrow) as out,
    ):
        at = file.schema_arrow.get_field_index(CELL)
        for batch in file.iter_batches():
            columns = batch.columns
            columns[at] = cells_of(batch, cells)
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=file.schema_arrow))
