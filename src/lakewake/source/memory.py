"""The reference table: a history of commits in memory, with Hudi's ways of losing parts of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakewake.errors import HistoryLost
from lakewake.model.chunks import text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import Changes, Difference, RowBatch, RowId
from lakewake.model.timeline import CommitMetadata, Instant, Look, TableIdentity
from lakewake.source import TableMoved

BATCH_ROWS = 1000
Values = Mapping[str, Any]


@dataclass(frozen=True)
class _Version:
    values: Values
    instant: str


@dataclass(frozen=True)
class _Commit:
    instant: Instant
    operation: str
    rows: Mapping[RowId, _Version]
    schema: Mapping[str, str]


class MemoryTable:
    """A table of rows by id. Every write is one commit; commits can be restored and archived."""

    def __init__(self, recipe: Recipe, schema: pa.Schema) -> None:
        self._recipe = recipe
        self._schema = schema
        self._commits: list[_Commit] = []
        self._archived = 0
        self._cleaned = 0
        self._clock = 20_250_101_000_000_000
        self.reads = 0

    def upsert(self, rows: Mapping[RowId, Values]) -> str:
        """Insert or replace rows."""
        return self._commit("UPSERT", {**self._rows, **self._versions(rows)})

    def delete(self, ids: Iterable[RowId]) -> str:
        """Remove rows."""
        gone = set(ids)
        return self._commit("DELETE", {i: v for i, v in self._rows.items() if i not in gone})

    def overwrite(self, rows: Mapping[RowId, Values]) -> str:
        """Replace the whole table."""
        return self._commit("INSERT_OVERWRITE_TABLE", self._versions(rows))

    def cluster(self) -> str:
        """Move rows about without changing any."""
        return self._commit("CLUSTER", self._rows)

    def restore(self, commits: int) -> None:
        """Undo the newest commits, as a savepoint restore does."""
        del self._commits[max(1, len(self._commits) - commits) :]
        self._archived = min(self._archived, len(self._commits) - 1)
        self._cleaned = min(self._cleaned, len(self._commits) - 1)

    def archive(self, keep: int) -> None:
        """Take all but the newest commits off the active timeline."""
        self._archived = max(self._archived, len(self._commits) - keep)

    def clean(self, keep: int) -> None:
        """Remove the files of all but the newest versions of the table."""
        self._cleaned = max(self._cleaned, len(self._commits) - keep)

    def retype(self, column: str, type_: pa.DataType) -> None:
        """Change a column's type from the next commit on."""
        at = self._schema.get_field_index(column)
        self._schema = self._schema.set(at, pa.field(column, type_))

    @property
    def _rows(self) -> Mapping[RowId, _Version]:
        return self._commits[-1].rows if self._commits else {}

    def _tick(self) -> str:
        self._clock += 1
        return str(self._clock)

    def _versions(self, rows: Mapping[RowId, Values]) -> dict[RowId, _Version]:
        return {i: _Version(dict(v), str(self._clock + 1)) for i, v in rows.items()}

    def _commit(self, operation: str, rows: Mapping[RowId, _Version]) -> str:
        requested = self._tick()
        instant = Instant(requested, self._tick(), "commit")
        schema = {f.name: json.dumps(str(f.type)) for f in self._schema}
        self._commits.append(_Commit(instant, operation, rows, schema))
        return requested

    def look(self, frontier: Frontier | None) -> Look:
        """The active timeline."""
        active = self._commits[self._archived :]
        return Look(
            table=TableIdentity("memory", "id", "part", "COPY_ON_WRITE"),
            instants=tuple(c.instant for c in active),
            schema=self._commits[-1].schema if self._commits else {},
            commits={
                c.instant.requested: CommitMetadata(c.operation, schema=c.schema) for c in active
            },
        )

    def snapshot(self, look: Look) -> Changes:
        """Every row as of `look`."""
        self._pin(look)
        batches = self._batches(self._rows)
        payload = pa.schema([self._schema.field(c) for c in self._recipe.payload])
        return Changes(batches, total=len(self._rows), payload=payload)

    def changes(self, look: Look, frontier: Frontier, pending: Sequence[Instant]) -> Changes:
        """The difference of the table's states at the two ends of the window."""
        self._pin(look)
        at = [c.instant.requested for c in self._commits].index(frontier.newest)
        if at < self._cleaned:
            raise HistoryLost("the cleaner removed the state that the index stands at")
        before, after = self._commits[at].rows, self._rows
        changed = {i: v for i, v in after.items() if before.get(i) != v}
        return Changes(self._batches(changed), tuple(sorted(before.keys() - after.keys())))

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        """The named rows."""
        self._pin(look)
        return Changes(self._batches({i: self._rows[i] for i in ids if i in self._rows}))

    def reconcile(self, look: Look, index: Iterator[pa.RecordBatch]) -> Changes:
        """The rows that differ, and the ids that are too many."""
        found = self.compare(look, index)
        return Changes(self.rows(look, (*found.missing, *found.stale)).rows, found.orphaned)

    def compare(self, look: Look, index: Iterator[pa.RecordBatch]) -> Difference:
        """How an index differs from the table."""
        self._pin(look)
        table = {
            i: (source, payload, any((t or "").strip() for t in texts))
            for b in self._batches(self._rows)
            for i, source, payload, *texts in zip(
                b.ids, b.source_hashes, b.payload_hashes, *b.texts.values(), strict=True
            )
        }
        held = _held(index, self._recipe)
        says = {i for i, (_, _, text) in table.items() if text}
        stale = {i for i in held.keys() & table.keys() if held[i] != table[i][:2] or i not in says}
        return Difference(
            missing=tuple(sorted(says - held.keys())),
            orphaned=tuple(sorted(held.keys() - table.keys())),
            stale=tuple(sorted(stale)),
        )

    def _pin(self, look: Look) -> None:
        self.reads += 1
        if look.instants != self.look(None).instants:
            raise TableMoved

    def _batches(self, rows: Mapping[RowId, _Version]) -> Iterator[RowBatch]:
        ids = sorted(rows)
        for start in range(0, len(ids), BATCH_ROWS):
            yield self._batch({i: rows[i] for i in ids[start : start + BATCH_ROWS]})

    def _batch(self, rows: Mapping[RowId, _Version]) -> RowBatch:
        fields = self._recipe.fields
        texts = {f.name: tuple(render(f, v.values) for v in rows.values()) for f in fields}
        payload = [[v.values.get(c) for v in rows.values()] for c in self._recipe.payload]
        schema = pa.schema([self._schema.field(c) for c in self._recipe.payload])
        arrays = [pa.array(p, f.type) for p, f in zip(payload, schema, strict=True)]
        return RowBatch(
            ids=tuple(rows),
            instants=tuple(v.instant for v in rows.values()),
            source_hashes=tuple(_source_hash(t) for t in zip(*texts.values(), strict=True)),
            payload_hashes=tuple(_payload_hash(p) for p in zip(*payload, strict=True)),
            texts=texts,
            payload=pa.RecordBatch.from_arrays(arrays, schema=schema),
        )


