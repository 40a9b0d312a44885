"""Reads a table's metadata files, wherever the table is, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyarrow import fs

from lakewake.errors import TableError
from lakewake.net import s3
from lakewake.net.address import check_address
from lakewake.net.deadline import look

#: Hadoop's names for S3.
S3_SCHEMES = ("s3a", "s3n", "s3")

T = TypeVar("T")


class Storage:
    """The files below one table's base path.

    Every request to remote storage has a deadline, and a signal interrupts it.

    Raises:
        ConfigError: the path has a password or key in it.
    """

    def __init__(self, base: str) -> None:
        check_address(base, "the table")
        self.base = base.rstrip("/")
        scheme, mark, rest = self.base.partition("://")
        self._hint = s3.HINT if scheme in S3_SCHEMES else "check the path"
        self._remote = bool(mark)
        with self._reaching("reach"):
            if not mark:
                self._fs, self._root = fs.LocalFileSystem(), self.base
            elif scheme in S3_SCHEMES:
                # Not by URI: a blank or a percent sign in a key would have another meaning there.
                self._fs, self._root = look(lambda: s3.filesystem(s3.find_s3())), rest
            else:
                self._fs, self._root = look(lambda: fs.FileSystem.from_uri(self.base))

    def names(self, folder: str) -> tuple[str, ...] | None:
        """Names of the files directly in a folder below the base path; None if there is none."""
        selector = fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        with self._reaching("list", folder):
            if self._type(selector.base_dir) != fs.FileType.Directory:
                return None
            found = self._ask(lambda: self._fs.get_file_info(selector))
        return tuple(sorted(f.base_name for f in found if f.type == fs.FileType.File))

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if it does not exist."""
        with self._reaching("read", path):
            try:
                return self._ask(lambda: self._content(f"{self._root}/{path}"))
            except FileNotFoundError:
                return None

    def modified(self, path: str) -> float | None:
        """When a file was last written, in seconds since 1970; None if unknown."""
        with self._reaching("read", path):
            when = self._fs.get_file_info(f"{self._root}/{path}").mtime
        return when.timestamp() if when else None

    def exists(self) -> bool:
        """Whether anything is at the base path."""
        with self._reaching("reach"):
            return bool(self._type(self._root) != fs.FileType.NotFound)

    def holds_something(self) -> bool:
        """Whether a file, or a folder that is not empty, is at the base path."""
        with self._reaching("list"):
            found = self._type(self._root)
            if found != fs.FileType.Directory:
                return bool(found != fs.FileType.NotFound)
            return bool(self._ask(lambda: self._fs.get_file_info(fs.FileSelector(self._root))))

    def missing(self, paths: Sequence[str]) -> list[str]:
        """The paths at which there is no file."""
        return [p for p, size in zip(paths, self.sizes(paths), strict=True) if size is None]

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The bytes of files, in order; None if there is no file."""
        with self._reaching("read"):
            full = [f"{self._root}/{p}" for p in paths]
            found = self._ask(lambda: self._fs.get_file_info(full))
        return [None if f.type == fs.FileType.NotFound else int(f.size or 0) for f in found]

    def _type(self, path: str) -> fs.FileType:
        return self._ask(lambda: self._fs.get_file_info(path)).type

    def _content(self, path: str) -> bytes:
        with self._fs.open_input_stream(path) as stream:
            return stream.read()  # type: ignore[no-any-return]

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the file system. Only a remote one needs the deadline of `look`."""
        return look(question) if self._remote else question()

    @contextmanager
    def _reaching(self, verb: str, path: str = "") -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:
            full = f"{self.base}/{path}" if path else self.base
            raise TableError(f"cannot {verb} {full}: {error}", hint=self._hint) from error
