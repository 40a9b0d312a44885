"""Starts the JVM before most of the program is imported, if a table has a new commit.

The imports, opening the index and planning take 0.4 s. The JVM, which starts in the meantime, is
what a cold sync waits for. Nothing depends on the guess made here: the sync itself looks at index
and table, and decides.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lakewake.config.settings import IndexSettings
from lakewake.errors import LakewakeError

LANCE = "lance://"
#: How the names of a timeline's files end that a completed commit writes.
COMMITS = tuple(f".{action}" for action in ("commit", "deltacommit", "replacecommit"))


def start_jvm_if_behind(config: Path | None, name: str | None) -> None:
    """Start the JVM, and do not wait for it, if a sync of these indexes will surely need it.

    Errors are left to the sync: it finds them again and reports them.
    """
    from lakewake.config.file import load_config

    with suppress(LakewakeError, OSError):
        settings = load_config(config)
        if any(is_behind(i) for i in settings.indexes if name in (None, i.name)):
            from lakewake.spark.session import start_early

            # Otherwise numpy's threads, once imported, spin for 0.1 s on a core that the JVM needs.
            os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
            start_early(settings.spark, settings.spark_tables)


def is_behind(index: IndexSettings) -> bool:
    """Whether a commit of the table is newer than the newest version of the index.

    Only for a local table and a local index: the times are then of one clock. If files were copied
    without their times, the answer may be wrong.
    """
    if "://" in index.table or not index.store.startswith(LANCE):
        return False
    commit = _newest(Path(index.table, ".hoodie", "timeline"), COMMITS)
    folder = Path(index.store.removeprefix(LANCE))
    versions = (
        _newest(g / "_versions", (".manifest",)) for g in folder.glob(f"{index.stored_name}.g*")
    )
    return commit > max(versions, default=0)


def _newest(folder: Path, ends: tuple[str, ...]) -> int:
    """When the newest of the files whose names end so was written; 0 if there is none."""
    try:
        with os.scandir(folder) as found:
            return max((f.stat().st_mtime_ns for f in found if f.name.endswith(ends)), default=0)
    except FileNotFoundError:
        return 0
