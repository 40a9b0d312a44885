"""Reads a table's own small files wherever the table lies, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import fs

from lakewake.errors import TableError

#: Hadoop's names of file systems that Arrow calls otherwise.
SCHEMES = {"s3a": "s3", "s3n": "s3", "gs": "gs", "hdfs": "hdfs", "file": "file"}


class Storage:
    """The files below one table's base path."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        scheme, _, rest = base.partition("://")
        if not rest:
            self._fs, self._root = fs.LocalFileSystem(), self.base
        else:
            uri = f"{SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}"
            self._fs, self._root = self._open(uri)

    def _open(self, uri: str) -> tuple[fs.FileSystem, str]:
        try:
            return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
        except (ValueError, OSError) as error:
            raise TableError(f"cannot reach {self.base}: {error}", hint="check the path") from error

    def names(self, folder: str) -> tuple[str, ...] | None:
        """File names directly in a folder below the base path; None when there is none."""
        selector = fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        try:
            if self._fs.get_file_info(selector.base_dir).type != fs.FileType.Directory:
                return None
            found = self._fs.get_file_info(selector)
        except OSError as error:
            raise TableError(f"cannot list {self.base}/{folder}: {error}") from error
        return tuple(sorted(f.base_name for f in found if f.type == fs.FileType.File))

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None when it is not there."""
        try:
            with self._fs.open_input_stream(f"{self._root}/{path}") as stream:
                return stream.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TableError(f"cannot read {self.base}/{path}: {error}") from error

    def exists(self) -> bool:
        """Whether anything lies at the base path."""
        return bool(self._fs.get_file_info(self._root).type != fs.FileType.NotFound)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that are not there."""
        found = self._fs.get_file_info([f"{self._root}/{p}" for p in paths])
        return [p for p, f in zip(paths, found, strict=True) if f.type == fs.FileType.NotFound]
