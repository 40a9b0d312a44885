"""The parts of a batch, written as points by one machine or several before it is committed.

Each part has a name of its own, and its points are valid from no version on. A commit names the
parts that are in it; points of others are seen by nobody, and go once the index has moved on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from uuid import uuid4

import pyarrow as pa

from lakewake.model.chunks import Batch
from lakewake.store import Removed
from lakewake.store.qdrant.points import Points
from lakewake.store.qdrant.rows import dimension, gone_points, indexes, to_points


@dataclass(frozen=True)
class WrittenPart:
    """A part of a batch that lies in a collection.

    Attributes:
        base: the version that the index stood at when it was written.
        points: how many points it has.
    """

    collection: str
    name: str
    base: int
    points: int


def write_part(
    points: Points,
    collection: str,
    base: int,
    rows: Iterable[pa.RecordBatch],
    *,
    name: str = "",
    deletes: Iterable[str] = (),
    length: int = 1,
) -> WrittenPart:
    """Write chunks, and the ids of deleted ones, as a part that belongs to nothing yet."""
    name = name or uuid4().hex
    written = 0
    for some in to_points(rows, name, base):
        points.insert(collection, some)
        written += len(some)
    for some in gone_points(deletes, name, base, length):
        points.insert(collection, some)
        written += len(some)
    return WrittenPart(collection, name, base, written)


def read_parts(staged: Sequence[bytes]) -> list[WrittenPart]:
    """The parts that `QdrantStaging.write` told of."""
    return [WrittenPart(**json.loads(part)) for part in staged]


@dataclass(frozen=True)
class QdrantStaging:
    """One collection for the parts of one batch; can be pickled.

    Attributes:
        base: the version that the batch is for; 0 for a new generation, whose collection is made.
    """

    points: Points
    collection: str
    base: int

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks as a part of its own.

        Raises:
            StoreError: Qdrant cannot be reached from here, or refuses.
        """
        if not self.base:
            self.points.create(self.collection, dimension(schema), indexes(schema))
        part = write_part(self.points, self.collection, self.base, rows)
        return json.dumps(asdict(part)).encode()

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        """The batch of just these parts."""
        nothing = schema.empty_table().to_reader
        return Batch(schema, nothing, removed.deletes, tuple(written), removed.replaced)
