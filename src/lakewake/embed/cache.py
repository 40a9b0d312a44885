"""The vector cache: (model identity, text hash) → vector, shared by the indexes of a configuration.

It saves work, and nothing depends on it: what it lacks is embedded again. So a damaged entry counts
as absent, the least recently used entries go when there is no more room, and a sync goes on without
the file while it cannot be used.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from lakewake.config.settings import MAX_MB, IndexSettings
from lakewake.model.recipe import ModelIdentity

FILE = "embeddings.sqlite"
MB = 1_000_000
BUSY_SECONDS = 30.0
#: How often, and how far apart, a process tries to open a file that another is just creating.
OPEN_TRIES = 20
OPEN_SECONDS = 0.05
#: Seconds until a file that could not be written is tried again.
WRITE_AGAIN = 60.0
#: Below the least number of variables that any SQLite build allows.
SLICE = 500
#: An entry's last use is recorded by the day, so that reading it again seldom writes.
DAY = 86_400
#: Entries evicted in one go, and how many times: a lowered bound must not lock others out for long.
EVICTED = 100
EVICTIONS = 100

#: The id grows with every use: the lowest was used longest ago, and evicting empties whole pages.
TABLE = """
CREATE TABLE IF NOT EXISTS embedding (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    hash TEXT NOT NULL,
    vector BLOB NOT NULL,
    crc INTEGER NOT NULL,
    used INTEGER NOT NULL,
    UNIQUE (model, hash)
)
"""
PUT = "INSERT OR REPLACE INTO embedding (model, hash, vector, crc, used) VALUES (?, ?, ?, ?, ?)"
COPY = "INSERT INTO copy.embedding SELECT * FROM embedding WHERE model = ?"
EVICT = "DELETE FROM embedding WHERE id IN (SELECT id FROM embedding ORDER BY id LIMIT ?)"

Entry = tuple[str, str, bytes, int, int]


class VectorCache(Protocol):
    """The vectors that one model made of texts."""

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors that it holds of these texts."""

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Keep the vectors, each under the hash of its text."""

    def copy_to(self, path: Path) -> bool:
        """Write its entries to a new file for `SqliteVectorCache`; False if there are none."""

    def close(self) -> None:
        """Release the file."""


class MemoryVectorCache:
    """The reference: lasts as long as the object."""

    def __init__(self) -> None:
        self._vectors: dict[str, np.ndarray] = {}

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        return {h: self._vectors[h] for h in hashes if h in self._vectors}

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        self._vectors.update({h: np.array(v, np.float32) for h, v in vectors.items()})

    def copy_to(self, path: Path) -> bool:
        return False

    def close(self) -> None:
        pass


class SqliteVectorCache:
    """One file for all models and processes; each `put` is one transaction.

    What cannot be written is kept in a private file beside it until it can be again.

    Args:
        path: the file; None: a private one that lasts as long as the object.
        say: called with a sentence when the file cannot be used, once until it can be again.
        max_bytes: when the file holds more, the entries used longest ago are removed.
    """

    def __init__(
        self,
        path: Path | None,
        identity: ModelIdentity,
        say: Callable[[str], None] = lambda _: None,
        max_bytes: int = MAX_MB * MB,
    ) -> None:
        self._path = path
        self._identity = identity
        self._model = model_key(identity)
        self._say = say
        self._max_bytes = max_bytes
        self._connection: sqlite3.Connection | None = None
        self._spare: SqliteVectorCache | None = None
        self._failing = False
        self._write_again = -math.inf

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors that it holds of these texts, without damaged ones."""
        found = {e[1]: np.frombuffer(e[2], "<f4") for e in self._held(hashes)}
        if self._spare is not None and (rest := set(hashes) - found.keys()):
            found |= self._spare.get(rest)
        return found

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        # A lock that is never released is waited for now and then, not for every batch.
        if time.monotonic() >= self._write_again:
            try:
                self._write([self._entry(h, v) for h, v in vectors.items()])
            except (sqlite3.Error, OSError) as error:
                self._write_again = time.monotonic() + WRITE_AGAIN
                self._failed(error)
            else:
                self._failing = False
                return
        if self._path is not None:
            self._spare = self._spare or SqliteVectorCache(None, self._identity)
            self._spare.put(vectors)

    def copy_to(self, path: Path) -> bool:
        if not self._exists():
            return False
        try:
            copied = _copy(self._open(), self._model, path)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return False
        return copied > 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._spare is not None:
            self._spare.close()

    def _held(self, hashes: Collection[str]) -> list[Entry]:
        # No file means nothing is kept: asking must not create one.
        if not self._exists():
            return []
        try:
            found = [e for some in _slices(sorted(set(hashes))) for e in self._find(some)]
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return []
        # What was read is good even if its use cannot be recorded.
        with suppress(sqlite3.Error, OSError):
            self._write([entry for entry in found if entry[-1] < _today()])
        return found

    def _exists(self) -> bool:
        return self._connection is not None if self._path is None else self._path.exists()

    def _open(self) -> sqlite3.Connection:
        # The folder may have been removed: what is written to an unlinked file is lost.
        if self._connection is not None and not self._exists():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = _connect(self._path)
        return self._connection

    def _find(self, hashes: Sequence[str]) -> list[Entry]:
        marks = ",".join("?" * len(hashes))
        rows = self._open().execute(
            "SELECT model, hash, vector, crc, used FROM embedding "
            f"WHERE model = ? AND hash IN ({marks})",
            (self._model, *hashes),
        )
        return [entry for entry in rows if self._intact(entry)]

    def _write(self, entries: Sequence[Entry]) -> None:
        """Put entries, or use them again: either makes them the newest."""
        if not entries:
            return
        today = _today()
        with self._open() as transaction:
            transaction.executemany(PUT, [(*entry[:-1], today) for entry in entries])
            _evict(transaction, self._max_bytes)

    def _entry(self, text_hash: str, vector: np.ndarray) -> Entry:
        content = np.asarray(vector, "<f4").tobytes()
        return self._model, text_hash, content, zlib.crc32(content), 0

    def _intact(self, entry: Entry) -> bool:
        _, _, content, crc, _ = entry
        return (
            isinstance(content, bytes)
            and len(content) == 4 * self._identity.dimension
            and zlib.crc32(content) == crc
        )

    def _failed(self, error: Exception) -> None:
        """Report it. The next call tries the file again: a lock or a full disk may pass."""
        if self._path is None:
            return
        with suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()
        self._connection = None
        if not self._failing:
            self._say(
                f"{self._path} cannot be used ({error}): vectors are kept for this run only; "
                "remove the file if it is damaged"
            )
        self._failing = True


