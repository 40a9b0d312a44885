"""The embedding store: (model identity, text hash) → vector, beside the indexes of a folder.

It saves work and nothing depends on it: what it lacks is embedded again. So a damaged entry counts
as absent, and a file that cannot be used is reported once and then does without.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from lakewake.model.recipe import ModelIdentity

FILE = "embeddings.sqlite"
BUSY_SECONDS = 30.0
#: Below the least number of variables that any SQLite build allows.
SLICE = 500
#: An entry's last use is kept to the day, so that reading it again seldom writes.
DAY = 86_400

TABLE = """
CREATE TABLE IF NOT EXISTS embedding (
    model TEXT NOT NULL,
    hash TEXT NOT NULL,
    vector BLOB NOT NULL,
    crc INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (model, hash)
) WITHOUT ROWID
"""


class EmbeddingStore(Protocol):
    """Vectors of texts by one model."""

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors of those texts that it holds."""

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Keep the vectors, each by the hash of its text."""

    def close(self) -> None:
        """Let go of the file."""


class MemoryEmbeddings:
    """The reference: lasts as long as the object."""

    def __init__(self) -> None:
        self._vectors: dict[str, np.ndarray] = {}

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors of those texts that it holds."""
        return {h: self._vectors[h] for h in hashes if h in self._vectors}

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Keep the vectors, each by the hash of its text."""
        self._vectors.update({h: np.array(v, np.float32) for h, v in vectors.items()})

    def close(self) -> None:
        """Nothing to let go of."""


class SqliteEmbeddings:
    """One file for all models and processes; each call is one transaction.

    Args:
        say: told once, in a sentence, when the file cannot be used.
    """

    def __init__(
        self, path: Path, identity: ModelIdentity, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._path = path
        self._model = model_key(identity)
        self._dimension = identity.dimension
        self._say = say
        self._connection: sqlite3.Connection | None = None
        self._unusable = False

    def get(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors of those texts that it holds undamaged."""
        out: dict[str, np.ndarray] = {}
        # No file, nothing kept: asking must not make one.
        if self._unusable or not self._path.exists():
            return out
        try:
            for some in _slices(sorted(set(hashes))):
                out.update(self._get(self._open(), some))
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
        return out

    def put(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Keep the vectors, each by the hash of its text."""
        if self._unusable:
            return
        entries = [self._entry(h, v) for h, v in vectors.items()]
        try:
            with self._open() as transaction:
                transaction.executemany(
                    "INSERT OR REPLACE INTO embedding VALUES (?, ?, ?, ?, ?)", entries
                )
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self._path)
        return self._connection

    def _get(self, connection: sqlite3.Connection, hashes: Sequence[str]) -> dict[str, np.ndarray]:
        marks = ",".join("?" * len(hashes))
        rows = connection.execute(
            f"SELECT hash, vector, crc, used FROM embedding WHERE model = ? AND hash IN ({marks})",
            (self._model, *hashes),
        ).fetchall()
        self._touch(connection, [h for h, _, _, used in rows if used < _today()])
        return {h: np.frombuffer(v, "<f4") for h, v, crc, _ in rows if self._intact(v, crc)}

    def _touch(self, connection: sqlite3.Connection, hashes: Sequence[str]) -> None:
        if hashes:
            with connection as transaction:
                transaction.executemany(
                    "UPDATE embedding SET used = ? WHERE model = ? AND hash = ?",
                    [(_today(), self._model, h) for h in hashes],
                )

    def _entry(self, text_hash: str, vector: np.ndarray) -> tuple[str, str, bytes, int, int]:
        content = np.asarray(vector, "<f4").tobytes()
        return self._model, text_hash, content, zlib.crc32(content), _today()

    def _intact(self, content: object, crc: object) -> bool:
        return (
            isinstance(content, bytes)
            and len(content) == 4 * self._dimension
            and zlib.crc32(content) == crc
        )

    def _give_up(self, error: Exception) -> None:
        self.close()
        self._unusable = True
        self._say(
            f"{self._path} cannot be used ({error}): texts are embedded again; "
            "remove the file when it is damaged"
        )


def model_key(identity: ModelIdentity) -> str:
    """What a model's entries are kept under: equal exactly for equal identities."""
    text = json.dumps(identity.as_dict(), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(TABLE)
        connection.commit()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _slices(hashes: Sequence[str]) -> Iterator[Sequence[str]]:
    return (hashes[i : i + SLICE] for i in range(0, len(hashes), SLICE))


def _today() -> int:
    return int(time.time()) // DAY * DAY
