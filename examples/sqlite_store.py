"""A store of another package: an index in an SQLite file, small enough to be read into memory.

Each commit is a row of `versions`, so SQLite's transactions make it land whole or not at all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.errors import IndexMissing, StaleFrontier
from lakewake.model.as_of import newest_not_newer
from lakewake.model.chunks import Batch
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier, page_names
from lakewake.model.recall import Searching
from lakewake.model.recipe import Recipe
from lakewake.store.hints import dropped, missing
from lakewake.store.memory import MemoryReader, MemoryStaging, check_columns
from lakewake.store.options import StoreOptions

KEPT = 20
TABLES = (
    "CREATE TABLE IF NOT EXISTS versions (number INTEGER PRIMARY KEY AUTOINCREMENT, "
    "generation INTEGER, recipe TEXT, frontier TEXT, chunks BLOB)",
    "CREATE TABLE IF NOT EXISTS pages (name TEXT PRIMARY KEY, text TEXT)",
    "CREATE TABLE IF NOT EXISTS dropped (generation INTEGER)",
)


def open_sqlite(location: str, name: str, options: StoreOptions) -> SqliteStore:
    """The factory that the entry point names: location is what follows `sqlite://`."""
    options.need_kind("SQLite")
    return SqliteStore(Path(location), name)


@dataclass(frozen=True)
class SqliteReader(MemoryReader):
    """One version, read whole."""

    def searching(self) -> Searching:
        return Searching(why="SQLite has no vectors", recall_mean=1.0, recall_worst_tenth=1.0)


class SqliteStore:
    """One index in a file."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name

    def generation(self) -> int:
        with self._open() as db:
            return self._generation(db)

    def open(self) -> SqliteReader | None:
        with self._open() as db:
            return next(self._versions(db), None)

    def as_of(self, instant: str) -> SqliteReader:
        with self._open() as db:
            kept = list(self._versions(db))
        if not kept:
            raise missing(self._name)
        return newest_not_newer(instant, ((v.absorbed, v) for v in kept), self._name)

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        chunks = _read(batch)
        with self._writing() as db:
            active = self._generation(db)
            if active != after:
                if next(self._versions(db), None) is None:
                    raise dropped(self._name)
                raise _stale(f"generation {active} of index '{self._name}' came first")
            db.execute("DELETE FROM versions")
            db.execute("DELETE FROM pages")
            self._add(db, SqliteReader(recipe, then, after + 1, chunks), held=frozenset())

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[MemoryStaging]:
        yield MemoryStaging()

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        chunks = _read(batch)
        with self._writing() as db:
            last = next(self._versions(db), None)
            if last is None:
                raise IndexMissing(
                    f"there is no index '{self._name}'", hint=f"`lakewake sync {self._name}`"
                )
            if last.absorbed.to_json() == then.to_json():
                return
            if last.absorbed.to_json() != expect.to_json():
                raise _stale(f"another writer moved the frontier of index '{self._name}' first")
            check_columns(chunks.schema, last.schema())
            gone = pa.array([*chunks["_id"].to_pylist(), *batch.deletes], pa.string())
            left = last.held.filter(pc.invert(pc.is_in(last.held["_id"], gone)))
            held = pa.concat_tables([left, chunks])
            version = SqliteReader(last.built_by, then, last.number, held)
            self._add(db, version, held=page_names(last.absorbed.to_json()))

    def maintain(self) -> dict[str, int]:
        with self._writing() as db:
            old = "DELETE FROM versions WHERE number <= (SELECT max(number) FROM versions) - ?"
            removed = db.execute(old, (KEPT,)).rowcount
        return {"versions_removed": removed} if removed else {}

    def was_dropped(self) -> bool:
        return self.open() is None and self.generation() > 0

    def drop(self, *, dry_run: bool = False) -> Dropped:
        with self._writing() as db:
            number = self._generation(db)
            if next(self._versions(db), None) is None:
                return Dropped()
            if not dry_run:
                db.execute("DELETE FROM versions")
                db.execute("DELETE FROM pages")
                # A build that runs has counted on at most the next number.
                db.execute("INSERT INTO dropped VALUES (?)", (number + 1,))
        return Dropped(removed=(f"generation {number} in {self._file}",))

    def _generation(self, db: sqlite3.Connection) -> int:
        """That of the newest version; else the first that follows a drop."""
        [found] = db.execute(
            "SELECT coalesce((SELECT max(generation) FROM versions), "
            "(SELECT max(generation) FROM dropped), 0)"
        )
        return int(found[0])

    def _versions(self, db: sqlite3.Connection) -> Iterator[SqliteReader]:
        """The versions of the active generation, newest first."""
        columns = "generation, recipe, frontier, chunks"
        for number, recipe, frontier, chunks in db.execute(
            f"SELECT {columns} FROM versions ORDER BY number DESC"
        ):
            held = pa.ipc.open_stream(chunks).read_all()
            built_by = Recipe.from_dict(json.loads(recipe))
            absorbed = Frontier.from_json(frontier, partial(read_pages, self._file))
            yield SqliteReader(built_by, absorbed, number, held)

    def _add(self, db: sqlite3.Connection, version: SqliteReader, held: Collection[str]) -> None:
        # A frontier that names very many rows has them on pages of their own.
        pages = version.absorbed.new_pages(held).items()
        db.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?)", pages)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, version.held.schema) as out:
            out.write_table(version.held)
        row = (
            version.number,
            json.dumps(version.built_by.as_dict()),
            version.absorbed.to_json(),
            sink.getvalue().to_pybytes(),
        )
        columns = "generation, recipe, frontier, chunks"
        db.execute(f"INSERT INTO versions ({columns}) VALUES (?, ?, ?, ?)", row)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._file, 60, isolation_level=None)) as db:
            for table in TABLES:
                db.execute(table)
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it lands, or nothing. Writers wait for one another."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


def read_pages(file: Path, names: Collection[str]) -> dict[str, str]:
    """The pages of a frontier, on demand."""
    marks = ", ".join("?" * len(names))
    with closing(sqlite3.connect(file, 60)) as db:
        found = db.execute(f"SELECT name, text FROM pages WHERE name IN ({marks})", [*names])
        return dict(found.fetchall())


def _read(batch: Batch) -> pa.Table:
    with batch.rows() as reader:
        return reader.read_all()


def _stale(fact: str) -> StaleFrontier:
    return StaleFrontier(fact, hint="run the sync again")
