"""The builds of one index in a folder, on this machine or in S3.

    g1.json          {"format": 1, "generation": 1, "table": "g1-3f0c…"}
    g1-3f0c…/        the Hudi table of that generation
    staging/3f0c…/   Parquet files on their way into a table
    pins/3f0c…       a state that is being read
    lock             locked by the process that writes, or its lease

A builder writes its own table and then claims the generation's number with the small file, which
can be created only once. The highest claimed generation is the active one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from lakewake.errors import IndexDamaged, OutcomeUnknown, StoreError, StoreUnreachable
from lakewake.net.conditional import Unsure
from lakewake.store.hints import rebuild
from lakewake.store.location import Folder, Location

FORMAT = 1
#: Staging folders and pins that no live process can need any more are removed at this age.
FORGOTTEN = 24 * 3600.0
STAGING, PINS = "staging", "pins"
_CLAIM = re.compile(r"g([1-9][0-9]*)\.json")
_TABLE = re.compile(r"g([1-9][0-9]*)-.+")


@dataclass(frozen=True)
class Generations:
    """The generations of the index in a folder."""

    location: Location
    name: str

    def active(self) -> tuple[int, str]:
        """The active generation and the name of its table; 0 if there is none.

        Raises:
            IndexDamaged: the small file cannot be read.
        """
        number = self.highest()
        if not number:
            return 0, ""
        claim = _claim(number)
        with reaching(self.location, self.name):
            content = self.location.read(claim) or b""
        try:
            return number, _table_of(content, number)
        except ValueError as error:
            raise IndexDamaged(
                f"{self.location.address(claim)} does not name the table of generation {number}: "
                f"{error}",
                hint=rebuild(self.name),
            ) from error

    def highest(self) -> int:
        """The highest claimed number, whatever became of its table."""
        with reaching(self.location, self.name):
            return max(self._claims(), default=0)

    def without_commit(self, table: str) -> IndexDamaged:
        """What to raise about a table without a commit."""
        with reaching(self.location, self.name):
            gone = self.location.missing([f"{table}/.hoodie/hoodie.properties"])
        address = self.location.address(table)
        fact = f"{address} has no completed commit"
        if gone:
            fact = f"index '{self.name}' is gone: {address} is not there"
        return IndexDamaged(fact, hint=rebuild(self.name))

    def new_table(self, number: int) -> str:
        """The name of a table that no other builder uses."""
        return f"g{number}-{uuid4().hex[:12]}"

    def claim(self, number: int, table: str) -> bool:
        """Make a table the generation with this number; False if another has it.

        Raises:
            OutcomeUnknown: it may or may not be.
        """
        value = {"format": FORMAT, "generation": number, "table": table}
        with writing(self.location, self.name):
            try:
                return self.location.create(_claim(number), json.dumps(value).encode())
            except Unsure as error:
                raise OutcomeUnknown(
                    f"it is not known whether generation {number} of index '{self.name}' is "
                    f"active: {error}",
                    landed="the build may or may not have landed",
                    hint=f"run `lakewake sync {self.name}` again to find out",
                ) from error

    def retire(self, before: int) -> int:
        """Remove the generations with lower numbers, and tables that were never claimed."""
        with writing(self.location, self.name):
            former = [_claim(n) for n in self._claims() if n < before]
            if former:
                self.location.discard("", former)
            kept = {_table_of(self.location.read(_claim(n)) or b"", n) for n in self._claims()}
            tables = {n: int(m[1]) for n in self.location.names() if (m := _TABLE.fullmatch(n))}
            gone = [
                table
                for table, number in tables.items()
                if table not in kept and (number < before or self._is_forgotten(table))
            ]
            for table in gone:
                self.location.remove(table)
        return len(gone)

    @contextmanager
    def staging(self) -> Iterator[str]:
        """The name of a folder for Parquet files, until the context ends."""
        folder = f"{STAGING}/{uuid4().hex}"
        with writing(self.location, self.name):
            self.location.prepare(folder)
        try:
            yield folder
        finally:
            # What is left here is removed later.
            with suppress(OSError):
                self.location.remove(folder)

    def is_pinned(self) -> bool:
        """Whether a state is being read that cleaning must not touch."""
        with reaching(self.location, self.name):
            pins = self.location.times(PINS)
            old = [name for name, at in pins.items() if time.time() - at > FORGOTTEN]
            if old:
                self.location.discard(PINS, old)
        return len(pins) > len(old)

    def forget(self) -> None:
        """Remove what killed processes left behind."""
        with writing(self.location, self.name):
            for folder in self.location.names(STAGING):
                if self._is_forgotten(f"{STAGING}/{folder}"):
                    self.location.remove(f"{STAGING}/{folder}")

    def _claims(self) -> list[int]:
        names = self.location.names()
        if not names:
            self.location.check()
        return [int(m[1]) for name in names if (m := _CLAIM.fullmatch(name))]

    def _is_forgotten(self, folder: str) -> bool:
        """Whether a folder is so old that nobody needs it."""
        now, (parent, _, name) = time.time(), folder.rpartition("/")
        own = self.location.times(parent).get(name)
        if own is None:
            # A folder in S3 has no time of its own.
            inside = [*self.location.times(folder).values()]
            inside += self.location.times(f"{folder}/.hoodie").values()
            own = max(inside, default=now)
        return now - own > FORGOTTEN


@contextmanager
def reaching(location: Location, name: str) -> Iterator[None]:
    """Map the errors of a location that is read."""
    try:
        yield
    except OSError as error:
        raise StoreUnreachable(
            f"index '{name}' cannot be reached in {location.address()}: {error}",
            hint=_hint(location),
        ) from error


@contextmanager
def writing(location: Location, name: str) -> Iterator[None]:
    """Map the errors of a location that is written."""
    try:
        yield
    except OSError as error:
        local = isinstance(location, Folder)
        raise (StoreError if local else StoreUnreachable)(
            f"index '{name}' cannot be written in {location.address()}: {error}",
            hint=location.hint,
        ) from error


def _hint(location: Location) -> str:
    readable = "check that the folder can be read, then try again"
    return readable if isinstance(location, Folder) else location.hint


def _claim(number: int) -> str:
    return f"g{number}.json"


def _table_of(content: bytes, number: int) -> str:
    value = json.loads(content)
    if value.get("format") != FORMAT or value.get("generation") != number:
        raise ValueError(f"it holds {content[:80]!r}")
    return str(value["table"])
