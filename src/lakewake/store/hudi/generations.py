"""The builds of one index in a folder, on this machine or in S3.

    g1.json          {"format": 1, "generation": 1, "table": "g1-3f0c…"}
    g2.json          the same, and if generation 1 was retrained: "former": 1, "since": "2025…"
    g1-3f0c…/        the Hudi table of that generation
    staging/3f0c…/   Parquet files on their way into a table
    pins/3f0c…       a state that is being read
    lock             locked by the process that writes, or its lease
    g2.json          {"format": 1, "generation": 2, "table": "", "dropped": true}

A builder writes its own table and then claims the generation's number with the small file, which
can be created only once. The highest claimed generation is the active one. A drop claims the next
number for nothing, so a builder that still runs cannot have it.
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
STAGING, PINS, WORDS = "staging", "pins", "words"
#: In the claim of a drop.
DROPPED = b'"dropped": true'
_CLAIM = re.compile(r"g([1-9][0-9]*)\.json")
_TABLE = re.compile(r"g([1-9][0-9]*)-.+")


@dataclass(frozen=True)
class Generation:
    """One generation, as its small file names it.

    Attributes:
        number: 0 if there is none.
        former: the generation that it was retrained from; 0 if it was built from the table.
        since: its first state that anybody read, if it was retrained.
    """

    number: int = 0
    table: str = ""
    former: int = 0
    since: str = ""

    def to_bytes(self) -> bytes:
        """The content of its file."""
        value = {"format": FORMAT, "generation": self.number, "table": self.table}
        more = {"former": self.former, "since": self.since} if self.former else {}
        return json.dumps(value | more).encode()

    @classmethod
    def from_bytes(cls, content: bytes, number: int) -> Generation:
        """The inverse of `to_bytes`.

        Raises:
            ValueError: it is the file of another generation, or of none.
        """
        value = json.loads(content)
        if value.get("format") != FORMAT or value.get("generation") != number:
            raise ValueError(f"it holds {content[:80]!r}")
        former, since = int(value.get("former", 0)), str(value.get("since", ""))
        return cls(number, str(value["table"]), former, since)


@dataclass(frozen=True)
class Generations:
    """The generations of the index in a folder."""

    location: Location
    name: str

    def active(self) -> Generation:
        """The active generation; number 0 if there is none, or it was dropped.

        Raises:
            IndexDamaged: the small file cannot be read.
        """
        number = self.highest()
        found = self._claimed(number) if number else Generation()
        return found if found.table else Generation()

    def lineage(self) -> Iterator[Generation]:
        """The active generation, then those that it was retrained from, as far as they are kept."""
        one = self.active()
        while one.number:
            yield one
            content = self._read(one.former) if one.former else b""
            one = self._parsed(one.former, content) if content else Generation()

    def _claimed(self, number: int) -> Generation:
        return self._parsed(number, self._read(number))

    def _read(self, number: int) -> bytes:
        with reaching(self.location, self.name):
            return self.location.read(_claim(number)) or b""

    def _parsed(self, number: int, content: bytes) -> Generation:
        try:
            return Generation.from_bytes(content, number)
        except ValueError as error:
            address = self.location.address(_claim(number))
            raise IndexDamaged(
                f"{address} does not name the table of generation {number}: {error}",
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

    def claim(self, one: Generation) -> bool:
        """Make a table the generation with its number; False if another has it.

        Raises:
            OutcomeUnknown: it may or may not be.
        """
        with writing(self.location, self.name):
            try:
                return self.location.create(_claim(one.number), one.to_bytes())
            except Unsure as error:
                raise OutcomeUnknown(
                    f"it is not known whether generation {one.number} of index '{self.name}' is "
                    f"active: {error}",
                    landed="the build may or may not have landed",
                    hint=f"run `lakewake sync {self.name}` again to find out",
                ) from error

    def unclaim(self, number: int) -> None:
        """Give a number back that is not the highest."""
        self.location.discard("", [_claim(number)])

    def is_dropped(self) -> bool:
        """Whether the last that was done to the index was to drop it."""
        with reaching(self.location, self.name):
            number = max(self._claims(), default=0)
            content = self.location.read(_claim(number)) if number else None
        return content is not None and DROPPED in content

    def claim_for_nothing(self, number: int) -> bool:
        """Claim a number so that no builder can; False if another has it."""
        value = {"format": FORMAT, "generation": number, "table": "", "dropped": True}
        return self.location.create(_claim(number), json.dumps(value).encode())

    def retire(self, before: int) -> int:
        """Remove the generations with lower numbers, and tables that were never claimed."""
        with writing(self.location, self.name):
            former = [_claim(n) for n in self._claims() if n < before]
            if former:
                self.location.discard("", former)
            kept = {self._claimed(n).table for n in self._claims()}
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
