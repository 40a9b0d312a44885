"""Finds tables by their name in a session's catalog."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakewake.config.settings import IndexSettings, Settings
from lakewake.errors import TableError, TableMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What may be the name of a table in a catalog: `table`, `db.table` or `catalog.db.table`.
NAME = re.compile(r"\w+(\.\w+){1,2}")


def table_location(spark: SparkSession, parts: tuple[str, ...]) -> str:
    """The path of a Hudi table, by the parts of its name.

    Raises:
        TableMissing: the catalog has no such table.
        TableError: it is not a Hudi table.
    """
    from pyspark.errors import AnalysisException

    name = ".".join(parts)
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except AnalysisException as error:
        raise TableMissing(
            f"the session's catalog has no table {name}",
            hint="check the name with SHOW TABLES, or write a path in quotes",
        ) from error
    found = {row["col_name"]: row["data_type"] for row in rows}
    if found.get("Provider", "").lower() != "hudi" or "Location" not in found:
        raise TableError(f"{name} is not a Hudi table", hint="name a table created USING hudi")
    return path_of(found["Location"])


def path_of(location: str) -> str:
    """The location of a table as a configuration gives it: a local one is a path."""
    scheme, mark, rest = location.partition(":")
    if not mark or scheme != "file":
        return location
    return unquote("/" + rest.lstrip("/"))


def resolved(settings: Settings, spark: SparkSession) -> Settings:
    """The settings, with the paths of tables that the configuration names as `db.table`.

    A folder of that name beside the configuration comes first.
    """
    indexes = tuple(_resolved(index, settings.path.parent, spark) for index in settings.indexes)
    return replace(settings, indexes=indexes)


def _resolved(index: IndexSettings, folder: Path, spark: SparkSession) -> IndexSettings:
    path = Path(index.table)
    named = "://" not in index.table and path.parent == folder and NAME.fullmatch(path.name)
    if not named or path.exists():
        return index
    try:
        return replace(index, table=table_location(spark, tuple(path.name.split("."))))
    except TableMissing:
        # Then it is the path of a table that is not there yet.
        return index
