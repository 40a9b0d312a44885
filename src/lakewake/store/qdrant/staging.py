"""The parts of a batch, written as points by one machine or several before it is committed.

Each part has its own name, and its points are not valid in any version yet. A commit names the
parts that belong to it. Points of other parts are invisible, and are removed once the index has
moved on.
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
    """A part of a batch that is in a collection.

    Attributes:
        base: the version of the index when the part was written.
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
    """Write chunks, and the ids of deleted ones, as a part that no version contains yet."""
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
    """The parts in the results of `QdrantStaging.write`."""
    return [WrittenPart(**json.loads(part)) for part in staged]


@dataclass(frozen=True)
class QdrantStaging:
    """One collection for the parts of one batch; can be pickled.

    Attributes:
        base: the version that the batch is for; 0 for a new generation, whose collection `write`
            creates.
    """

    points: Points
    collection: str
    base: int

    def write(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> bytes:
        """Write chunks as a new part.

        Raises:
            StoreError: Qdrant cannot be reached from this machine, or refuses.
        """
        if not self.base:
            self.points.create(self.collection, dimension(schema), indexes(schema))
        part = write_part(self.points, self.collection, self.base, rows)
        return json.dumps(asdict(part)).encode()

    def batch(self, schema: pa.Schema, written: Sequence[bytes], removed: Removed) -> Batch:
        nothing = schema.empty_table().to_reader
        return Batch(schema, nothing, removed.deletes, tuple(written), removed.replaced)
