"""The public API: the indexes of a configuration. What can be done with one is in `index.py`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from lakewake.api.address import find_indexes as find_indexes
from lakewake.api.address import open_index as open_index
from lakewake.api.index import Index as Index
from lakewake.config.file import load_config
from lakewake.config.settings import Settings
from lakewake.embed.registry import load_embedder
from lakewake.errors import ConfigError
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
        spark: a session that has Hudi; it is never stopped. Without one, a session is started
            when rows must be read, and `close` stops it.
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
    return Lakewake(settings, sessions, reporter)


class Lakewake(Mapping[str, Index]):
    """All indexes of one configuration, by name."""

    def __init__(self, settings: Settings, sessions: Sessions, reporter: Reporter) -> None:
        self.settings = settings
        self._sessions = sessions
        home, chat = settings.path.parent, settings.recommend
        # Indexes with the same model share it, so a server of ten indexes loads it once.
        load = cache(load_embedder)
        self._indexes = {
            s.name: Index(s, sessions, reporter, home, chat, load) for s in settings.indexes
        }

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
                + f"its indexes are {', '.join(self.names)}",
            )
        return self._indexes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._indexes

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)

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
