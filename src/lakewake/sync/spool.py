"""Temporary files for what is too large for memory."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO

from lakewake.errors import StoreError

#: Ids that are held in memory; more go to a file.
HELD_IDS = 100_000


class Ids(Collection[str]):
    """Chunk ids, each once, that can be iterated again. Most of a large set is in a file."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._count = 0
        self._file: IO[bytes] | None = None

    def add(self, ids: Collection[str]) -> None:
        """Add some more."""
        self._held += ids
        self._count += len(ids)
        if len(self._held) > HELD_IDS:
            # A file without a name is removed when the process ends, however that happens.
            with spooling():
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="lakewake-")  # noqa: SIM115
                pickle.dump(self._held, self._file)
            self._held = []

    def __iter__(self) -> Iterator[str]:
        """All of them, in the order in which they were added."""
        return chain(self._spooled(), self._held)

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def __contains__(self, id: object) -> bool:
        """Whether it is among them. This reads all of them."""
        return any(one == id for one in self)

    def _spooled(self) -> Iterator[str]:
        if self._file is None:
            return
        self._file.flush()
        end, at = self._file.tell(), 0
        while at < end:
            self._file.seek(at)
            some: list[str] = pickle.load(self._file)
            at = self._file.tell()
            self._file.seek(end)
            yield from some


@contextmanager
def spooling() -> Iterator[None]:
    """Turn a failure to write a temporary file into a `StoreError`."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "any temporary folder"
        raise StoreError(
            f"cannot write the batch to {folder}: {error.strerror or error}",
            hint="free some space, or set TMPDIR to a folder that has it",
        ) from error
