"""Reads what Hudi writes under `.hoodie`: properties, instants and commit metadata. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakewake.model.avro import type_text
from lakewake.model.cleaning import read_avro
from lakewake.model.timeline import (
    CommitMetadata,
    FileGroup,
    Instant,
    TableIdentity,
    WriteStat,
)

META_COLUMNS = frozenset(
    {
        "_hoodie_commit_time",
        "_hoodie_commit_seqno",
        "_hoodie_record_key",
        "_hoodie_partition_path",
        "_hoodie_file_name",
        "_hoodie_operation",
    }
)
#: Payload classes that replace the whole row, so that a changed row has a new version.
WHOLE_ROW_PAYLOADS = frozenset(
    {"", "DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload", "EventTimeAvroPayload"}
)
#: The first table version whose timeline records completion times.
FIRST_VERSION = 8


def parse_instants(names: Iterable[str]) -> tuple[Instant, ...]:
    """The timeline, from a listing of `.hoodie/timeline`.

    `R_C.action` is completed; `R.action.requested`, `R.action.inflight` and `R.inflight` (a commit)
    are in flight. The completed file takes precedence over the other two of its instant.
    A savepoint has the time of the commit that it marks and would hide it, so it is left out.
    """
    done: dict[str, Instant] = {}
    open_: dict[str, Instant] = {}
    for name in names:
        head, _, rest = name.partition(".")
        requested, _, completed = head.partition("_")
        if not requested.isdigit() or rest.startswith("savepoint"):
            continue
        if completed.isdigit():
            done[requested] = Instant(requested, completed, rest)
        else:
            action = rest.split(".")[0]
            open_[requested] = Instant(
                requested, None, "commit" if action == "inflight" else action
            )
    return tuple(sorted({**open_, **done}.values(), key=lambda i: i.requested))


def has_savepoints(names: Iterable[str]) -> bool:
    """Whether a listing of `.hoodie/timeline` has a completed savepoint."""
    return any(name.endswith(".savepoint") for name in names)


def newest_archived(names: Iterable[str]) -> str:
    """The newest archived instant, from a listing of the archive; '' if it is empty.

    A file is named after the first and the last instant in it: `FIRST_LAST_LEVEL.parquet`.
    """
    parts = (name.partition(".")[0].split("_") for name in names if name.endswith(".parquet"))
    return max((p[1] for p in parts if len(p) == 3 and p[1].isdigit()), default="")


def parse_commit(content: bytes) -> CommitMetadata:
    """A completed commit's metadata: Avro since Hudi 1.0, JSON before and for some writers."""
    raw = json.loads(content) if content[:1] == b"{" else read_avro(content)
    writes = tuple(
        _write_stat(partition, stat)
        for partition, stats in (raw.get("partitionToWriteStats") or {}).items()
        for stat in stats
    )
    replaced = tuple(
        FileGroup(partition, file_id)
        for partition, ids in (raw.get("partitionToReplaceFileIds") or {}).items()
        for file_id in ids
    )
    schema = parse_schema((raw.get("extraMetadata") or {}).get("schema"))
    return CommitMetadata(raw.get("operationType") or "UNKNOWN", writes, replaced, schema)


def _write_stat(partition: str, stat: Mapping[str, Any]) -> WriteStat:
    return WriteStat(
        FileGroup(partition, stat["fileId"]),
        stat["path"],
        stat.get("prevBaseFile") or None,
        stat.get("numInserts") or 0,
        stat.get("numUpdateWrites") or 0,
        stat.get("numDeletes") or 0,
        _previous_commit(stat),
        stat.get("fileSizeInBytes") or 0,
    )


def _previous_commit(stat: Mapping[str, Any]) -> str | None:
    """The commit whose file this one replaces. Hudi writes the word `null` if there is none."""
    commit = stat.get("prevCommit")
    return commit if commit and commit != "null" else None


def parse_schema(text: str | None) -> dict[str, str] | None:
    """Column → its type as JSON (`type_text`), without Hudi's own columns.

    Raises:
        ValueError: it is not the Avro schema of a record.
    """
    if not text:
        return None
    try:
        fields = json.loads(text)["fields"]
        return {f["name"]: type_text(f["type"]) for f in fields if f["name"] not in META_COLUMNS}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not the Avro schema of a record") from error


def with_dropped(
    schema: Mapping[str, str] | None, properties: Mapping[str, str]
) -> Mapping[str, str] | None:
    """The schema, plus the partition columns that writers leave out of the files and their schema.

    Hudi still shows these, as text.
    """
    if not schema or properties.get("hoodie.datasource.write.drop.partition.columns") != "true":
        return schema
    fields = properties.get("hoodie.table.partition.fields", "")
    return {**{c: type_text("string") for c in partition_columns(fields)}, **schema}


def partition_columns(fields: str) -> frozenset[str]:
    """The columns that a table is partitioned by; a name may be followed by its key generator."""
    return frozenset(name.partition(":")[0] for name in fields.split(",") if name)


def identity_of(properties: Mapping[str, str]) -> TableIdentity:
    """The table's identity, from its properties."""
    return TableIdentity(
        name=properties.get("hoodie.table.name", ""),
        record_key=properties.get("hoodie.table.recordkey.fields", ""),
        partition_fields=properties.get("hoodie.table.partition.fields", ""),
        type=properties.get("hoodie.table.type", "COPY_ON_WRITE"),
    )


def merges_contents(properties: Mapping[str, str]) -> bool:
    """Whether a row can change while its version (commit time, sequence number) stays."""
    if properties.get("hoodie.table.partial.update.mode"):
        return True
    if properties.get("hoodie.record.merge.mode") == "CUSTOM":
        return True
    payload = properties.get("hoodie.table.payload.class") or properties.get(
        "hoodie.compaction.payload.class", ""
    )
    version = int(properties.get("hoodie.table.version", "0"))
    return version < 9 and payload.rsplit(".", 1)[-1] not in WHOLE_ROW_PAYLOADS


def file_name(instant: Instant) -> str:
    """The timeline file of a completed instant."""
    assert instant.changes_data
    return f"{instant.requested}_{instant.completed}.{instant.action}"
