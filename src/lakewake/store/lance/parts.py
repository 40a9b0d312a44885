"""Parts of a pinned version that other machines can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from lakewake.store.lance.reader import IS_CHUNK, SCANNED, reading


@dataclass(frozen=True)
class ScanPart:
    """Some columns of the chunks in one fragment of a pinned version; can be pickled.

    Attributes:
        rows: which rows of the fragment; None: all.
    """

    dataset: LanceDataset
    fragment: int
    columns: tuple[str, ...]
    name: str
    rows: range | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        chosen = {"filter": IS_CHUNK} if self.rows is None else _between(self.rows)
        with reading(self.dataset, self.name):
            scanner = self.dataset.scanner(
                columns=[*self.columns, *({"_checkpoint"} - {*self.columns})],
                **chosen,
                **SCANNED,
                fragments=[self.dataset.get_fragment(self.fragment)],
            )
            for batch in scanner.to_batches():
                # Not by a filter of Lance: that is applied before the rows are counted. And only
                # if there is a checkpoint row, because it copies the batch.
                marks = batch["_checkpoint"]
                if marks.null_count < len(marks):
                    batch = batch.filter(pc.is_null(marks))
                yield batch.select(list(self.columns))


def _between(rows: range) -> dict[str, int]:
    return {"offset": rows.start, "limit": len(rows)}


def ranges(size: int, at_most: int | None) -> Iterator[range | None]:
    """Equal ranges of up to this many rows; None: all rows."""
    if at_most is None or size <= at_most:
        yield None
        return
    parts = -(-size // at_most)
    for n in range(parts):
        yield range(n * size // parts, (n + 1) * size // parts)
