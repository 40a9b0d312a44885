"""The indexes that SQL in one Spark session knows, and the functions that search them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.api import Index, Lakewake, Sessions, find_indexes, open_index
from lakewake.config.file import load_config
from lakewake.config.settings import IndexSettings, Settings
from lakewake.embed.registry import model_files
from lakewake.errors import SetupError
from lakewake.progress import Silent
from lakewake.spark.catalog import resolved
from lakewake.spark.executors import equip, send
from lakewake.spark.session import check_session
from lakewake.sql.statements import Name
from lakewake.sql.worker import ANY_INDEX, HANDLERS, Known, as_map

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class VectorSession:
    """What `register` was given for a Spark session.

    Attributes:
        file: the configuration that CREATE and DROP write to; None: they write to none.
    """

    def __init__(self, spark: SparkSession, config: str | Path | Lakewake | None) -> None:
        check_session(spark)
        self.spark = spark
        self.file: Path | None = None
        self._opened: Mapping[str, Index] = {}
        if isinstance(config, Lakewake):
            self._opened = config
        elif config is not None:
            self.file = Path(config)
        self._read = ""
        self._created: dict[str, Index] = {}
        self._published = ""

    def indexes(self) -> dict[str, Index]:
        """All indexes by name: those of the configuration as it is now, and those created here."""
        if self.file is not None and (text := self._text()) != self._read:
            self._opened, self._read = self._load(text), text
        return {**self._opened, **self._created}

    def _text(self) -> str:
        assert self.file is not None
        return self.file.read_text(encoding="utf-8-sig") if self.file.exists() else ""

    def _load(self, text: str) -> Mapping[str, Index]:
        if not text:
            return {}
        settings = resolved(load_config(self.file, empty=True), self.spark)
        return Lakewake(settings, self.sessions(), Silent())

    def sessions(self) -> Sessions:
        """This session, for what an index reads and writes with Spark."""
        return Sessions({}, self.spark, False)

    def index(self, name: Name) -> Index:
        """The index that a statement names, by its name or address.

        Raises:
            SqlError: there is none.
        """
        known = self.indexes()
        if str(name) in known:
            return known[str(name)]
        if "://" in str(name):
            return open_index(str(name))
        near = difflib.get_close_matches(str(name), known, 1)
        raise name.refused(
            f"there is no vector index '{name}'",
            (f"did you mean '{near[0]}'? " if near else "")
            + f"SHOW VECTOR INDEXES lists them: {', '.join(known) or 'none yet'}",
        )

    def writable(self, name: Name) -> Index:
        """The same, to sync or drop it. An index that is opened by its address records enough."""
        index = self.index(name)
        return index if str(name) in self.indexes() else self.made(index.settings)

    def made(self, settings: IndexSettings) -> Index:
        """An index of this session with these settings."""
        return Index(settings, self.sessions(), Silent())

    def keep(self, index: Index) -> None:
        """Know an index from now on, although no configuration has it."""
        self._created[index.name] = index

    def forget(self, name: str) -> None:
        """Do not know an index any more."""
        self._created.pop(name, None)
        self._opened = {key: index for key, index in self._opened.items() if key != name}

    def below(self, folder: str) -> list[Index]:
        """The indexes in a folder and three levels below it."""
        return [open_index(address) for address in find_indexes(folder)]

    def known(self) -> dict[str, Known]:
        """What executors need to open the indexes."""
        equip(self.spark)
        return {name: self._known(index.settings) for name, index in self.indexes().items()}

    def known_as(self, name: str) -> dict[str, Known]:
        """What executors need to open one index; nothing if its address is enough."""
        known = self.indexes()
        equip(self.spark)
        return {name: self._known(known[name].settings)} if name in known else {}

    def _known(self, settings: IndexSettings) -> Known:
        try:
            files = {} if settings.vector else model_files(settings.model)
        except SetupError:
            # Its weights are missing here: a search with a text will explain it.
            return Known(settings)
        sent = send(self.spark, files.values())
        return Known(settings, {key: str(sent[path]) for key, path in files.items()})

    def publish(self) -> None:
        """Register the functions, for this session and for those that are opened later."""
        known = self.known()
        if repr(known) != self._published:
            for name, handler in HANDLERS.items():
                define(self.spark, name, handler(known, as_map), ANY_INDEX)
                share(self.spark, name)
            self._published = repr(known)


def define(spark: SparkSession, name: str, handler: type, columns: object) -> None:
    """Register a table function in a session."""
    from pyspark.sql.functions import udtf

    # Not Arrow's way, which needs pandas.
    spark.udtf.register(name, udtf(handler, returnType=columns, useArrow=False))


def share(spark: SparkSession, name: str) -> None:
    """Let sessions that are opened from now on have a function: those of a Thrift server are."""
    jvm, state = spark._jvm, spark._jsparkSession.sessionState()
    assert jvm is not None
    known = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    builder = state.tableFunctionRegistry().lookupFunctionBuilder(known).get()
    everywhere = jvm.org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry.builtin()
    everywhere.createOrReplaceTempFunction(name, builder, "python_udtf")


def settings_with(settings: Settings, name: str) -> IndexSettings:
    """The settings of one index of a configuration."""
    return next(index for index in settings.indexes if index.name == name)
