"""The reference table: commits in memory, which can be archived and cleaned as Hudi does."""

from __future__ import annotations

import datetime
import hashlib
import json
import pickle
import re
import sqlite3
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakewake.errors import HistoryLost
from lakewake.model.chunks import VECTOR_FIELD, ScanParts, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.model.rows import Changes, Difference, RowBatch, RowId, T, Work
from lakewake.model.timeline import CommitMetadata, Instant, Look, TableIdentity
from lakewake.source import COMPARE_HINT, SharedRead, TableMoved
from lakewake.source.rendering import Values, render

BATCH_ROWS = 1000
#: A date as Spark writes it; SQLite compares dates as texts.
_DATE = re.compile(r"DATE('\d{4}-\d\d-\d\d')")
_LOCK = threading.Lock()
#: A row's source hash, payload hash, and the fields that have chunks.
_Content = tuple[str, str, frozenset[str]]


@dataclass(frozen=True)
class _Version:
    values: Values
    instant: str


@dataclass(frozen=True)
class _Commit:
    instant: Instant
    operation: str
    rows: Mapping[RowId, _Version]
    schema: pa.Schema

    @property
    def requested(self) -> str:
        return self.instant.requested


@dataclass(frozen=True)
class History:
    """The whole state of a table at one moment. Putting an older one back rewinds the table.

    Attributes:
        commits: in completion order, each with the whole state after it.
        open: what writers in flight will upsert, by the requested time of their instant.
        planned: those of them that are clusterings: they write the rows as of their plan.
        archived: instants requested before this one are off the active timeline.
        cleaned: this many of the oldest commits have lost their files.
        saved: commits with a savepoint, which are never archived.
    """

    commits: tuple[_Commit, ...] = ()
    open: Mapping[str, Mapping[RowId, _Version]] = field(default_factory=dict)
    planned: frozenset[str] = frozenset()
    archived: str = ""
    cleaned: int = 0
    saved: frozenset[str] = frozenset()

    @property
    def rows(self) -> Mapping[RowId, _Version]:
        """All rows after the newest commit."""
        return self.commits[-1].rows if self.commits else {}


@dataclass(frozen=True)
class _Difference:
    """The rows of the table before some commits and after them."""

    state: History
    before: Mapping[RowId, _Version]
    after: Mapping[RowId, _Version]

    def close(self) -> None:
        """There is nothing to free."""


