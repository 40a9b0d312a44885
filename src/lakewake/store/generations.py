"""The builds of one index in a folder, and the small file that names the active one.

    wines.json       {"format": 1, "generation": 1, "dataset": "wines.g1.lance"}
    wines.g1.lance   a generation; whole as soon as it has a manifest

A builder may die between the two. So the file is a name, not the proof: where it is missing, or
names a generation that is gone, the highest whole generation is the active one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from lakewake.errors import StoreError

FORMAT = 1


@dataclass(frozen=True)
class Generations:
    """Where the generations of one index lie."""

    folder: Path
    name: str

    @property
    def pointer(self) -> Path:
        """The file that names the active generation."""
        return self.folder / f"{self.name}.json"

    def dataset(self, number: int) -> Path:
        """Where a generation lies, or would."""
        return self.folder / dataset_name(self.name, number)

    def numbers(self) -> list[int]:
        """The generations that lie there, whole or not, ascending."""
        if not self.folder.is_dir():
            return []
        found = (generation_number(self.name, p.name) for p in self.folder.iterdir())
        return sorted(n for n in found if n is not None)

    def named(self) -> int:
        """The generation that the pointer names, 0 where there is no pointer.

        Raises:
            StoreError: it cannot be read, or says something else.
        """
        try:
            return parse_pointer(self.pointer.read_bytes(), self.name)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.pointer} does not name a generation of index '{self.name}': {error}",
                hint=f"remove {self.pointer}; the newest whole generation is then used",
            ) from error

    def active(self) -> int:
        """The number of the active generation, 0 when there is none (any more)."""
        named = self.named()
        return named if named and manifests(self.dataset(named)) else self.newest()

    def newest(self) -> int:
        """The highest whole generation, whatever the pointer says; 0 when there is none."""
        return max((n for n in self.numbers() if manifests(self.dataset(n))), default=0)

    def replaceable(self) -> int:
        """The generation that a build comes after: also where the pointer is damaged."""
        try:
            return self.active()
        except StoreError:
            return self.newest()

    def switch(self, number: int) -> bool:
        """Name a generation as the active one, unless that or a later one is named already.

        The file is replaced in one step: a reader sees the old text or the new one.
        """
        # A damaged pointer is replaced: only a rebuild that was asked for comes here with one.
        with suppress(StoreError):
            named = self.named()
            if named >= number and manifests(self.dataset(named)):
                return False
        fresh = self.folder / f".{self.name}.{uuid4().hex}.json"
        try:
            _write_through(fresh, pointer_text(self.name, number))
            fresh.replace(self.pointer)
        finally:
            fresh.unlink(missing_ok=True)
        _flush_folder(self.folder)
        return True

    def retire(self, before: int) -> int:
        """Delete the generations with lower numbers; how many there were."""
        retired = [n for n in self.numbers() if n < before]
        for number in retired:
            # Manifests first: what a killed deletion leaves is no generation any more.
            shutil.rmtree(self.dataset(number) / "_versions", ignore_errors=True)
            shutil.rmtree(self.dataset(number), ignore_errors=True)
        return len(retired)

    @contextmanager
    def mark(self) -> Iterator[Path]:
        """A file of a name that is nowhere else, to know the folder by; gone with the context."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.folder / f".{self.name}.{uuid4().hex}.here"
        mark.touch()
        try:
            yield mark
        finally:
            mark.unlink(missing_ok=True)


def dataset_name(name: str, number: int) -> str:
    """The folder name of a generation."""
    return f"{name}.g{number}.lance"


def generation_number(name: str, entry: str) -> int | None:
    """The inverse of `dataset_name`, None for any other name."""
    match = re.fullmatch(re.escape(name) + r"\.g([1-9][0-9]*)\.lance", entry)
    return int(match[1]) if match else None


def pointer_text(name: str, number: int) -> bytes:
    """What the pointer file says."""
    value = {"format": FORMAT, "generation": number, "dataset": dataset_name(name, number)}
    return json.dumps(value).encode()


def parse_pointer(text: bytes, name: str) -> int:
    """The inverse of `pointer_text`.

    Raises:
        ValueError: not the text of a pointer of this index and format.
    """
    value: Any = json.loads(text)
    number = value.get("generation") if isinstance(value, dict) else None
    if type(number) is not int or json.loads(pointer_text(name, number)) != value:
        raise ValueError(f"it says {text[:80]!r}")
    return number


def manifests(dataset: Path) -> list[Path]:
    """The versions of a Lance dataset; none where a build was cut off or nothing lies there."""
    return list((dataset / "_versions").glob("*.manifest"))


def version_times(dataset: Path) -> list[float]:
    """When the versions of a Lance dataset were written, in seconds since the epoch."""
    times = []
    for manifest in manifests(dataset):
        # Someone else may be dropping old versions right now.
        with suppress(FileNotFoundError):
            times.append(manifest.stat().st_mtime)
    return times


def _write_through(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # The rename itself is durable only once the folder is.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
