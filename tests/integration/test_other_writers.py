"""Tables whose writers have other settings than ours: payloads, mergers, CDC, odd paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from lakewake.model.plan import Action
from lakewake.sync import SyncOptions, sync
from lakewake.verify import verify
from support.hudi.tables import COLUMNS, HudiTables, row
from support.oracle import HudiParts, built_from_nothing, following, indexed

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
PAYLOADS = "org.apache.hudi.common.model"


@dataclass(frozen=True)
class Writer:
    """How a table is written.

    Attributes:
        also: further columns, and their value in a row that stays.
        deletes: the same columns in a row that deletes.
        later: options that only later commits have.
        maintained: whether the table is compacted or clustered, too.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, object] = field(default_factory=dict)
    deletes: Mapping[str, object] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = (COW, MOR)
    folder: str = "table"
    maintained: bool = True

    @property
    def columns(self) -> str:
        """The columns of the table."""
        kinds = {str: "string", int: "long", bool: "boolean"}
        return ", ".join([COLUMNS, *(f"{c} {kinds[type(v)]}" for c, v in self.also.items())])


def payload(name: str) -> dict[str, str]:
    return {"hoodie.datasource.write.payload.class": name}


WRITERS = {
    "change data capture": Writer({"hoodie.table.cdc.enabled": "true"}),
    "change data capture, keys only": Writer(
        {
            "hoodie.table.cdc.enabled": "true",
            "hoodie.table.cdc.supplemental.logging.mode": "OP_KEY_ONLY",
        }
    ),
    "Spark's merger, logs in Parquet": Writer(
        {
            "hoodie.write.record.merge.custom.implementation.classes": (
                "org.apache.hudi.DefaultSparkRecordMerger"
            ),
            "hoodie.logfile.data.block.format": "parquet",
        },
        types=(MOR,),
    ),
    "AWS DMS": Writer(payload(f"{PAYLOADS}.AWSDmsAvroPayload"), {"Op": "U"}, {"Op": "D"}),
    "Debezium for Postgres": Writer(
        payload(f"{PAYLOADS}.debezium.PostgresDebeziumAvroPayload")
        | {"hoodie.datasource.write.precombine.field": "_event_lsn"},
        {"_change_operation_type": "u", "_event_lsn": 1},
        {"_change_operation_type": "d", "_event_lsn": 10**6},
    ),
    "a delete marker": Writer(
        payload(f"{PAYLOADS}.DefaultHoodieRecordPayload")
        | {"hoodie.payload.delete.field": "state", "hoodie.payload.delete.marker": "gone"},
        {"state": "here"},
        {"state": "gone"},
    ),
    "values that are not defaults win": Writer(
        payload(f"{PAYLOADS}.OverwriteNonDefaultsWithLatestAvroPayload")
    ),
    "table version 8, upgraded later": Writer(
        {"hoodie.write.table.version": "8", "hoodie.write.auto.upgrade": "false"},
        later={"hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"},
    ),
    "an odd path": Writer(folder="odd [a-c]{x,y} #1 %20 $HOME ünï"),
    "the record index": Writer(
        {
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.index.type": "RECORD_INDEX",
        }
    ),
    "buckets": Writer(
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.bucket.index.hash.field": "id",
        },
        # Hudi's own procedures fail on such a table with a NullPointerException.
        maintained=False,
    ),
}
CASES = [(name, type_) for name, writer in WRITERS.items() for type_ in writer.types]


@dataclass
class Written:
    """A table of one writer, and its index."""

    writer: Writer
    table: HudiTables
    parts: HudiParts

    def write(self, *rows: tuple, delete: bool = False, **more: str) -> None:
        """One commit."""
        extra = self.writer.deletes if delete else self.writer.also
        full = [(*r, *(r[3] if c == "_event_lsn" else v for c, v in extra.items())) for r in rows]
        frame = self.table.spark.createDataFrame(full, self.writer.columns).coalesce(1)
        self.table.write_frame(frame, **more)

    def delete(self, *keys: str) -> None:
        """Delete rows, as this writer does."""
        rows = [row(k, ts=10**6) for k in keys]
        if self.writer.deletes:
            self.write(*rows, delete=True)
        else:
            self.write(*rows, operation="delete")

    def followed(self) -> None:
        """Check that a sync needs no reconcile, embeds what changed, and gives a build's index."""
        known = {c["_text"] for c, _ in indexed(self.parts).values()}
        self.parts.embedder.received.clear()
        report = sync(self.parts, SyncOptions(reconcile=False))
        assert report.action is Action.FOLLOW
        assert not known & set(self.parts.embedder.received)
        assert indexed(self.parts) == built_from_nothing(self.parts)
        assert verify(self.parts).agrees


@pytest.fixture
def written(request, spark, small_tables, tmp_path) -> Written:
    name, type_ = request.param
    writer = WRITERS[name]
    options = {**small_tables, **writer.options}
    path = tmp_path / writer.folder
    table = HudiTables(spark, path, type_, options=options)
    made = Written(writer, table, following(spark, path, tmp_path / "index"))
    made.write(*(row(f"k{n}", part="ab"[n % 2]) for n in range(6)))
    assert sync(made.parts).rows_changed == 6
    made.table.options = {**options, **writer.later}
    return made


@pytest.mark.parametrize("written", CASES, indirect=True, ids=" ".join)
def test_the_commits_of_another_writer_are_followed(written):
    written.write(row("k0", "changed", ts=5), row("new", "new"))
    written.followed()
    written.delete("k2")
    written.followed()
    # One change comes late, one row is deleted and written again.
    written.write(row("k0", "late", ts=3), row("k4", "newer", ts=9))
    written.delete("k4")
    written.write(row("k4", "back", ts=10**7), row("k1", "b changed", part="b", ts=4))
    written.followed()
    if written.writer.maintained:
        (written.table.compact if written.table.type == MOR else written.table.cluster)()
    written.write(row("new", "after", ts=6))
    written.followed()
