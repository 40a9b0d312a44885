"""SQL in a Spark session: search indexes, join them with questions, create and refresh them.

After `register(spark, config)`, every statement of the session, and of a Thrift server that is
started from it, can search:

    SELECT * FROM vector_search('wines', 'smoky red', 10)

`run(spark, statement)` also creates, refreshes, drops, lists and describes indexes, and gives a
search the payload columns of its index. Any other statement goes to Spark unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.errors import ConfigError
from lakewake.sql.parse import parse
from lakewake.sql.statements import (
    CreateIndex,
    DescribeIndex,
    DropIndex,
    Other,
    RefreshIndex,
    ShowIndexes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakewake.api import Lakewake
    from lakewake.sql.session import VectorSession

__all__ = ["register", "run"]

#: The sessions of this process, by Spark's own name for each.
_registered: dict[str, VectorSession] = {}


def register(spark: SparkSession, config: str | Path | Lakewake | None = None) -> None:
    """Let SQL of this session search vector indexes.

    Args:
        config: the path of a lakewake.toml, where `run` also writes the indexes that it creates; or
            an opened configuration; or nothing: indexes are then named by their address, and those
            that `run` creates describe themselves.

    Raises:
        SetupError: the session has no Hudi, or is one of Spark Connect.
        ConfigError: the configuration cannot be used.
    """
    from lakewake.sql.session import VectorSession

    session = VectorSession(spark, config)
    session.publish()
    _registered[_id(spark)] = session


def run(spark: SparkSession, statement: str) -> DataFrame:
    """Carry out one statement.

    Raises:
        SqlError: it is one of ours, and cannot be carried out as it is written.
        ConfigError: `register` was not called for this session.
    """
    parsed = parse(statement)
    if isinstance(parsed, Other) and not parsed.calls:
        return spark.sql(statement)
    session = _registered.get(_id(spark))
    if session is None:
        raise ConfigError(
            "this Spark session knows no vector indexes",
            hint="call lakewake.sql.register(spark, 'lakewake.toml') first",
        )
    return _action(parsed)(session, parsed)


def _id(spark: SparkSession) -> str:
    return str(spark._jsparkSession.sessionUUID())


def _action(parsed: Any) -> Callable[[VectorSession, Any], DataFrame]:
    """What carries out a statement. Imported late: Lance alone takes half a second to load."""
    from lakewake.sql import manage
    from lakewake.sql.select import select

    actions: dict[type, Callable[[VectorSession, Any], DataFrame]] = {
        CreateIndex: manage.create,
        RefreshIndex: manage.refresh,
        ShowIndexes: manage.show,
        DescribeIndex: manage.describe,
        DropIndex: manage.drop,
        Other: select,
    }
    return actions[type(parsed)]
