"""Parts of a batch, written as Lance fragments by several machines before the commit.

They are in the folder of the dataset that they are for. A fragment that no commit names is
invisible, and is removed together with old versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from lance import FragmentMetadata
from lance.fragment import write_fragments

from lakewake.errors import StoreError
from lakewake.model.chunks import Batch
from lakewake.store import Removed
from lakewake.store.lance.reader import FOREIGN, brief
from lakewake.store.location import Location


@dataclass(frozen=True)
class LanceStaging:
    """Where the parts of one batch are written.

    Attributes:
        dataset: the address of the dataset that the fragments are for.
        location: the store's own folder.
        mark: a file in it; a machine that does not see the file has a different folder there.
        mode: how Lance writes them: `create` for a dataset that does not exist yet.
    """

    dataset: str
    location: Location
    mark: str
    mode: str

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks as fragments that no version contains yet.

        Raises:
            StoreError: they cannot be written, or this machine does not see the store's folder.
        """
        self._check_shared()
        first = next(rows, None)
        if first is None:
            return b"[]"
        source = Source(schema, chain([first], rows))
        try:
            fragments = write_fragments(
                source.reader(),
                self.dataset,
                schema=schema,
                mode=self.mode,
                storage_options=self.location.options,
            )
        except FOREIGN as error:
            source.raise_own()
            raise StoreError(
                f"rows cannot be written to {self.dataset}: {brief(error)}",
                hint="check that executors may write there and that it has room, then sync again",
            ) from error
        return json.dumps([f.to_json() for f in fragments]).encode()

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        nothing = schema.empty_table().to_reader
        return Batch(schema, nothing, removed.deletes, tuple(written), removed.replaced)

    def _check_shared(self) -> None:
        try:
            shared = self.location.read(self.mark) is not None
        except OSError as error:
            raise StoreError(
                f"executors cannot reach {self.location.address()}: {error}",
                hint=self.location.hint,
            ) from error
        if not shared:
            raise StoreError(
                f"executors do not see the folder of the index: {self.location.address()} is "
                "another folder on their machines, or does not exist there",
                hint="put the store where all machines reach it under the same path",
            )


def read_fragments(written: Sequence[bytes]) -> list[FragmentMetadata]:
    """The fragments in the results of `LanceStaging.write`."""
    return [
        FragmentMetadata.from_json(json.dumps(fragment))
        for part in written
        for fragment in json.loads(part)
    ]


class Source:
    """Rows on their way to Lance, and the error that producing them may raise."""

    def __init__(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
        self._schema, self._rows = schema, rows
        self._error: Exception | None = None

    def reader(self) -> pa.RecordBatchReader:
        """The rows as Lance reads them; can be read once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._stream())

    def raise_own(self) -> None:
        """Raise the rows' own error, which Lance would pass on as one of its own."""
        if self._error is not None:
            raise self._error

    def _stream(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows
        except Exception as error:
            self._error = error
            raise
