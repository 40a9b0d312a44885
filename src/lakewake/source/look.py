"""Reads the metadata files of a Hudi table, without a JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from lakewake.errors import TableError, TableMissing
from lakewake.model.cleaning import parse_clean_plan
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import CommitMetadata, Instant, Look
from lakewake.source.properties import table_properties
from lakewake.source.storage import Storage
from lakewake.source.timeline import (
    FIRST_VERSION,
    file_name,
    has_savepoints,
    identity_of,
    merges_contents,
    newest_archived,
    parse_commit,
    parse_instants,
    parse_schema,
    with_dropped,
)

#: A commit can be archived after its file was listed and before it is read; a new look helps.
LOOKS = 5
LOOK_AGAIN = 0.05


def look_at(path: str, frontier: Frontier | None = None) -> Look:
    """Look at the table at `path`.

    Raises:
        TableError: there is no Hudi table, or it cannot be followed.
    """
    storage = Storage(path)
    for _ in range(LOOKS):
        look = _try_look(storage, frontier)
        if look is not None:
            return look
        time.sleep(LOOK_AGAIN)
    raise TableError(
        f"the timeline of {path} keeps changing while it is read", hint="run the command again"
    )


def written_at(path: str, look: Look, instant: Instant) -> float | None:
    """When the file of a completed instant was written, in seconds since 1970; None if unknown.

    Raises:
        TableError: the table cannot be reached.
    """
    return Storage(path).modified(f"{_folder(look.properties)}/{file_name(instant)}")


def kept_from(path: str, look: Look) -> dict[str, str]:
    """For each clean on the timeline, the instant from which on it keeps all visible files."""
    storage, kept = Storage(path), dict[str, str]()
    for instant in look.instants:
        if instant.action != "clean":
            continue
        content = storage.read(f"{_folder(look.properties)}/{instant.requested}.clean.requested")
        try:
            kept[instant.requested] = parse_clean_plan(content) if content else ""
        except (ValueError, EOFError, StopIteration):
            kept[instant.requested] = ""
    return kept


def _folder(properties: Mapping[str, str]) -> str:
    return f".hoodie/{properties.get('hoodie.timeline.path', 'timeline')}"


def _try_look(storage: Storage, frontier: Frontier | None) -> Look | None:
    properties = _properties(storage)
    folder = _folder(properties)
    names = storage.names(folder) or ()
    instants = parse_instants(names)
    done = sorted((i for i in instants if i.changes_data), key=lambda i: (i.completed or "", i))
    known = frontier.instants if frontier else {i.requested: "" for i in done}
    # Known commits are opened too if they completed after the first new one had begun.
    begun = min((i.requested for i in done if i.requested not in known), default="~")
    commits: dict[str, CommitMetadata] = {}
    shown: CommitMetadata | None = None
    # By requested time, which is how Hudi chooses the schema that it shows: a slow writer that
    # completes after a schema change does not undo it.
    for instant in sorted(done, reverse=True):
        overlaps = (instant.completed or "") >= begun
        if instant.requested in known and shown is not None and not overlaps:
            continue
        content = storage.read(f"{folder}/{file_name(instant)}")
        commit = _parsed(content)
        if commit is None:
            return None
        commit = replace(commit, schema=with_dropped(commit.schema, properties))
        commits[instant.requested] = commit
        shown = shown or (commit if commit.tells_schema else None)
    schema = shown.schema if shown else _schema_without_a_write(storage, properties, commits)
    return Look(
        table=identity_of(properties),
        instants=instants,
        schema=schema or {},
        commits=commits,
        merges_contents=merges_contents(properties),
        properties=properties,
        archived=_archived(storage, properties) if has_savepoints(names) else "",
        location=storage.base,
    )


def _archived(storage: Storage, properties: Mapping[str, str]) -> str:
    archive = properties.get("hoodie.timeline.history.path", "history")
    return newest_archived(storage.names(f"{_folder(properties)}/{archive}") or ())


def _schema_without_a_write(
    storage: Storage, properties: dict[str, str], commits: dict[str, CommitMetadata]
) -> Mapping[str, str] | None:
    """The schema the table was created with; else the one that maintenance found in it."""
    name = "hoodie.table.create.schema"
    try:
        created = parse_schema(properties.get(name))
    except ValueError as error:
        raise TableError(
            f"property {name} of table {storage.base} cannot be read: {error}",
            hint="correct it in .hoodie/hoodie.properties, or write to the table once",
        ) from error
    return with_dropped(created, properties) or next(
        (c.schema for c in commits.values() if c.schema), None
    )


def _parsed(content: bytes | None) -> CommitMetadata | None:
    """A commit's metadata; None if its file is gone or still being written."""
    if content is None:
        return None
    try:
        return parse_commit(content)
    except (ValueError, EOFError, StopIteration):
        return None


def _properties(storage: Storage) -> dict[str, str]:
    content = storage.read(".hoodie/hoodie.properties")
    if content is None:
        content = storage.read(".hoodie/hoodie.properties.backup")
    if content is None:
        if not storage.exists():
            raise TableMissing(
                f"there is no table at {storage.base}",
                hint="check the path, or create a table with `lakewake ingest FILE TABLE`",
            )
        raise TableMissing(
            f"{storage.base} is not a Hudi table: it has no .hoodie/hoodie.properties",
            hint="name the table's base path, the folder that holds .hoodie",
        )
    properties = table_properties(storage.base, content)
    _refuse_unfollowable(storage.base, properties)
    return properties


def _refuse_unfollowable(base: str, properties: dict[str, str]) -> None:
    if properties.get("hoodie.populate.meta.fields", "true") == "false":
        raise TableError(
            f"table {base} was written with hoodie.populate.meta.fields=false: "
            "its rows carry no key and no commit time",
            hint="rewrite it with hoodie.populate.meta.fields=true",
        )
    if properties.get("hoodie.table.base.file.format", "PARQUET").upper() != "PARQUET":
        raise TableError(
            f"table {base} has base files in {properties['hoodie.table.base.file.format']}",
            hint="rewrite it with Parquet base files: Lakewake reads no others",
        )
    version = _version(base, properties.get("hoodie.table.version", "0"))
    if version < FIRST_VERSION:
        raise TableError(
            f"table {base} has table version {version}; Lakewake follows version {FIRST_VERSION} "
            "and later, whose timeline records when a commit completed",
            hint="write to it once with Hudi 1.x and automatic upgrade, or run CALL upgrade_table",
        )


def _version(base: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise TableError(
            f"property hoodie.table.version of table {base} is {text!r}, not a number",
            hint="correct it in .hoodie/hoodie.properties",
        ) from error