def model_key(identity: ModelIdentity) -> str:
    """The key of a model's entries: equal exactly for equal identities."""
    text = json.dumps(identity.as_dict(), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _connect(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(OPEN_TRIES):
        try:
            return _set_up(path)
        except sqlite3.OperationalError as error:
            # When two processes create the file at once, SQLite refuses one instead of waiting.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(OPEN_SECONDS)
    return _set_up(path)


def _set_up(path: Path | None) -> sqlite3.Connection:
    # Without a name SQLite uses a temporary file, which goes with the process however that ends.
    connection = sqlite3.connect(path or "", timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(TABLE)
        connection.commit()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copy(connection: sqlite3.Connection, model: str, path: Path) -> int:
    """Write the entries of one model to a file of their own, and return how many there are."""
    _set_up(path).close()
    connection.execute("ATTACH ? AS copy", (str(path),))
    try:
        with connection:
            return connection.execute(COPY, (model,)).rowcount
    finally:
        connection.execute("DETACH copy")


def _evict(transaction: sqlite3.Connection, max_bytes: int) -> None:
    """Remove the entries used longest ago until the rest fits; the file reuses their pages."""
    for _ in range(EVICTIONS):
        if _bytes_in_use(transaction) <= max_bytes:
            return
        transaction.execute(EVICT, (EVICTED,))


def _bytes_in_use(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _slices(hashes: Sequence[str]) -> Iterator[Sequence[str]]:
    return (hashes[i : i + SLICE] for i in range(0, len(hashes), SLICE))


def _today() -> int:
    return int(time.time()) // DAY * DAY


def open_vector_cache(
    settings: IndexSettings, identity: ModelIdentity, say: Callable[[str], None]
) -> VectorCache:
    """The vector cache of an index; if it is off, a private one for this process."""
    kept = settings.embedding_store
    if kept is None:
        return SqliteVectorCache(None, identity, say)
    return SqliteVectorCache(Path(kept.folder) / FILE, identity, say, kept.max_mb * MB)
