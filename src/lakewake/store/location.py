"""Where an index is stored: a folder on this machine or in an object store.

Only what generations and the history need of a folder. Both kinds replace a small file in one step.
An index in the lake also has Arrow and Spark read and write in it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pyarrow import fs

from lakewake.errors import ConfigError
from lakewake.files import write_whole
from lakewake.lazy import lazy
from lakewake.net import s3
from lakewake.net.address import check_address
from lakewake.net.conditional import ConditionalBucket
from lakewake.net.deadline import look

if TYPE_CHECKING:
    from lance.file import LanceFileSession

S3, S3A = "s3://", "s3a://"
#: Objects deleted at the same time: each takes a round trip to S3.
DELETIONS = 16


Stamp = tuple[object, ...]
T = TypeVar("T")


class Location(Protocol):
    """A folder. All methods raise `OSError` if it cannot be reached. It can be pickled."""

    @property
    def options(self) -> dict[str, str] | None:
        """The options that Lance needs to reach it."""

    @property
    def hint(self) -> str:
        """What to check if it cannot be reached."""

    @property
    def object_store(self) -> dict[str, str]:
        """The options that hudi-rs needs to reach it. They may hold a secret."""

    @property
    def files(self) -> fs.FileSystem:
        """Its file system, as Arrow reads and writes it."""

    def path(self, name: str = "") -> str:
        """The path of the folder or of something in it, in `files`."""

    def address(self, name: str = "") -> str:
        """The address of the folder or of something in it, for Lance, hudi-rs and messages."""

    def spark(self, name: str = "") -> str:
        """The same for Spark."""

    def check(self) -> None:
        """Raise `OSError` if there can be no folder here, such as if it is a file."""

    def prepare(self, folder: str = "") -> None:
        """Make it, or a folder in it, ready for writing."""

    def names(self, folder: str = "") -> list[str]:
        """The names directly in it or in a folder of it; none if that does not exist yet."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file so that a reader sees either the old content or the new.

        With `lasting=False` it is written faster, but may be lost in a power cut.
        """

    def create(self, name: str, content: bytes) -> bool:
        """Write a file whole, unless there is one with this name; whether it was written."""

    def times(self, folder: str, ending: str = "") -> dict[str, float]:
        """When each file with this ending was written, in seconds since 1970."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of the names at which there is no file."""

    def sees(self, folder: str) -> bool:
        """Whether a folder in it, which another machine may have made, is here too."""

    def ask(self, question: Callable[[], T]) -> T:
        """What another library's read of it returns; `TimeoutError` if that takes too long."""

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

    @property
    def object_store(self) -> dict[str, str]:
        return {}

    @property
    def files(self) -> fs.FileSystem:
        return fs.LocalFileSystem()

    def path(self, name: str = "") -> str:
        return str(self._path / name)

    def address(self, name: str = "") -> str:
        return self.path(name)

    def spark(self, name: str = "") -> str:
        return self.path(name)

    def check(self) -> None:
        try:
            mode = os.stat(self._path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError("it is a file, but the store needs a folder there")

    def prepare(self, folder: str = "") -> None:
        (self._path / folder).mkdir(parents=True, exist_ok=True)

    def names(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(os.path.join(self._path, folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes | None:
        try:
            # Each search reads the pointer, so without the objects that `Path` makes.
            with open(os.path.join(self._path, name), "rb", buffering=0) as file:
                return file.readall()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Write a file beside it, then rename that."""
        file = self._path / name
        file.parent.mkdir(exist_ok=True)
        write_whole(file, content, lasting=lasting)

    def create(self, name: str, content: bytes) -> bool:
        file = self._path / name
        draft = file.with_name(f".{uuid4().hex}")
        try:
            draft.write_bytes(content)
            # A link is created only if its name is free, and with the whole content.
            os.link(draft, file)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not (self._path / name).is_file()]

    def sees(self, folder: str) -> bool:
        return (self._path / folder).is_dir()

    def ask(self, question: Callable[[], T]) -> T:
        return question()

    def times(self, folder: str, ending: str = "") -> dict[str, float]:
        times = {}
        # Another process may be dropping old versions, or the whole folder, right now.
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self._path / folder) as found,
        ):
            for file in found:
                with suppress(FileNotFoundError):
                    if file.name.endswith(ending):
                        times[file.name] = file.stat().st_mtime
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
            first = os.path.join(self._path, folder, names[0])
            return (os.stat(first).st_mtime_ns, *names)
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
        self._path, self._service = path.strip("/"), service
        self._bucket = self._path.split("/", 1)[0]
        self._files = look(lambda: s3.filesystem(service))
        self.options: dict[str, str] | None = s3.lance_options(service)

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self._path, self._service)

    @property
    def object_store(self) -> dict[str, str]:
        return s3.object_store_options(self._service)

    @property
    def files(self) -> fs.FileSystem:
        return self._files

    def path(self, name: str = "") -> str:
        return self._below(name)

    def spark(self, name: str = "") -> str:
        """The address without escapes, as Hadoop takes it."""
        return S3A + self._below(name)

    @lazy
    def conditional(self) -> ConditionalBucket:
        """The same folder, for writes that must not undo those of others."""
        return ConditionalBucket(self._path, self._service)

    def address(self, name: str = "") -> str:
        """The URI, in which blanks and percent signs are escaped."""
        return S3 + quote(self._below(name))

    def check(self) -> None:
        """Raise if the bucket does not exist, or we may not look at it."""
        if look(lambda: self._files.get_file_info(self._bucket)).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket '{self._bucket}'")

    def prepare(self, folder: str = "") -> None:
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

    def create(self, name: str, content: bytes) -> bool:
        return self.conditional.put(name, content, after=None) is not None

    def times(self, folder: str, ending: str = "") -> dict[str, float]:
        found = [f for f in self._list(folder) if f.type == fs.FileType.File]
        return {f.base_name: f.mtime.timestamp() for f in found if f.base_name.endswith(ending)}

    def missing(self, names: Sequence[str]) -> list[str]:
        paths = [self._below(name) for name in names]
        found = look(lambda: self._files.get_file_info(paths))
        return [n for n, f in zip(names, found, strict=True) if f.type != fs.FileType.File]

    def sees(self, folder: str) -> bool:
        """True: every machine sees the same bucket."""
        return True

    def ask(self, question: Callable[[], T]) -> T:
        return look(question)

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
        # Hadoop makes markers for empty folders, which Lance does not list. Deepest first: some
        # stores keep a marker as long as another is below it.
        for path in sorted(self._folders(folder), key=lambda path: -path.count("/")):
            self._files.delete_dir(path)

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

    def _folders(self, folder: str) -> list[str]:
        """The paths of a folder and of those below it, as far as they exist."""
        path = self._below(folder)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        below = look(lambda: self._files.get_file_info(selector))
        own = look(lambda: self._files.get_file_info(path))
        return [f.path for f in (own, *below) if f.type == fs.FileType.Directory]

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._below(folder), allow_not_found=True)
        return look(lambda: self._files.get_file_info(selector))