def render(field: TextField, values: Values) -> str | None:
    """A template filled in; None when every column of it is null or blank."""
    said = {c: "" if values.get(c) is None else str(values[c]) for c in field.columns}
    if not any(text.strip() for text in said.values()):
        return None
    return "".join(literal + (said[c] if c else "") for literal, c in field.parts())


def _source_hash(texts: Sequence[str | None]) -> str:
    hashes = [text_hash(t) if t is not None else "" for t in texts]
    return hashes[0] if len(hashes) == 1 else text_hash(",".join(hashes))


def _payload_hash(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()


def _held(index: Iterator[pa.RecordBatch], recipe: Recipe) -> dict[RowId, tuple[str, str]]:
    """Per indexed row its source and payload hash; '' where its chunks contradict themselves."""
    held: dict[RowId, tuple[str, str]] = {}
    for batch in index:
        for chunk in batch.to_pylist():
            row = RowId(chunk["_partition"], chunk["_key"])
            payload = _payload_hash([chunk[c] for c in recipe.payload])
            sound = text_hash(chunk["_text"]) == chunk["_hash"]
            sound = sound and payload == chunk["_payload_hash"]
            mine = (chunk["_source_hash"] if sound else "", payload)
            held[row] = mine if held.get(row, mine) == mine else ("", "")
    return held
