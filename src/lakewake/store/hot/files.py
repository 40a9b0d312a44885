"""The base of the hot tier in files beside the index: a sync writes them, many processes map them.

    wines.hot/current.json     which base is in use, and the size and checksum of each of its files
    wines.hot/3f0c…/           a base: vectors, lengths, columns, cells, and where its pieces are

The files only save time. If they are damaged, of another index or of another version of Lakewake,
they count as absent, and the next sync that may write them does so. A base is written under a name
of its own before `current.json` names it, so a writer that is killed leaves nothing that counts.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakewake.files import write_whole
from lakewake.model.drop import Dropped
from lakewake.model.recall import Effort, Probed
from lakewake.store import StoreReader
from lakewake.store.hot.base import Base, Mark
from lakewake.store.hot.cells import Cells
from lakewake.store.hot.rows import HeldRows, large, shown_schema

#: Change it if the files change.
FORMAT = 1
ENDING, CURRENT, LOCK = ".hot", "current.json", "lock"
VECTORS, LENGTHS, COLUMNS, CENTRES, STARTS, PLACES, MARKS, NUMBERS = FILES = (
    *("vectors", "lengths", "columns.arrow", "centres"),
    *("starts", "places", "marks.json", "numbers"),
)
#: A base that no `current.json` names is left over from a writer that was killed after this time.
ABANDONED = 3600.0
#: What is raised if a file is not what it should be.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, pa.ArrowException)
#: Bytes that a checksum reads at the same time.
BLOCK = 8 * 1024 * 1024


class HotFiles:
    """The files of one index in a local folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / f"{name}{ENDING}"

    def current(self) -> Mapping[str, Any] | None:
        """What `current.json` holds; None if there is none that this Lakewake reads."""
        with suppress(OSError, ValueError):
            value = json.loads((self._folder / CURRENT).read_bytes())
            if isinstance(value, dict) and value.get("format") == FORMAT:
                return value
        return None

    def token(self) -> str:
        """The name of the base in use; '' if there is none."""
        return str((self.current() or {}).get("base", ""))

    def write(self, base: Base, reader: StoreReader) -> bool:
        """Write a base and put it in use; False if another process is writing one.

        Raises:
            OSError: it cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked() as is_ours:
            if not is_ours:
                return False
            former, token = self.token(), uuid4().hex
            inside = self._folder / token
            inside.mkdir()
            _write(base, inside)
            about = _about(base, reader) | {"format": FORMAT, "base": token}
            about["files"] = {name: _fingerprint(inside / name) for name in FILES}
            write_whole(self._folder / CURRENT, json.dumps(about).encode())
            self._tidy({token}, {former})
        return True

    def read(self, reader: StoreReader) -> Base | None:
        """The base in use, mapped; None if it is of another index, damaged or absent."""
        for _ in range(2):
            about = self.current()
            if about is None or not _fits(about, reader):
                return None
            with suppress(*UNREADABLE):
                return _mapped(about, self._folder / str(about["base"]), reader)
            if about["base"] == self.token():
                return None
        return None

    def drop(self, *, dry_run: bool = False) -> Dropped:
        """Remove all of them."""
        if not self._folder.is_dir():
            return Dropped()
        if not dry_run:
            with suppress(OSError):
                (self._folder / CURRENT).unlink()
            shutil.rmtree(self._folder, ignore_errors=True)
        return Dropped(removed=(str(self._folder),))

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether no other process writes. The lock of a process that is killed is released."""
        with (self._folder / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def _tidy(self, kept: set[str], former: set[str]) -> None:
        """Remove the base before this one, and what killed writers left."""
        before = time.time() - ABANDONED
        for entry in self._folder.iterdir():
            with suppress(OSError):
                old = entry.name in former or entry.stat().st_mtime < before
                if entry.is_dir() and entry.name not in kept and old:
                    shutil.rmtree(entry, ignore_errors=True)


def _write(base: Base, folder: Path) -> None:
    base.rows.vectors.astype("<f4", copy=False).tofile(folder / VECTORS)
    base.rows.lengths.astype("<f4", copy=False).tofile(folder / LENGTHS)
    columns = base.rows.columns
    with (
        pa.OSFile(str(folder / COLUMNS), "wb") as sink,
        pa.ipc.new_file(sink, columns.schema) as out,
    ):
        out.write_batch(columns)
    assert base.cells is not None
    assert base.places is not None
    base.cells.centres.astype("<f4", copy=False).tofile(folder / CENTRES)
    base.cells.starts.astype("<i8", copy=False).tofile(folder / STARTS)
    base.places.astype("<i4", copy=False).tofile(folder / PLACES)
    marks = [[name, mark.start, len(mark.numbers)] for name, mark in base.marks.items()]
    (folder / MARKS).write_text(json.dumps(marks))
    numbers = [mark.numbers for mark in base.marks.values()]
    every = np.concatenate(numbers) if numbers else np.empty(0)
    every.astype("<u4").tofile(folder / NUMBERS)


def _about(base: Base, reader: StoreReader) -> dict[str, Any]:
    return {
        "fingerprint": reader.recipe().fingerprint,
        "generation": reader.generation,
        "instant": reader.frontier().newest,
        "chunks": len(base.rows),
        "bytes": base.nbytes,
        "probed": asdict(base.probed) if base.probed else None,
        "why": base.why,
    }


def _fits(about: Mapping[str, Any], reader: StoreReader) -> bool:
    """Whether it is of this index."""
    wanted = (reader.recipe().fingerprint, reader.generation)
    return (about.get("fingerprint"), about.get("generation")) == wanted


def _mapped(about: Mapping[str, Any], folder: Path, reader: StoreReader) -> Base:
    for name, wanted in about["files"].items():
        if name not in FILES or _fingerprint(folder / name) != wanted:
            raise ValueError(f"{name} is damaged")
    count, recipe = int(about["chunks"]), reader.recipe()
    vectors = _array(folder / VECTORS, "<f4").reshape(count, recipe.model.dimension)
    with pa.memory_map(str(folder / COLUMNS)) as source:
        columns = pa.ipc.open_file(source).get_batch(0)
    if not columns.schema.equals(large(shown_schema(reader.schema()))) or len(columns) != count:
        raise ValueError("it has other columns")
    rows = HeldRows(vectors, columns)
    rows.__dict__["lengths"] = _array(folder / LENGTHS, "<f4")
    numbers, marks, read = _array(folder / NUMBERS, "<u4"), {}, 0
    for name, start, size in json.loads((folder / MARKS).read_text()):
        marks[str(name)] = Mark(int(start), numbers[read : read + size])
        read += size
    base = Base(recipe.metric, rows, marks, why=str(about["why"]), token=str(about["base"]))
    centres = _array(folder / CENTRES, "<f4").reshape(-1, recipe.model.dimension)
    cells = Cells(recipe.metric, centres, _array(folder / STARTS, "<i8"))
    probed = Probed(**{**about["probed"], "effort": Effort(**about["probed"]["effort"])})
    return replace(base, places=_array(folder / PLACES, "<i4"), cells=cells, probed=probed)


def _array(path: Path, dtype: str) -> np.ndarray:
    if not path.stat().st_size:
        return np.empty(0, dtype)
    # A plain array: each look at a `memmap` takes longer.
    return np.asarray(np.memmap(path, dtype, "r"))


def _fingerprint(path: Path) -> list[int]:
    """The size and a checksum of a file."""
    size = total = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            size, total = size + len(block), zlib.crc32(block, total)
    return [size, total]
