"""Reads texts and payload of hits, and whole indexes, on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import StoreError
from lakewake.model.chunks import chunk_ids, text_hash
from lakewake.model.recipe import RESERVED

if TYPE_CHECKING:
    from lakewake.store import StoreReader

#: The columns of a result besides the payload, in order.
OWN = ("_rank", "_key", "_partition", "_score", "_text", "_instant")
#: What is read of a hit besides its payload.
CHECKED = ("_id", "_partition", "_key", "_field", "_chunk", "_hash", "_text")


@dataclass(frozen=True)
class Pinned:
    """Keeps a version while a task reads it, and explains if it is gone. It can be pickled."""

    reader: StoreReader
    index: str

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Pin the version.

        Raises:
            StoreError: it cannot be read, perhaps because it was removed since the DataFrame was
                made.
        """
        try:
            with self.reader.pinned():
                yield
        except StoreError as error:
            instant = self.reader.frontier().newest
            raise StoreError(
                f"the version of index '{self.index}' at table instant {instant} cannot be read: "
                f"{error.fact}",
                hint="make the DataFrame again: upkeep may have removed the version since. "
                f"If that does not help, {error.hint}",
            ) from error


def payload_names(schema: pa.Schema) -> list[str]:
    """The payload columns of an index."""
    return [name for name in schema.names if not name.startswith(RESERVED)]


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns with types that Spark has."""
    return pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type that Spark has for a type of an index."""
    if pa.types.is_fixed_size_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(plain_type(type_.value_type))
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    wide = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return wide.get(type_, type_)


def check_chunks(chunks: pa.RecordBatch, index: str) -> None:
    """Check that the id and hash of each chunk match its key and text.

    Raises:
        StoreError: they do not match, so the index is damaged.
    """
    sound = pc.fill_null(pc.equal(chunks["_id"], chunk_ids(chunks)), False)
    texts = zip(chunks["_text"].to_pylist(), chunks["_hash"].to_pylist(), strict=True)
    hashed = all(text is None or text_hash(text) == hash for text, hash in texts)
    if not (hashed and pc.all(sound).as_py() in (True, None)):
        raise StoreError(
            f"index '{index}' is damaged: what it holds of a row contradicts itself",
            hint=f"run `lakewake verify {index} --repair` or `lakewake sync {index} --rebuild`",
        )


class Seeker:
    """Finds chunks of a scan part by their positions, which are asked for in order."""

    def __init__(self, part: Iterable[pa.RecordBatch]) -> None:
        self._part = part
        self._restart()

    def _restart(self) -> None:
        self._batches = iter(self._part)
        self._start, self._held = 0, next(self._batches, None)

    def take(self, positions: np.ndarray) -> list[pa.RecordBatch]:
        """The chunks at these positions, in ascending order.

        Raises:
            StoreError: the part is shorter than it was.
        """
        if len(positions) and positions[0] < self._start:
            self._restart()
        out = []
        while len(positions):
            if self._held is None:
                raise StoreError("a scan part has fewer chunks than before", hint="search again")
            inside = positions < self._start + self._held.num_rows
            here = positions[inside] - self._start
            if len(here):
                out.append(self._held.take(pa.array(here)))
            positions = positions[~inside]
            if len(positions):
                self._start += self._held.num_rows
                self._held = next(self._batches, None)
        return out


def result_columns(payload: Sequence[str]) -> list[str]:
    """The columns that a result adds to the carried ones."""
    return [*OWN, *payload]
