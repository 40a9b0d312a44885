"""Writes local files atomically."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_whole(
    path: Path, content: bytes, *, lasting: bool = False, private: bool = False
) -> None:
    """Write a temporary file beside `path`, then rename it: no reader ever sees a part.

    Args:
        lasting: return only once the file would survive a power failure.
        private: only the owner may read the file.
    """
    fresh = path.with_name(f".{uuid4().hex}.{path.name}")
    try:
        mode = 0o600 if private else 0o666
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    if lasting:
        _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    # The rename itself is durable only once the folder is.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
