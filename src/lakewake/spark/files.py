"""The files of a session: its scratch folder, its jars, and what `lakewake setup` made for it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.config.home import lakewake_home
from lakewake.extras import EXTRAS, missing

if TYPE_CHECKING:
    from lakewake.spark.java import Java

#: Part of the archive's key; change it when the content of the class-data archive changes.
ARCHIVED = "a write and its syncs"


@dataclass(frozen=True)
class Files:
    """The files of a session.

    Attributes:
        scratch: the session's own folder, removed when the process ends.
        bundle: the Hudi bundle.
        archive: the class-data archive; None if there is none.
        storage: jars for the file systems of the tables.
        launcher: the Java options that Spark's launcher adds; None if it has not been asked.
    """

    scratch: Path
    bundle: Path
    archive: Path | None = None
    storage: tuple[Path, ...] = ()
    launcher: tuple[str, ...] | None = None

    @property
    def log(self) -> Path:
        """The JVM's own output, if it does not go to the terminal."""
        return self.scratch / "jvm.log"

    @property
    def logging(self) -> Path:
        """The logging configuration of a quiet session."""
        return self.scratch / "log4j2.properties"


def archive_path(java: Java, bundle: Path) -> Path:
    """The path of the class-data archive for this Java, Spark and bundle; it may not exist.

    The JVM refuses an archive that was made from other files. So each set of files has its own key.
    """
    parts = [ARCHIVED, str(java.home), java.version]
    for path in (spark_home() / "jars", bundle):
        parts += [str(path), str(path.stat().st_mtime_ns)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return lakewake_home() / "jvm" / f"{key}.jsa"


def marked_as_used(archive: Path) -> Path | None:
    """The archive, touched, if it exists: only the most recently used archives are kept."""
    if not archive.is_file():
        return None
    with contextlib.suppress(OSError):
        archive.touch()
    return archive


def launcher_note(archive: Path) -> Path:
    """The file in which `lakewake setup` saves the answer of this Spark's launcher."""
    return archive.with_suffix(".json")


def read_note(note: Path) -> tuple[str, ...] | None:
    """The answer of Spark's launcher; None if it has not been saved."""
    try:
        return tuple(json.loads(note.read_text()))
    except (OSError, ValueError):
        return None


def spark_home() -> Path:
    """The folder of the installed PySpark."""
    # Not imported: that takes longer than the rest of a setup that has nothing to do.
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise missing(*EXTRAS["pyspark"])
    return Path(found.origin).parent
