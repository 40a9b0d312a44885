"""Where an index is stored: a folder on this machine or in an object store.

Only what generations and the history need of a folder. Both kinds replace a small file in one step.
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
#: Objects deleted at the same time: each takes a round trip to S3.
DELETIONS = 16


Stamp = tuple[object, ...]


class Location(Protocol):
    """A folder. All methods raise `OSError` if it cannot be reached."""

    @property
    def options(self) -> dict[str, str] | None:
        """The options that Lance needs to reach it."""

    @property
    def hint(self) -> str:
        """What to check if it cannot be reached."""

    def address(self, name: str = "") -> str:
        """The address of the folder or of something in it, for Lance and for messages."""

    def check(self) -> None:
        """Raise `OSError` if there can be no folder here, such as if it is a file."""

    def prepare(self) -> None:
        """Make it ready for writing."""

    def names(self, folder: str = "") -> list[str]:
        """The names directly in it or in a folder of it; none if that does not exist yet."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file so that a reader sees either the old content or the new.

        With `lasting=False` it is written faster, but may be lost in a power cut.
        """

    def times(self, folder: str, ending: str) -> list[float]:
        """When the files with this ending were written, in seconds since 1970."""

    def stamp(self, folder: str, ending: str) -> Stamp:
        """A value that stays equal while no such file is added or removed; empty if none exist."""

    def remove(self, folder: str) -> None:
        """Delete a folder in it with all its content, if it exists."""

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """Delete those of these files that exist in a folder."""


def location_at(address: str) -> Location:
    """The location at a path, or at `s3://bucket/folder`.

    Raises:
        ConfigError: it is neither, or the address contains a key.
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
    """A folder on this machine."""

    options = None
    hint = "check that the folder is writable and the disk has room, then sync again"

    def __init__(self, path: Path) -> None:
        self._path = path

    def address(self, name: str = "") -> str:
        return str(self._path / name)

    def check(self) -> None:
        if self._path.exists() and not self._path.is_dir():
            raise NotADirectoryError("it is a file, but the store needs a folder there")

    def prepare(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)

    def names(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(self._path / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file beside it, then rename that."""
        file = self._path / name
        file.parent.mkdir(exist_ok=True)
        write_whole(file, content, lasting=lasting)

    def times(self, folder: str, ending: str) -> list[float]:
        times = []
        # Another process may be dropping old versions, or the whole folder, right now.
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
        """The names, and when the first file was written: a folder made again has the same names.

        Asking for the time of every file would cost a search a millisecond if there are many
        versions.
        """
        names = sorted(n for n in self.names(folder) if n.endswith(ending))
        if not names:
            return ()
        try:
            return (os.stat(self._path / folder / names[0]).st_mtime_ns, *names)
        except (FileNotFoundError, NotADirectoryError):
            return (None, *names)

    def remove(self, folder: str) -> None:
        """Delete as much as possible; the next upkeep tries again."""
        shutil.rmtree(self._path / folder, ignore_errors=True)

    def discard(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            (self._path / folder / name).unlink(missing_ok=True)


class Bucket:
    """A folder in S3: a common prefix of object names."""

    hint = s3.HINT

    def __init__(self, path: str, service: s3.S3) -> None:
        self._path = path.strip("/")
        self._bucket = self._path.split("/", 1)[0]
        self._files = look(lambda: s3.filesystem(service))
        self.options: dict[str, str] | None = s3.lance_options(service)

    def address(self, name: str = "") -> str:
        """The URI, in which blanks and percent signs are escaped."""
        return S3 + quote(self._below(name))

    def check(self) -> None:
        """Raise if the bucket does not exist, or we may not look at it."""
        if look(lambda: self._files.get_file_info(self._bucket)).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket '{self._bucket}'")

    def prepare(self) -> None:
        """Check the bucket: S3 needs no folders, and buckets are not ours to create."""
        self.check()

    def names(self, folder: str = "") -> list[str]:
        return [found.base_name for found in self._list(folder)]

    def read(self, name: str) -> bytes | None:
        try:
            return look(lambda: self._content(self._below(name)))
        except FileNotFoundError:
            return None

    def _content(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as stream:
            return stream.read()  # type: ignore[no-any-return]

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """One PUT, which S3 shows whole or not at all."""
        with self._files.open_output_stream(self._below(name)) as stream:
            stream.write(content)

    def times(self, folder: str, ending: str) -> list[float]:
        found = self._list(folder)
        return [f.mtime.timestamp() for f in found if f.base_name.endswith(ending)]

    def stamp(self, folder: str, ending: str) -> Stamp:
        """Names and times: one listing returns both."""
        found = self._list(folder)
        return tuple(
            sorted((f.base_name, f.mtime_ns) for f in found if f.base_name.endswith(ending))
        )

    def remove(self, folder: str) -> None:
        """Delete every object below it, one by one.

        Uses Lance, because Arrow would create marker objects for the empty folders.
        """
        session = self._session(folder)
        self._delete(session, session.list())

    def discard(self, folder: str, names: Iterable[str]) -> None:
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
