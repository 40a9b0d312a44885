"""Creates, refreshes, drops, lists and describes indexes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.api import Index
from lakewake.config.edit import add_index, remove_index, with_index
from lakewake.config.file import parse_config
from lakewake.config.init import from_file, guess, vector_dimension
from lakewake.errors import ConfigError, IndexMissing, LakewakeError, SqlError
from lakewake.model.plan import Action
from lakewake.model.report import SyncReport
from lakewake.source.look import look_at
from lakewake.spark.catalog import table_location
from lakewake.sql.options import Seen, index_values
from lakewake.sql.session import VectorSession, settings_with
from lakewake.sql.statements import (
    CreateIndex,
    DescribeIndex,
    DropIndex,
    RefreshIndex,
    ShowIndexes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SYNCED = (
    "index string, action string, rows bigint, rows_changed bigint, rows_deleted bigint, "
    "embedded bigint, instant string, address string"
)
DROPPED = "index string, removed array<string>, vector_cache string, shared_with array<string>"
LISTED = "index string, table string, store string, rows bigint, instant string, state string"
DESCRIBED = "property string, value string"


def create(session: VectorSession, statement: CreateIndex) -> DataFrame:
    """Build an index, then write it to the configuration if there is one.

    Raises:
        SqlError: the statement cannot be carried out as it is written.
    """
    name = str(statement.name)
    if name in session.indexes():
        if not statement.if_not_exists:
            raise statement.name.refused(
                f"vector index '{name}' exists already",
                "CREATE VECTOR INDEX IF NOT EXISTS leaves it as it is, REFRESH VECTOR INDEX syncs "
                "it",
            )
        return _synced(session, session.indexes()[name], None)
    file = session.file or Path.cwd() / "lakewake.toml"
    values = _values(session, statement, file)
    index = session.made(_checked(session, statement, values, file))
    report = index.sync()
    if session.file is None:
        session.keep(index)
    else:
        comment = "" if statement.table.literal else f"table {statement.table}"
        add_index(session.file, values, comment)
    session.publish()
    return _synced(session, index, report)


def _values(session: VectorSession, statement: CreateIndex, file: Path) -> dict[str, Any]:
    """The keys of the index in lakewake.toml."""
    table = statement.table
    try:
        path = str(table) if table.literal else table_location(session.spark, table.names)
        look = look_at(path)
    except LakewakeError as error:
        raise table.refused(error.fact, error.hint or "check the name of the table") from error
    columns = tuple(name for name in look.schema if not name.startswith("_hoodie"))
    lengths = {name: vector_dimension(look, name) for name in columns}
    vectors = {name: length for name, length in lengths.items() if length is not None}
    try:
        payload = guess(look).payload
    except ConfigError:
        payload = ()
    seen = Seen(from_file(path, file), columns, vectors, payload)
    return index_values(statement, seen, beside=session.file is not None)


def _checked(
    session: VectorSession, statement: CreateIndex, values: dict[str, Any], file: Path
) -> Any:
    """The settings of the new index, as the configuration will give them.

    Raises:
        SqlError: one of them cannot be used.
    """
    text = file.read_text(encoding="utf-8-sig") if session.file and file.exists() else ""
    try:
        settings = parse_config(with_index(text, values), file, empty=True)
    except ConfigError as error:
        at = statement.options[0].at if statement.options else statement.name.at
        raise SqlError(error.fact, statement.name.text, at, hint=error.hint) from error
    return settings_with(settings, str(statement.name))


def refresh(session: VectorSession, statement: RefreshIndex) -> DataFrame:
    """Bring an index to its table's latest commit."""
    index = session.writable(statement.name)
    return _synced(session, index, index.sync())


def _synced(session: VectorSession, index: Index, report: SyncReport | None) -> DataFrame:
    """One row about an index that was synced, or that existed already."""
    described = index.describe()
    done = report or SyncReport(index.name, Action.NOTHING, "it exists already")
    row = (
        *(index.name, done.action.value, described.rows, done.rows_changed, done.rows_deleted),
        *(done.embedded, described.instant, described.address),
    )
    return session.spark.createDataFrame([row], SYNCED)


def drop(session: VectorSession, statement: DropIndex) -> DataFrame:
    """Remove an index, then take it out of the configuration."""
    name = str(statement.name)
    try:
        index = session.writable(statement.name)
    except (SqlError, IndexMissing):
        if not statement.if_exists:
            raise
        return session.spark.createDataFrame([], DROPPED)
    report = index.drop()
    if session.file is not None and name in session.indexes():
        remove_index(session.file, name)
    session.forget(name)
    session.publish()
    row = (index.name, list(report.removed), report.vector_cache or None, list(report.shared_with))
    return session.spark.createDataFrame([row], DROPPED)


def show(session: VectorSession, statement: ShowIndexes) -> DataFrame:
    """The indexes of the session, or those below a folder."""
    indexes: Iterable[Index] = session.indexes().values()
    if statement.folder is not None:
        indexes = session.below(str(statement.folder))
    return session.spark.createDataFrame([_listed(index) for index in indexes], LISTED)


def _listed(index: Index) -> tuple[Any, ...]:
    settings = index.settings
    try:
        about = index.describe()
    except LakewakeError as error:
        # The others are listed all the same.
        return index.name, settings.table, settings.store, None, None, error.fact
    state = _state(index) if about.built else "not built"
    return index.name, about.table, about.store, about.rows, about.instant or None, state


def _state(index: Index) -> str:
    try:
        status = index.status()
    except LakewakeError as error:
        return error.fact
    return "in step" if status.in_step else f"{status.lag_commits} commits behind"


def describe(session: VectorSession, statement: DescribeIndex) -> DataFrame:
    """What an index is made of, a property per row."""
    index = session.index(statement.name)
    settings, about = index.settings, index.describe()
    source = (
        {"vector": settings.vector}
        if settings.vector
        else {field.name: field.template for field in settings.fields}
    )
    rows = {
        "index": index.name,
        "table": about.table,
        "store": about.store,
        "address": about.address,
        **source,
        "payload": ", ".join(settings.payload),
        "vector.metric": settings.metric,
        "model": f"{settings.model.provider} {settings.model.name}".strip(),
        "rows": about.rows,
        "chunks": about.chunks,
        "instant": about.instant,
        "state": _state(index) if about.built else "not built",
        "recall": settings.recall,
        **(_searching(index) if about.built else {}),
    }
    shown = [(key, str(value)) for key, value in rows.items() if value not in ("", None)]
    return session.spark.createDataFrame(shown, DESCRIBED)


def _searching(index: Index) -> dict[str, Any]:
    with index.view() as view:
        found = view.searching()
    cells = {"cells": found.cells.cells} if found.cells else {}
    return {"search": f"{found.mode}: {found.why}".rstrip(": "), **cells}
