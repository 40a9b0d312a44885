"""The builds of one index in a folder.

    g1.json          {"format": 1, "generation": 1, "table": "g1-3f0c…"}
    g1-3f0c…/        the Hudi table of that generation
    staging/3f0c…/   Parquet files on their way into a table
    pins/3f0c…       a state that is being read
    lock             locked by the process that writes

A builder writes its own table and then claims the generation's number with the small file, which
can be created only once. The highest claimed generation is the active one.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lakewake.errors import IndexDamaged, StoreError, StoreUnreachable
from lakewake.store.hints import rebuild

FORMAT = 1
#: Staging folders and pins that no live process can need any more are removed at this age.
FORGOTTEN = 24 * 3600.0
#: How long a writer waits for another one.
PATIENCE = 600.0
_CLAIM = re.compile(r"g([1-9][0-9]*)\.json")


@dataclass(frozen=True)
class Generations:
    """The generations of the index in a folder."""

    folder: Path
    name: str

    def active(self) -> tuple[int, Path]:
        """The active generation and its table; 0 if there is none.

        Raises:
            IndexDamaged: its table is gone, or the small file cannot be read.
        """
        with self._reaching():
            number = max((n for n, _ in self._claims()), default=0)
            if not number:
                return 0, self.folder
            claim = self.folder / f"g{number}.json"
            try:
                table = self.folder / _table_of(claim.read_bytes(), number)
            except ValueError as error:
                raise IndexDamaged(
                    f"{claim} does not name the table of generation {number}: {error}",
                    hint=rebuild(self.name),
                ) from error
        if not (table / ".hoodie" / "hoodie.properties").is_file():
            raise IndexDamaged(
                f"index '{self.name}' is gone: {table} is not there",
                hint=rebuild(self.name),
            )
        return number, table

    def highest(self) -> int:
        """The highest claimed number, whatever became of its table."""
        with self._reaching():
            return max((n for n, _ in self._claims()), default=0)

    def new_table(self, number: int) -> Path:
        """The folder for a table that no other builder uses."""
        return self.folder / f"g{number}-{uuid4().hex[:12]}"

    def claim(self, number: int, table: Path) -> bool:
        """Make a table the generation with this number; False if another has it."""
        value = {"format": FORMAT, "generation": number, "table": table.name}
        draft = self.folder / f".{uuid4().hex}"
        with self._writing():
            draft.write_text(json.dumps(value))
            try:
                # A link is created only if its name is free, and with the whole content.
                os.link(draft, self.folder / f"g{number}.json")
            except FileExistsError:
                return False
            finally:
                draft.unlink()
        return True

    def retire(self, before: int) -> int:
        """Remove the generations with lower numbers, and tables that were never claimed."""
        gone = 0
        for number, claim in self._claims():
            if number < before:
                claim.unlink(missing_ok=True)
        kept = {_table_of(claim.read_bytes(), n) for n, claim in self._claims()}
        for table in self.folder.glob("g*-*"):
            if table.name not in kept and (_age(table) > FORGOTTEN or _number(table) < before):
                shutil.rmtree(table, ignore_errors=True)
                gone += 1
        return gone

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder for Parquet files, until the context ends."""
        folder = self.folder / "staging" / uuid4().hex
        with self._writing():
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def is_pinned(self) -> bool:
        """Whether a state is being read that cleaning must not touch."""
        pins = list((self.folder / "pins").glob("*"))
        for pin in pins:
            if _age(pin) > FORGOTTEN:
                pin.unlink(missing_ok=True)
        return any(_age(pin) <= FORGOTTEN for pin in pins)

    def forget(self) -> None:
        """Remove what killed processes left behind."""
        for folder in (self.folder / "staging").glob("*"):
            if _age(folder) > FORGOTTEN:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lock(self, patience: float = PATIENCE) -> Iterator[None]:
        """Let no other process write. The system releases the lock when a process ends.

        Raises:
            StoreError: another process still writes after `patience` seconds.
        """
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("wb")
        with file:
            until = time.monotonic() + patience
            while not _locked(file.fileno()):
                if time.monotonic() > until:
                    raise StoreError(
                        f"another process has been writing index '{self.name}' for "
                        f"{patience:.0f} seconds",
                        hint="find out what else syncs this index; then sync again",
                    )
                time.sleep(0.02)
            yield

    def _claims(self) -> list[tuple[int, Path]]:
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError("it is a file, but the store needs a folder there")
        found = self.folder.glob("g*.json") if self.folder.is_dir() else ()
        return [(int(m[1]), path) for path in found if (m := _CLAIM.fullmatch(path.name))]

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnreachable(
                f"index '{self.name}' cannot be reached in {self.folder}: {error}",
                hint="check that the folder can be read, then try again",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"index '{self.name}' cannot be written in {self.folder}: {error}",
                hint="check that the folder is writable and the disk has room, then sync again",
            ) from error


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _table_of(content: bytes, number: int) -> str:
    value = json.loads(content)
    if value.get("format") != FORMAT or value.get("generation") != number:
        raise ValueError(f"it holds {content[:80]!r}")
    return str(value["table"])


def _number(table: Path) -> int:
    match = re.match(r"g([0-9]+)-", table.name)
    return int(match[1]) if match else 0


def _age(path: Path) -> float:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime
    return 0.0
