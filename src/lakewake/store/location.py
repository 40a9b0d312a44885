"""Where an index lies: a folder of this machine, or one in an object store.

The few things that the names of generations and the history need of either. Both replace a small
file in one step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from pyarrow import fs

from lakewake.errors import ConfigError
from lakewake.files import write_whole
from lakewake.net import s3
from lakewake.net.address import check_address
from lakewake.net.deadline import look

if TYPE_CHECKING:
    from lance.file import LanceFileSession

S3 = "s3://"
#: Objects deleted at the same time: each takes a way to S3 and back.
DELETIONS = 16


Stamp = tuple[object, ...]


class Location(Protocol):
    """A folder. All methods raise `OSError` where it cannot be reached."""

    @property
    def options(self) -> dict[str, str] | None:
        """What Lance has to be told to reach it."""

    @property
    def hint(self) -> str:
        """What a person checks when it cannot be reached."""

    def address(self, name: str = "") -> str:
        """What Lance, and a person, call the folder or something in it."""

    def check(self) -> None:
        """Raise `OSError` where no folder can be: something else lies there."""

    def prepare(self) -> None:
        """Make it ready to be written to."""

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in it, or in a folder of it; nothing where that is not there yet."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None when it is not there."""

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file so that a reader sees the old content or the new one.

        One that need not outlast a power cut is written faster.
        """

    def times(self, folder: str, ending: str) -> list[float]:
        """When the files in a folder whose names end so were written, in seconds since 1970."""

    def stamp(self, folder: str, ending: str) -> Stamp:
        """Equal to another one while no such file came or went; empty where there is none."""

    def remove(self, folder: str) -> None:
        """Delete a folder in it and all below, where it is there."""

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """Delete files of a folder, those that are there."""


def location_at(address: str) -> Location:
    """The place at a path, or at `s3://bucket/folder`.

    Raises:
        ConfigError: neither, or one with a key in it.
    """
    check_address(address, "the folder of the store")
    if address.startswith(S3):
        return Bucket(address.removeprefix(S3), s3.find_s3())
    if "://" in address:
        raise ConfigError(
            f"store folder '{address}' is neither on a local file system nor in S3",
            hint="use a path, as in lance://index, or lance+s3://bucket/folder",
        )
    return Folder(Path(address))


class Folder:
    """A folder of this machine."""

    options = None
    hint = "check that the folder is writable and the disk has room, then sync again"

    def __init__(self, path: Path) -> None:
        self._path = path

    def address(self, name: str = "") -> str:
        """The path."""
        return str(self._path / name)

    def check(self) -> None:
        """Raise where a file lies in its place."""
        if self._path.exists() and not self._path.is_dir():
            raise NotADirectoryError("it is a file, the store needs a folder there")

    def prepare(self) -> None:
        """Make the folder."""
        self._path.mkdir(parents=True, exist_ok=True)

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in it."""
        try:
            return os.listdir(self._path / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes | None:
        """A file's content; None when it is not there."""
        try:
            return (self._path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write beside it and rename."""
        file = self._path / name
        file.parent.mkdir(exist_ok=True)
        write_whole(file, content, lasting=lasting)

    def times(self, folder: str, ending: str) -> list[float]:
        """When the files in a folder were written."""
        times = []
        # Someone else may be dropping old versions, or the whole folder, right now.
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self._path / folder) as found,
        ):
            for file in found:
                with suppress(FileNotFoundError):
                    if file.name.endswith(ending):
                        times.append(file.stat().st_mtime)
        return times

    def stamp(self, folder: str, ending: str) -> Stamp:
        """The names, and when the first was written: those of a folder made again are the same.

        To ask it of each would take a search of an index of many versions a millisecond.
        """
        names = sorted(n for n in self.names(folder) if n.endswith(ending))
        if not names:
            return ()
        try:
            return (os.stat(self._path / folder / names[0]).st_mtime_ns, *names)
        except (FileNotFoundError, NotADirectoryError):
            return (None, *names)

    def remove(self, folder: str) -> None:
        """Delete as much as can be deleted; the next upkeep tries again."""
        shutil.rmtree(self._path / folder, ignore_errors=True)

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """Delete files of a folder."""
        for name in names:
            (self._path / folder / name).unlink(missing_ok=True)


class Bucket:
    """A folder in S3: what is called so there, a common beginning of names."""

    hint = s3.HINT

    def __init__(self, path: str, where: s3.S3) -> None:
        self._path = path.strip("/")
        self._bucket = self._path.split("/", 1)[0]
        self._files = look(lambda: s3.filesystem(where))
        self.options: dict[str, str] | None = s3.lance_options(where)

    def address(self, name: str = "") -> str:
        """The URI: in one a blank or a percent sign must be written otherwise."""
        return S3 + quote(self._below(name))

    def check(self) -> None:
        """Raise where there is no bucket, or it is not ours to look at."""
        if look(lambda: self._files.get_file_info(self._bucket)).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket '{self._bucket}'")

    def prepare(self) -> None:
        """Folders need not be made there, but a bucket is not ours to make."""
        self.check()

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in it."""
        return [found.base_name for found in self._list(folder)]

    def read(self, name: str) -> bytes | None:
        """A file's content; None when it is not there."""
        try:
            return look(lambda: self._content(self._below(name)))
        except FileNotFoundError:
            return None

    def _content(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as stream:
            return stream.read()  # type: ignore[no-any-return]

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """One put, which S3 shows whole or not at all."""
        with self._files.open_output_stream(self._below(name)) as stream:
            stream.write(content)

    def times(self, folder: str, ending: str) -> list[float]:
        """When the files in a folder were written."""
        found = self._list(folder)
        return [f.mtime.timestamp() for f in found if f.base_name.endswith(ending)]

    def stamp(self, folder: str, ending: str) -> Stamp:
        """Names and times, which come together."""
        found = self._list(folder)
        return tuple(
            sorted((f.base_name, f.mtime_ns) for f in found if f.base_name.endswith(ending))
        )

    def remove(self, folder: str) -> None:
        """Delete every object below it, one by one.

        By Lance, since Arrow would put objects of its own that stand for the empty folders.
        """
        session = self._session(folder)
        self._delete(session, session.list())

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """Delete objects one by one."""
        self._delete(self._session(folder), names)

    def _session(self, folder: str) -> LanceFileSession:
        from lance.file import LanceFileSession

        return LanceFileSession(self.address(folder), self.options)

    def _delete(self, session: LanceFileSession, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(DELETIONS) as pool:
            list(pool.map(session.delete_file, names))

    def _below(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._below(folder), allow_not_found=True)
        return look(lambda: self._files.get_file_info(selector))
