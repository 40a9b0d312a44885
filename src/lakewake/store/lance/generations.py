"""The builds of one index in a folder, and the small file that names the active one.

    wines.json       {"format": 1, "generation": 1, "dataset": "wines.g1.lance"}
    wines.g1.lance   a generation; whole as soon as it has a manifest

A builder may die between the two. So the file is a pointer, not the proof: if it is missing, or
names a generation that is gone, the highest whole generation is the active one.

    wines.g1.lance/_versions/dropped.manifest

A generation with this mark was dropped. It does not count, whatever a writer adds to it later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

from lakewake.errors import StoreError, StoreUnreachable
from lakewake.store.location import Location, Stamp

FORMAT = 1
#: How the names of manifests end; each version of a dataset has one manifest.
MANIFEST = ".manifest"
#: Ends like a manifest, so that the listing of the versions shows it.
DROPPED = f"dropped{MANIFEST}"


@dataclass(frozen=True)
class Generations:
    """The generations of one index.

    All methods raise `StoreError` if the location cannot be reached.
    """

    location: Location
    name: str

    def address(self, number: int) -> str:
        """The address of a generation, whether it exists or not."""
        return self.location.address(dataset_name(self.name, number))

    def numbers(self) -> list[int]:
        """The generations that exist, whole or not, ascending."""
        with self._reaching():
            found = [generation_number(self.name, entry) for entry in self.location.names()]
        return sorted(n for n in found if n is not None)

    def version_times(self, number: int) -> list[float]:
        """When a generation's versions were written, in seconds since 1970, in order."""
        with self._reaching():
            return sorted(self.location.times(self._versions(number), MANIFEST).values())

    def stamp(self, number: int) -> Stamp:
        """A value that stays equal while no version of the generation is added or removed.

        Empty if a build was interrupted, or there is no such generation, or it was dropped.
        """
        with self._reaching():
            found = self.location.stamp(self._versions(number), MANIFEST)
        return () if any(DROPPED in _names(part) for part in found) else found

    def whole(self, number: int) -> bool:
        """Whether a generation was built to its end."""
        return bool(self.stamp(number))

    def is_dropped(self, number: int) -> bool:
        """Whether a generation has the mark of a drop."""
        with self._reaching():
            return DROPPED in self.location.names(self._versions(number))

    def mark_dropped(self, number: int) -> str:
        """Make a generation count no more, for good; return the name of the mark."""
        mark = f"{self._versions(number)}/{DROPPED}"
        with self._reaching():
            self.location.prepare(self._versions(number))
            self.location.replace(mark, b"")
        return mark

    def check(self) -> None:
        """Raise if there can be no index at this location."""
        with self._reaching():
            self.location.check()

    def named(self) -> int:
        """The generation that the pointer names; 0 if there is no pointer.

        Raises:
            StoreError: the pointer is damaged.
        """
        try:
            return self.read_pointer()
        except ValueError as error:
            location = self.location.address(self._pointer)
            raise StoreError(
                f"{location} does not name a generation of index '{self.name}': {error}",
                hint=f"remove {location}; then the newest whole generation is used",
            ) from error

    def active(self) -> int:
        """The number of the active generation; 0 if there is none (any more)."""
        return self.active_and_stamp()[0]

    def active_and_stamp(self) -> tuple[int, Stamp]:
        """The active generation and the stamp of its versions."""
        return self._else_newest(self.named())

    def newest(self) -> int:
        """The highest whole generation, whatever the pointer names; 0 if there is none."""
        return max((n for n in self.numbers() if self.whole(n)), default=0)

    def replaceable(self) -> int:
        """The generation that a build follows, even if the pointer is damaged or it was dropped."""
        try:
            active = self._else_newest(self.read_pointer())[0]
        except ValueError:
            active = self.newest()
        return active or max((n for n in self.numbers() if self.is_dropped(n)), default=0)

    def switch(self, number: int) -> bool:
        """Make a generation the active one, unless that or a later one is named already.

        The pointer is replaced in one step: a reader sees either the old text or the new.

        Raises:
            OSError: it could not be written.
        """
        # A damaged pointer is replaced: only an explicit rebuild gets here with one.
        with suppress(ValueError):
            named = self.read_pointer()
            if named >= number and self.whole(named):
                return False
        self.location.replace(self._pointer, pointer_text(self.name, number))
        return True

    def retire(self, before: int) -> int:
        """Delete the generations with lower numbers; return how many there were."""
        retired = [dataset_name(self.name, n) for n in self.numbers() if n < before]
        with self._reaching():
            for dataset in retired:
                # Manifests first: a generation without them no longer counts if this is killed.
                self.location.remove(f"{dataset}/_versions")
                self.location.remove(dataset)
        return len(retired)

    @contextmanager
    def mark(self) -> Iterator[str]:
        """Create a file with a unique name, to recognise the folder by, until the context ends."""
        own = f".{self.name}.{uuid4().hex}.here"
        self.location.prepare()
        self.location.replace(f"{own}/mark", b"")
        try:
            yield f"{own}/mark"
        finally:
            # Whatever needed the file is done, or has raised its own error.
            with suppress(OSError):
                self.location.remove(own)

    @property
    def _pointer(self) -> str:
        return f"{self.name}.json"

    def read_pointer(self) -> int:
        """The generation that the pointer names; raises `ValueError` if it is damaged."""
        with self._reaching():
            text = self.location.read(self._pointer)
        return 0 if text is None else parse_pointer(text, self.name)

    def _else_newest(self, named: int) -> tuple[int, Stamp]:
        if named and (stamp := self.stamp(named)):
            return named, stamp
        newest = self.newest()
        return newest, self.stamp(newest) if newest else ()

    def _versions(self, number: int) -> str:
        return f"{dataset_name(self.name, number)}/_versions"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnreachable(
                f"index '{self.name}' cannot be reached in {self.location.address()}: {error}",
                hint=self.location.hint,
            ) from error


def _names(part: object) -> tuple[object, ...]:
    """The name in a part of a stamp, which may have a time beside it."""
    return part if isinstance(part, tuple) else (part,)


def dataset_name(name: str, number: int) -> str:
    """The folder name of a generation."""
    return f"{name}.g{number}.lance"


def generation_number(name: str, entry: str) -> int | None:
    """The inverse of `dataset_name`, None for any other name."""
    match = re.fullmatch(re.escape(name) + r"\.g([1-9][0-9]*)\.lance", entry)
    return int(match[1]) if match else None


def pointer_text(name: str, number: int) -> bytes:
    """The content of the pointer file."""
    value = {"format": FORMAT, "generation": number, "dataset": dataset_name(name, number)}
    return json.dumps(value).encode()


@lru_cache(maxsize=64)
def parse_pointer(text: bytes, name: str) -> int:
    """The inverse of `pointer_text`.

    Raises:
        ValueError: not a pointer of this index in this format.
    """
    value: Any = json.loads(text)
    number = value.get("generation") if isinstance(value, dict) else None
    if type(number) is not int or json.loads(pointer_text(name, number)) != value:
        raise ValueError(f"it holds {text[:80]!r}")
    return number