class MemoryTable:
    """A table of rows by id. Every write is one commit; commits can be restored and archived.

    Attributes:
        history: can be kept and put back; `History()` is the table dropped and created again.
        reads: how often rows were read.
        parts: the number of parts for distributed work; 0: rows are not distributed.
        date: the day on which rows are selected.
    """

    def __init__(self, recipe: Recipe, schema: pa.Schema) -> None:
        self._recipe = recipe
        self._next_schema = schema
        self._clock = 20_250_101_000_000_000
        self.history = History()
        self.reads = 0
        self.parts = 0
        self.date = "2026-01-01"

    def upsert(self, rows: Mapping[RowId, Values]) -> str:
        """Insert or replace rows."""
        requested = self._tick()
        return self._commit(requested, "UPSERT", {**self._rows, **_versions(rows, requested)})

    def delete(self, ids: Iterable[RowId]) -> str:
        """Remove rows."""
        gone = set(ids)
        kept = {i: v for i, v in self._rows.items() if i not in gone}
        return self._commit(self._tick(), "DELETE", kept)

    def overwrite(self, rows: Mapping[RowId, Values]) -> str:
        """Replace the whole table."""
        requested = self._tick()
        return self._commit(requested, "INSERT_OVERWRITE_TABLE", _versions(rows, requested))

    def cluster(self) -> str:
        """Rewrite files without changing any row."""
        return self._commit(self._tick(), "CLUSTER", self._rows)

    def begin(self, rows: Mapping[RowId, Values]) -> str:
        """Begin a slow upsert: it is in flight until it is completed or aborted."""
        requested = self._tick()
        open_ = {**self.history.open, requested: _versions(rows, requested)}
        self.history = replace(self.history, open=open_)
        return requested

    def plan_clustering(self) -> str:
        """Plan a clustering that runs later: it undoes what is written in the meantime."""
        requested = self._tick()
        open_ = {**self.history.open, requested: self._rows}
        planned = self.history.planned | {requested}
        self.history = replace(self.history, open=open_, planned=planned)
        return requested

    def complete(self, requested: str) -> None:
        """Complete what is in flight; others may have been requested and completed since."""
        operation = "CLUSTER" if requested in self.history.planned else "UPSERT"
        self._commit(requested, operation, {**self._rows, **self._close(requested)})

    def abort(self, requested: str) -> None:
        """Roll back what is in flight."""
        self._close(requested)

    def restore(self, commits: int) -> None:
        """Undo the newest commits, as restoring a savepoint does; writers in flight fail.

        It stops at the end of the active timeline: savepoints are never older than that.
        """
        kept, archived = self.history.commits, self.history.archived
        for _ in range(commits):
            active = [c for c in kept if c.requested >= archived]
            if len(active) < 2 or kept[-1] not in active:
                break
            kept = kept[:-1]
        cleaned = min(self.history.cleaned, max(0, len(kept) - 1))
        saved = self.history.saved.intersection(c.requested for c in kept)
        self.history = History(kept, archived=archived, cleaned=cleaned, saved=saved)

    def savepoint(self) -> None:
        """Mark the newest commit, so that it is not archived; later ones can be."""
        newest = [c.requested for c in self.history.commits[-1:]]
        self.history = replace(self.history, saved=self.history.saved.union(newest))

    def archive(self, keep: int) -> None:
        """Take all but the newest commits off the active timeline, up to the first in flight."""
        done = sorted(c.requested for c in self.history.commits)
        if len(done) > keep:
            first = min([done[-keep], *self.history.open])
            self.history = replace(self.history, archived=max(self.history.archived, first))

    def clean(self, keep: int) -> None:
        """Remove the files of all but the newest versions of the table."""
        cleaned = max(self.history.cleaned, len(self.history.commits) - keep)
        self.history = replace(self.history, cleaned=cleaned)

    def retype(self, column: str, type_: pa.DataType) -> None:
        """Change a column's type from the next commit on."""
        at = self._next_schema.get_field_index(column)
        self._next_schema = self._next_schema.set(at, pa.field(column, type_))

    @property
    def _rows(self) -> Mapping[RowId, _Version]:
        return self.history.rows

    def _payload(self, state: History) -> pa.Schema:
        schema = state.commits[-1].schema if state.commits else self._next_schema
        return pa.schema(
            [pa.field(n, _type_of(schema.field(n).type, inside)) for n, inside in self._recipe.held]
        )

    def _tick(self) -> str:
        self._clock += 1
        return str(self._clock)

    def _commit(self, requested: str, operation: str, rows: Mapping[RowId, _Version]) -> str:
        instant = Instant(requested, self._tick(), "commit")
        commit = _Commit(instant, operation, rows, self._next_schema)
        self.history = replace(self.history, commits=(*self.history.commits, commit))
        return requested

    def _close(self, requested: str) -> Mapping[RowId, _Version]:
        open_ = dict(self.history.open)
        rows = open_.pop(requested)
        self.history = replace(self.history, open=open_)
        return rows

    def written(self, look: Look, instant: Instant) -> float | None:
        """Unknown: nothing is written to files."""
        return None

    def look(self, frontier: Frontier | None) -> Look:
        history = self.history
        archived = {c.requested for c in history.commits if c.requested < history.archived}
        archived -= history.saved
        active = [c for c in history.commits if c.requested not in archived]
        in_flight = [Instant(requested, None, "commit") for requested in history.open]
        return Look(
            table=TableIdentity("memory", "id", "part", "COPY_ON_WRITE"),
            instants=tuple(sorted([*(c.instant for c in active), *in_flight], key=_requested)),
            schema=_types(history.commits[-1].schema) if history.commits else {},
            commits={
                c.requested: CommitMetadata(c.operation, schema=_types(c.schema)) for c in active
            },
            archived=max(archived, default="") if history.saved else "",
            date=self.date,
        )

    def snapshot(self, look: Look) -> Changes:
        return self.first(look, sys.maxsize)

    def first(self, look: Look, limit: int) -> Changes:
        state = self._pinned(look)
        rows = self._selected(state.rows, look.date)
        rows = {i: rows[i] for i in sorted(rows)[:limit]}
        found = self._changed(state, rows)
        return replace(found, total=len(rows), payload=self._payload(state))

    def _selected(self, rows: Mapping[RowId, _Version], date: str) -> Mapping[RowId, _Version]:
        """The rows that the recipe selects on this day."""
        where = self._recipe.on(date).where
        return {i: v for i, v in rows.items() if _selects(where, v.values)} if where else rows

    def scan(self, look: Look, *, spark: bool) -> Changes:
        return self.snapshot(look)

    def read_together(
        self,
        recipes: Sequence[Recipe],
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
    ) -> _Difference:
        return self._difference(look, pending)

    def changes(
        self,
        look: Look,
        frontier: Frontier,
        pending: Sequence[Instant],
        shared: SharedRead | None = None,
    ) -> Changes:
        """The difference between the table's states before and after the window."""
        if shared is None:
            found = self._difference(look, pending)
        else:
            assert isinstance(shared, _Difference)
            found = shared
            self._refuse_undone(look)
        return self._moved(found, frontier.date, frontier.date)

    def moved(self, look: Look, frontier: Frontier) -> Changes:
        state = self._pinned(look)
        found = _Difference(state, state.rows, state.rows)
        return self._moved(found, frontier.date, look.date)

    def _moved(self, found: _Difference, was: str, now: str) -> Changes:
        """The difference of the selected rows, on a day before and on one after."""
        before, after = self._selected(found.before, was), self._selected(found.after, now)
        changed = {i: v for i, v in after.items() if before.get(i) != v}
        gone = {i: before[i].instant for i in sorted(before.keys() - after.keys())}
        return replace(self._changed(found.state, changed, tuple(gone)), removed=gone)

    def _refuse_undone(self, look: Look) -> None:
        """Raise if an instant of the look is no longer there. New ones do not matter."""
        if look.completed.items() - self.look(None).completed.items():
            raise TableMoved

    def _difference(self, look: Look, pending: Sequence[Instant]) -> _Difference:
        state = self._pinned(look)
        at = [c.requested for c in state.commits].index(pending[0].requested)
        if at - 1 < state.cleaned:
            raise HistoryLost(
                "the cleaner removed the files of the index's frontier", hint=COMPARE_HINT
            )
        return _Difference(state, state.commits[at - 1].rows, state.rows)

    def rows(self, look: Look, ids: Collection[RowId]) -> Changes:
        state = self._pinned(look)
        rows = self._selected(state.rows, look.date)
        there = {i: rows[i] for i in ids if i in rows}
        return Changes(self._batches(state, there), tuple(sorted(set(ids) - there.keys())))

    def reconcile(self, look: Look, index: ScanParts) -> Changes:
        state = self._pinned(look)
        found = self._compared(state, look.date, index)
        differing = {i: state.rows[i] for i in (*found.missing, *found.stale)}
        return self._changed(state, differing, found.orphaned)

    def compare(self, look: Look, index: ScanParts) -> Difference:
        return self._compared(self._pinned(look), look.date, index)

    def _compared(self, state: History, date: str, index: ScanParts) -> Difference:
        table = {
            i: (source, payload, fields)
            for b in self._batches(state, self._selected(state.rows, date))
            for i, source, payload, fields in zip(
                b.ids, b.source_hashes, b.payload_hashes, _filled(b), strict=True
            )
        }
        held = _held(index, self._recipe)
        filled = {i for i, (_, _, fields) in table.items() if fields}
        stale = {i for i in held.keys() & table.keys() if held[i] != table[i]}
        return Difference(
            missing=tuple(sorted(filled - held.keys())),
            orphaned=tuple(sorted(held.keys() - table.keys())),
            stale=tuple(sorted(stale)),
        )

    def _changed(
        self, state: History, rows: Mapping[RowId, _Version], deleted: tuple[RowId, ...] = ()
    ) -> Changes:
        """The rows as changes; with `parts`, also as distributed work."""
        if not self.parts:
            return Changes(self._batches(state, rows), deleted)
        # Rows with equal texts go to the same part, so that each text is embedded once.
        parts: list[dict[RowId, _Version]] = [{} for _ in range(self.parts)]
        for i, version in rows.items():
            how = self._recipe.rendering
            texts = [render(f, version.values, how) for f in self._recipe.fields]
            parts[int(text_hash(_source_hash(texts)), 16) % self.parts][i] = version
        batches = [list(self._batches(state, part)) for part in parts]
        return Changes(
            self._batches(state, rows), deleted, distributed=partial(_work_through, batches)
        )

    def _pinned(self, look: Look) -> History:
        """The state to read. It is taken first and compared with the look afterwards."""
        self.reads += 1
        state = self.history
        if look.completed != self.look(None).completed:
            raise TableMoved
        return state

    def _batches(self, state: History, rows: Mapping[RowId, _Version]) -> Iterator[RowBatch]:
        """Rows in batches. Values and types are those of `state`, however late they are read."""
        ids, schema = sorted(rows), self._payload(state)
        return (
            self._batch({i: rows[i] for i in ids[start : start + BATCH_ROWS]}, schema)
            for start in range(0, len(ids), BATCH_ROWS)
        )

    def _batch(self, rows: Mapping[RowId, _Version], schema: pa.Schema) -> RowBatch:
        fields = self._recipe.fields
        how = self._recipe.rendering
        texts = {f.name: tuple(render(f, v.values, how) for v in rows.values()) for f in fields}
        payload = [
            pa.array([_held_of(v.values.get(f.name), inside) for v in rows.values()], f.type)
            for f, (_, inside) in zip(schema, self._recipe.held, strict=True)
        ]
        columns = [column.to_pylist() for column in payload]
        return RowBatch(
            ids=tuple(rows),
            instants=tuple(v.instant for v in rows.values()),
            source_hashes=tuple(map(_source_hash, self._made_from(rows, texts))),
            payload_hashes=tuple(_payload_hash([c[n] for c in columns]) for n in range(len(rows))),
            texts=texts,
            payload=pa.RecordBatch.from_arrays(payload, schema=schema)
            if payload
            else pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([]))),
            vectors=pa.array(self._vectors(rows), pa.list_(pa.float32()))
            if self._recipe.vector
            else None,
        )

    def _made_from(
        self, rows: Mapping[RowId, _Version], texts: Mapping[str, Sequence[str | None]]
    ) -> Iterable[tuple[str | None, ...]]:
        """What the chunks of each row are made from."""
        if self._recipe.vector:
            return ((repr(vector),) for vector in self._vectors(rows))
        return zip(*texts.values(), strict=True)

    def _vectors(self, rows: Mapping[RowId, _Version]) -> list[Any]:
        assert self._recipe.vector
        return [v.values.get(self._recipe.vector) for v in rows.values()]


