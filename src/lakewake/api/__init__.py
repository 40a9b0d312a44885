"""The public API: the indexes of a configuration. What can be done with one is in `index.py`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakewake.api.address import find_indexes as find_indexes
from lakewake.api.address import open_index as open_index
from lakewake.api.index import Index as Index
from lakewake.config.file import load_config
from lakewake.config.settings import IndexSettings, Settings
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError, LakewakeError
from lakewake.model.report import SyncedTogether, SyncReport
from lakewake.progress import Reporter, Silent
from lakewake.spark.sessions import Sessions as Sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open(
    config: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    reporter: Reporter | None = None,
    verbose: bool = False,
) -> Lakewake:
    """Open the indexes of a configuration file.

    Args:
        config: the file. Default: the file that `LAKEWAKE_CONFIG` names, else ./lakewake.toml.
        spark: a session that has Hudi; it is never stopped. The configuration may then name
            tables as `db.table` of its catalog. Without one, a session is started when rows must
            be read, and `close` stops it.
        reporter: receives progress. By default, progress is not reported.
        verbose: show the logs of Spark and Hudi.

    Raises:
        ConfigError: the configuration cannot be used.
        SetupError: `spark` does not have Hudi.
    """
    reporter = reporter or Silent()
    sessions = Sessions({}, spark, verbose, reporter)
    settings = load_config(config)
    sessions.options = settings.spark
    sessions.tables = settings.spark_tables
    if spark is not None:
        from lakewake.spark.catalog import resolved

        settings = resolved(settings, spark)
    return Lakewake(settings, sessions, reporter)


def _without(settings: Settings, one: IndexSettings) -> tuple[IndexSettings, ...]:
    """The other indexes of a configuration."""
    return tuple(s for s in settings.indexes if s is not one)


class Lakewake(Mapping[str, Index]):
    """All indexes of one configuration, by name."""

    def __init__(self, settings: Settings, sessions: Sessions, reporter: Reporter) -> None:
        self.settings = settings
        self._sessions, self._reporter = sessions, reporter
        # Indexes with the same model share it, so a server of ten indexes loads it once.
        self._load = cache(load_embedder)
        self._indexes = {s.name: self._made(s) for s in settings.indexes}

    def _made(self, one: IndexSettings) -> Index:
        home, chat = self.settings.path.parent, self.settings.recommend
        others = _without(self.settings, one)
        return Index(one, self._sessions, self._reporter, home, chat, self._load, others)

    def __repr__(self) -> str:
        """The file and the names of its indexes."""
        return f"Lakewake({str(self.settings.path)!r}: {', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the indexes, in the order of the file."""
        return tuple(self._indexes)

    def __getitem__(self, name: str) -> Index:
        if name not in self._indexes:
            near = difflib.get_close_matches(name, self.names, 1)
            raise ConfigError(
                f"there is no index '{name}' in {self.settings.path}",
                hint=(f"did you mean '{near[0]}'? " if near else "")
                + f"pass one of its indexes: {', '.join(self.names)}",
            )
        return self._indexes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._indexes

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)

    def sync(self, *names: str, **options: Any) -> SyncedTogether:
        """Bring the named indexes, or all, to the latest commits of their tables.

        Indexes of one table that have absorbed the same commits read its new ones once. Each has
        its own commit, and one that fails does not keep the others from theirs.

        Args:
            options: those of `Index.sync`.

        Returns:
            The reports, and the errors of the indexes that failed: check these.

        Raises:
            ConfigError: there is no such index.
        """
        chosen = [self[name] for name in dict.fromkeys(names or self.names)]
        reports: list[SyncReport] = []
        failed: dict[str, LakewakeError] = {}
        with self.together(*names):
            for index in chosen:
                try:
                    reports.append(index.sync(**options))
                except LakewakeError as error:
                    failed[index.name] = error
        return SyncedTogether(tuple(reports), failed)

    def rename(self, old: str, new: str) -> Index:
        """Give an index another name in the configuration. It is not built again.

        What is in its store, and its history, keep the name that they have: the configuration notes
        it as `stored_as`. So a sync or a server that began before goes on with the same index.

        Returns:
            The index with its new name. If it has that name already, nothing is changed.

        Raises:
            ConfigError: there is no such index, the name is taken, or the file cannot be edited.
        """
        from lakewake.config.edit import rename_index

        before = self[old] if old in self or new not in self else self[new]
        settings = rename_index(self.settings.path, old, new)
        (renamed,) = (s for s in settings.indexes if s.name == new)
        # Tables that were found in a catalog stay found.
        renamed = replace(renamed, table=before.settings.table)
        kept = (renamed if s is before.settings else s for s in self.settings.indexes)
        self.settings = replace(self.settings, indexes=tuple(kept))
        before.close()
        self._indexes = {
            s.name: self._made(s) if s is renamed else self._indexes[s.name]
            for s in self.settings.indexes
        }
        return self[new]

    @contextmanager
    def together(self, *names: str) -> Iterator[None]:
        """Within this context, syncs of the named indexes, or of all, share what they read.

        What one of them has read of a table's new commits is kept until the others have been
        synced once, or until the end of the context.

        Raises:
            ConfigError: there is no such index.
        """
        from lakewake.sync.together import Round

        chosen = [self[name] for name in dict.fromkeys(names or self.names)]
        members = {i.name: (i.settings.table, partial(getattr, i, "parts")) for i in chosen}
        around = Round(members)
        for index in chosen:
            index.round = around
        try:
            yield
        finally:
            for index in chosen:
                index.round = None
            around.close()

    def close(self) -> None:
        """Close all indexes, and stop the Spark session if Lakewake started it."""
        for index in self._indexes.values():
            index.close()
        self._sessions.close()

    def __enter__(self) -> Lakewake:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