@cache
def _sql() -> sqlite3.Connection:
    """A database without tables, with the functions of Spark that tests use."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.create_function("date_add", 2, _days_later, deterministic=True)
    database.create_function("date_sub", 2, lambda d, n: _days_later(d, -n), deterministic=True)
    return database


def _days_later(day: str | None, days: float | None) -> str | None:
    if day is None or days is None:
        return None
    return (datetime.date.fromisoformat(day) + datetime.timedelta(days)).isoformat()


def _selects(where: str, values: Values) -> bool:
    """Whether a condition selects a row. What SQLite and Spark understand alike can be tested."""
    return _asked(_DATE.sub(r"\1", where), tuple(values.items()))


@lru_cache(10_000)
def _asked(where: str, values: tuple[tuple[str, Any], ...]) -> bool:
    columns = ", ".join(f'? AS "{name}"' for name, _ in values)
    query = f"SELECT ({where}) FROM (SELECT {columns})"
    with _LOCK:
        found = _sql().execute(query, [value for _, value in values]).fetchone()
    return bool(found[0])


def _work_through(
    parts: Sequence[Sequence[RowBatch]], work: Work[T], files: Sequence[Path]
) -> list[T]:
    """Do one part after the other. Work and results are pickled, as if sent to other machines."""
    sent = pickle.dumps(work)
    paths = {file: file for file in files}
    results = [pickle.loads(sent)(iter(part), paths) for part in parts]
    return [pickle.loads(pickle.dumps(result)) for result in results]


def _versions(rows: Mapping[RowId, Values], instant: str) -> dict[RowId, _Version]:
    return {i: _Version(dict(v), instant) for i, v in rows.items()}


def _types(schema: pa.Schema) -> dict[str, str]:
    return {f.name: json.dumps(_avro(f.type)) for f in schema}


def _avro(type_: pa.DataType) -> Any:
    """A type as commit metadata names it, as far as anything looks into it."""
    if not pa.types.is_struct(type_):
        return str(type_)
    fields = [{"name": f.name, "type": _avro(f.type)} for f in type_]
    return {"type": "record", "fields": fields}


def _type_of(type_: pa.DataType, paths: Sequence[str]) -> pa.DataType:
    """A struct with some of its fields."""
    if not paths:
        return type_
    inside = {name: _type_of(type_.field(name).type, rest) for name, rest in _steps(paths).items()}
    return pa.struct(list(inside.items()))


def _held_of(value: Any, paths: Sequence[str]) -> Any:
    """Some fields of a struct; None if they all are."""
    if not paths or value is None:
        return value
    found = {name: _held_of(value.get(name), rest) for name, rest in _steps(paths).items()}
    return found if any(one is not None for one in found.values()) else None


def _steps(paths: Sequence[str]) -> dict[str, list[str]]:
    """The first name of each path → the rests of the paths that begin with it."""
    out: dict[str, list[str]] = {}
    for path in paths:
        name, _, rest = path.partition(".")
        out.setdefault(name, []).extend([rest] if rest else [])
    return out


def _requested(instant: Instant) -> str:
    return instant.requested


def _source_hash(texts: Sequence[str | None]) -> str:
    hashes = [text_hash(t) if t is not None else "" for t in texts]
    return hashes[0] if len(hashes) == 1 else text_hash(",".join(hashes))


def _payload_hash(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()


def _filled(batch: RowBatch) -> Iterator[frozenset[str]]:
    """The fields of each row that have chunks."""
    for n in range(len(batch.ids)):
        if batch.vectors is not None:
            yield frozenset([VECTOR_FIELD] if batch.vectors[n].is_valid else [])
        else:
            yield frozenset(f for f, texts in batch.texts.items() if (texts[n] or "").strip())


def _held(index: ScanParts, recipe: Recipe) -> dict[RowId, _Content]:
    """What an index holds of each row.

    A hash is '' if the chunks contradict each other. The first chunk of each field holds the source
    hash.
    """
    sources: dict[RowId, set[str]] = {}
    payloads: dict[RowId, set[str]] = {}
    fields: dict[RowId, set[str]] = {}
    for chunk in (chunk for batch in index for chunk in batch.to_pylist()):
        row = RowId(chunk["_partition"], chunk["_key"])
        fields.setdefault(row, set()).add(chunk["_field"])
        payload = _payload_hash([chunk[c] for c in recipe.payload_columns])
        sound = bool(recipe.vector) or text_hash(chunk["_text"]) == chunk["_hash"]
        sound = sound and payload == chunk["_payload_hash"]
        payloads.setdefault(row, set()).add(payload if sound else "")
        sources.setdefault(row, set()).update(
            [chunk["_source_hash"]] if not chunk["_chunk"] else ()
        )
    one = {row: (_only(sources[row]), _only(payloads[row])) for row in fields}
    return {row: (*one[row], frozenset(fields[row])) for row in fields}


def _only(hashes: set[str]) -> str:
    return next(iter(hashes)) if len(hashes) == 1 else ""
