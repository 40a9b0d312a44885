"""What can happen to a Hudi table, as a catalogue: each history is steps with a sync after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hudi_tables import COLUMNS, HudiTables, row

from lakewake.errors import ConfigError, LakewakeError, TableError
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.sync import Parts, sync
from oracle import built_from_nothing, following, indexed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
FOLLOW, RECONCILE, BUILD = Action.FOLLOW, Action.RECONCILE, Action.BUILD


@dataclass(frozen=True)
class Step:
    """What is done to the table, and what the sync after it must do. None: not definite.

    Attributes:
        why: a key word of the reason that the sync gives, or of the error.
        duplicated: keys that the table now holds more than once.
        refused: the error that the sync must end with instead.
    """

    does: Callable[[HudiTables], Any]
    action: Action = FOLLOW
    why: str = ""
    changed: int | None = None
    deleted: int | None = None
    embedded: int | None = None
    duplicated: frozenset[str] = frozenset()
    refused: type[LakewakeError] | None = None


def six_rows(table: HudiTables) -> None:
    """k0, k2 and k4 in partition a; k1, k3 and k5 in b."""
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])


BUILT = Step(six_rows, BUILD, "no index yet", changed=6, deleted=0, embedded=6)


@dataclass(frozen=True)
class History:
    """How a table begins, and what happens to it.

    Attributes:
        types: the table types on which this can happen.
    """

    steps: tuple[Step, ...]
    begins: Step = BUILT
    types: tuple[str, ...] = (COW, MOR)
    keys: str = "id"
    partition: str = "part"
    options: Mapping[str, str] = field(default_factory=dict)
    payload: tuple[str, ...] = ("id", "num")
    text: str = "{txt}"


def play(history: History, type_: str, spark: SparkSession, folder: Path, **settings: str) -> str:
    """Carries a history out; after each step the index must say what the table says.

    Returns:
        What the syncs after the first one did, in order: follow, reconcile, build or refused.
    """
    options = {**settings, **history.options}
    table = HudiTables(
        spark, folder / "table", type_, history.keys, history.partition, options=options
    )
    fields = (TextField("text", history.text),)
    parts = following(spark, table.path, folder / "index", payload=history.payload, fields=fields)
    did = [_play_step(step, table, parts) for step in (history.begins, *history.steps)]
    return ", ".join(dict.fromkeys(did[1:] or did))


def _play_step(step: Step, table: HudiTables, parts: Parts) -> str:
    step.does(table)
    parts.embedder.received.clear()
    if step.refused:
        with pytest.raises(step.refused, match=step.why):
            sync(parts)
        assert parts.embedder.received == []
        return "refused"
    report = sync(parts)
    assert report.action is step.action, report.why
    assert step.why in report.why
    assert report.embedded == len(parts.embedder.received)
    assert indexed(parts) == built_from_nothing(parts)
    counts = (report.rows_changed, report.rows_deleted, report.embedded)
    wanted = (step.changed, step.deleted, step.embedded)
    assert tuple(c if w is None else w for w, c in zip(wanted, counts, strict=True)) == counts
    assert {row.key for row in _frontier(parts).duplicates} == step.duplicated
    assert sync(parts).action is Action.NOTHING
    return report.action.value


def _frontier(parts: Parts) -> Frontier:
    reader = parts.store.open()
    assert reader is not None
    return reader.frontier()


def _merge(rows: str, matched: str) -> str:
    return (
        f"MERGE INTO t USING (SELECT * FROM VALUES {rows} AS v(id, part, ts, txt, num, op)) s "
        f"ON t.id = s.id AND t.part = s.part {matched} "
        "WHEN NOT MATCHED THEN INSERT (id, sub, part, ts, txt, num) "
        "VALUES (s.id, 's', s.part, s.ts, s.txt, s.num)"
    )


_ALL = _merge(
    "('k0', 'a', 2L, 'merged', 7, 'u'), ('k2', 'a', 2L, '', 0, 'd'), ('n1', 'c', 2L, 'n', 0, 'i')",
    "WHEN MATCHED AND s.op = 'u' THEN UPDATE SET txt = s.txt, ts = s.ts WHEN MATCHED THEN DELETE",
)
_PARTIAL = _merge(
    "('k1', 'b', 2L, '', 9, 'u')", "WHEN MATCHED THEN UPDATE SET num = s.num, ts = s.ts"
)
_LATE_PARTIAL = _merge(
    "('k3', 'b', 0L, '', 9, 'u')", "WHEN MATCHED THEN UPDATE SET num = s.num, ts = s.ts"
)
PARTIAL_PAYLOAD = {
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"
}


OCC = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
GLOBAL = {
    "hoodie.index.type": "GLOBAL_SIMPLE",
    "hoodie.simple.index.update.partition.path": "true",
}
KEYGEN = "org.apache.hudi.keygen"
TIMESTAMPS = {
    "hoodie.datasource.write.keygenerator.class": f"{KEYGEN}.TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "SCALAR",
    "hoodie.keygen.timebased.timestamp.scalar.time.unit": "seconds",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.datasource.write.hive_style_partitioning": "false",
}


def _cluster_between(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2)])
    table.cluster()
    table.write([row("k1", "overwritten", part="b")], "insert_overwrite")
    table.delete("k2")
    table.cluster()


def _compact_between(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2), row("k4", "changed twice", ts=2)])
    table.delete("k2")
    table.compact()
    table.write([row("k4", "changed thrice", ts=3)])
    table.write([row("k1", "overwritten", part="b")], "insert_overwrite")
    table.compact()


def _restored(table: HudiTables) -> None:
    table.restore(table.marks["savepoint"])


def _savepoint_then_change(table: HudiTables) -> None:
    table.marks["savepoint"] = table.savepoint()
    table.write([row("k0", "to be undone", ts=2)])
    table.delete("k2")
    table.write([row("n1", "to be undone too")])


def _fail(table: HudiTables) -> None:
    table.begin_write([row("k0", "never", ts=9)], fails=True)
    assert table.finish_write() is not None


def _recreate(table: HudiTables) -> None:
    table.drop()
    table.write([row("k0"), row("k1", "of the new table")])


def _put_back(table: HudiTables) -> None:
    table.put_back(table.path.with_name("copy"))


def _copy_then_change(table: HudiTables) -> None:
    table.copy_to(table.path.with_name("copy"))
    table.write([row("k0", "to be forgotten", ts=2)])
    table.delete("k2")


def _compact_where_possible(table: HudiTables) -> None:
    if table.type == MOR:
        table.compact()


def _clean_by_commits(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")
    _compact_where_possible(table)
    table.write([row("k0", "changed again", ts=3)])
    _compact_where_possible(table)
    table.clean(policy="KEEP_LATEST_COMMITS", commits__retained="1")


def _clean_by_versions(table: HudiTables) -> None:
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")
    _compact_where_possible(table)
    table.clean(policy="KEEP_LATEST_FILE_VERSIONS", fileversions__retained="1")


def _archive_past(table: HudiTables) -> None:
    for n in range(4):
        table.write([row("k0", f"change {n}", ts=n + 2)])
    table.delete("k2")
    table.archive(keep=2)


def _finish(table: HudiTables) -> None:
    assert table.finish_write() is None


def _finish_and_archive(table: HudiTables) -> None:
    _finish(table)
    table.write([row("k3", "newest", part="b", ts=3)])
    _compact_where_possible(table)
    # The fast writer's commit stays: it alone would not tell that another one is gone.
    table.archive(keep=3 if table.type == MOR else 2)


def _overlap(table: HudiTables) -> None:
    table.begin_write([row("k0", "by the slow writer", ts=2), row("n1", "slow too")])
    table.write([row("k1", "by the fast writer", part="b", ts=2)])


def _add_column(table: HudiTables) -> None:
    table.sql("ALTER TABLE t ADD COLUMNS (extra string)")
    table.sql("UPDATE t SET extra = 'x', num = 5 WHERE id = 'k0'")


def _keyless(table: HudiTables) -> None:
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)], "insert")


EVOLVING = {
    "hoodie.schema.on.read.enable": "true",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}


def _rename_text(table: HudiTables) -> None:
    six_rows(table)
    table.sql("ALTER TABLE t RENAME COLUMN txt TO words")


def _widen(table: HudiTables) -> None:
    columns = COLUMNS.replace("num int", "num long")
    table.write_frame(table.spark.createDataFrame([row("k0", ts=2, num=2**40)], columns))


def _add_column_by_a_write(table: HudiTables) -> None:
    frame = table.spark.createDataFrame(
        [(*row("k0", "wide", ts=2), "x")], COLUMNS + ", more string"
    )
    table.write_frame(frame)


def _archive_behind(table: HudiTables) -> None:
    for n in range(5):
        table.write([row("k1", f"change {n}", part="b", ts=n + 2)])


def _archive_then_change(table: HudiTables) -> None:
    table.archive(keep=2)
    table.write([row("k0", "after it", ts=2)])
    table.delete("k2")


HISTORIES: dict[str, History] = {
    "MERGE INTO": History(
        (
            Step(lambda t: t.sql(_ALL), changed=2, deleted=1, embedded=2),
            Step(lambda t: t.sql(_PARTIAL), changed=1, deleted=0, embedded=0),
            Step(lambda t: t.sql(_LATE_PARTIAL), deleted=0, embedded=0),
        )
    ),
    "an update and deletes that lose by their ordering field": History(
        (
            Step(lambda t: t.write([row("k0", "winner", ts=5)]), changed=1, deleted=0, embedded=1),
            Step(lambda t: t.write([row("k0", "loser", ts=4)]), changed=0, deleted=0, embedded=0),
            Step(lambda t: t.soft_delete("k0", ts=4), changed=0, deleted=0, embedded=0),
            Step(lambda t: t.write([row("k0", ts=3)], "delete")),
        )
    ),
    "late data": History(
        (
            Step(
                lambda t: t.write([row("n1", ts=-9), row("k0", "late", ts=0)]),
                changed=1,
                deleted=0,
                embedded=1,
            ),
        )
    ),
    "a deleted row brought back by a lower-ordered record": History(
        (
            Step(lambda t: t.write([row("k0", ts=9)], "delete"), changed=0, deleted=1, embedded=0),
            Step(lambda t: t.write([row("k0", "back", ts=5)])),
            Step(lambda t: (t.delete("k2"), t.write([row("k2", "back", ts=3)]))),
        )
    ),
    "a partial-update merge mode": History(
        (
            Step(lambda t: t.write([("k0", None, "a", 5, None, 3)]), changed=1, deleted=0),
            Step(lambda t: t.write([("k0", None, "a", 4, "late text", None)])),
            Step(lambda t: (t.write([("k2", None, "a", 7, "new", None)]), t.delete("k4"))),
            Step(lambda t: t.write([("n1", None, "c", 5, None, 1)]), changed=0, embedded=0),
            Step(lambda t: t.write([("n1", None, "c", 4, "filled in late", 2)])),
        ),
        options=PARTIAL_PAYLOAD,
    ),
    "delete then insert again inside one window": History(
        (
            Step(
                lambda t: (t.delete("k0"), t.write([row("k0", ts=10**7)])),
                changed=0,
                deleted=0,
                embedded=0,
            ),
        )
    ),
    "clustering among updates, deletes and overwrites": History(
        (Step(_cluster_between, changed=2, deleted=3, embedded=2),)
    ),
    "compaction among updates, deletes and overwrites": History(
        (Step(_compact_between, changed=3, deleted=3, embedded=3),), types=(MOR,)
    ),
    "a partition move under a global index": History(
        (Step(lambda t: t.write([row("k0", part="b", ts=2)]), changed=1, deleted=1, embedded=0),),
        options=GLOBAL,
    ),
    "equal record keys in two partitions": History(
        (
            Step(lambda t: t.write([row("k0", "other k0", part="b")]), changed=1, deleted=0),
            Step(lambda t: t.delete("k0"), changed=0, deleted=1, embedded=0),
        )
    ),
    "a table without keys": History(
        (
            Step(lambda t: t.write([row("k0", "again")], "insert"), changed=1, embedded=1),
            Step(
                lambda t: t.sql(
                    "UPDATE t SET txt = 'updated' WHERE id = 'k1'", "DELETE FROM t WHERE id = 'k2'"
                ),
                changed=1,
                deleted=1,
                embedded=1,
            ),
        ),
        begins=Step(_keyless, BUILD, changed=6, embedded=6),
        keys="",
    ),
    "a timestamp key generator": History(
        (
            Step(lambda t: t.write([row("k0", "moved", ts=0), row("n", ts=10**9)]), deleted=0),
            Step(lambda t: t.write([row("n", ts=10**9)], "delete"), changed=0, deleted=1),
        ),
        partition="ts",
        options=TIMESTAMPS,
    ),
    # Hudi shows such a column as text, the files hold a number: only Hudi's own read tells.
    "a timestamp key generator's column in the payload": History(
        (Step(lambda t: t.write([row("n", ts=10**9)]), RECONCILE, "column 'ts'", changed=1),),
        types=(COW,),
        partition="ts",
        options=TIMESTAMPS,
        payload=("id", "ts"),
    ),
    "insert_overwrite_table": History(
        (
            Step(
                lambda t: t.write([row("k0"), row("o1", part="c")], "insert_overwrite_table"),
                changed=1,
                deleted=5,
                embedded=1,
            ),
        )
    ),
    "delete_partition then insert again": History(
        (
            Step(
                lambda t: (t.delete_partition("a"), t.write([row("k0"), row("k2", "anew")])),
                changed=1,
                deleted=1,
                embedded=1,
            ),
        )
    ),
    "a failed write then its rollback": History(
        (
            Step(_fail, action=Action.NOTHING),
            Step(lambda t: t.write([row("k1", "after", part="b", ts=2)]), changed=1, deleted=0),
        )
    ),
    "cleaning by commits": History(
        (Step(_clean_by_commits, RECONCILE, "cleaner", changed=1, deleted=1, embedded=1),)
    ),
    "cleaning by file versions": History(
        (Step(_clean_by_versions, RECONCILE, "cleaner", changed=1, deleted=1, embedded=1),)
    ),
    "archival past the frontier": History(
        (Step(_archive_past, RECONCILE, "keeps history from", changed=1, deleted=1, embedded=1),)
    ),
    "in flight at one sync, completed and archived before the next": History(
        (
            Step(_overlap, changed=1, deleted=0, embedded=1),
            Step(_finish_and_archive, RECONCILE, "in flight at the last sync, archived since"),
        ),
        options=OCC,
    ),
    "two writers whose commits overlap": History(
        (
            Step(_overlap, changed=1, deleted=0, embedded=1),
            Step(_finish, changed=2, deleted=0, embedded=2),
        ),
        options=OCC,
    ),
    "TRUNCATE": History(
        (
            Step(
                lambda t: t.sql("TRUNCATE TABLE t"),
                RECONCILE,
                "keeps history from nowhere",
                changed=0,
                deleted=6,
                embedded=0,
            ),
            Step(lambda t: t.write([row("k0")]), BUILD, "first commit", changed=1, embedded=0),
        )
    ),
    "an older copy of the table put back": History(
        (
            Step(_copy_then_change, changed=1, deleted=1, embedded=1),
            Step(_put_back, RECONCILE, "undone", changed=2, deleted=0, embedded=0),
        )
    ),
    "the table dropped and made anew at its path": History(
        (Step(_recreate, RECONCILE, "keeps history from", changed=1, deleted=5, embedded=1),)
    ),
    "a savepoint restored": History(
        (
            Step(_savepoint_then_change, changed=2, deleted=1, embedded=2),
            Step(_restored, RECONCILE, "undone", changed=2, deleted=1, embedded=0),
        )
    ),
    "the last commit rolled back": History(
        (
            Step(lambda t: t.write([row("k0", "undone", ts=2)]), changed=1),
            Step(lambda t: t.undo_last_commit(), RECONCILE, "undone", changed=1, deleted=0),
        )
    ),
    "a column added": History((Step(_add_column, changed=1, deleted=0, embedded=0),)),
    "a column added by a write": History(
        (
            Step(_add_column_by_a_write, changed=1, deleted=0, embedded=1),
            Step(lambda t: t.delete("k1", part="b"), changed=0, deleted=1, embedded=0),
        )
    ),
    "a used column widened": History(
        (Step(_widen, RECONCILE, "column 'num' went from int to long", embedded=0),)
    ),
    "an unused column renamed": History(
        (
            Step(
                lambda t: t.sql(
                    "ALTER TABLE t RENAME COLUMN sub TO under",
                    "UPDATE t SET txt = 'after it' WHERE id = 'k0'",
                ),
                changed=1,
                deleted=0,
                embedded=1,
            ),
        ),
        options=EVOLVING,
    ),
    "a used column renamed": History(
        (
            Step(
                lambda t: t.sql("ALTER TABLE t RENAME COLUMN num TO number"),
                refused=ConfigError,
                why="has no column 'num'",
            ),
        ),
        options=EVOLVING,
    ),
    "a used column dropped and added again": History(
        (
            Step(
                lambda t: t.sql(
                    "ALTER TABLE t DROP COLUMN num",
                    "ALTER TABLE t ADD COLUMNS (num int)",
                    "UPDATE t SET num = 5 WHERE id = 'k0'",
                ),
                RECONCILE,
                "column 'num' went from int to absent",
                deleted=0,
                embedded=0,
            ),
        ),
        options=EVOLVING,
    ),
    "an index on a column that was renamed": History(
        (Step(lambda t: t.sql("UPDATE t SET words = 'new' WHERE id = 'k0'"), changed=1),),
        begins=Step(_rename_text, BUILD, changed=6, embedded=6),
        options=EVOLVING,
        text="{words}",
    ),
    "the text column dropped": History(
        (
            Step(
                lambda t: t.sql("ALTER TABLE t DROP COLUMN txt"),
                refused=ConfigError,
                why=r"has no column 'txt'[\s\S]*its columns are id, num, part, sub, ts",
            ),
        ),
        options=EVOLVING,
    ),
    "one row id stored twice": History(
        (
            Step(
                lambda t: t.write([row("k0", "newer copy", ts=3)], "bulk_insert"),
                changed=1,
                deleted=0,
                embedded=1,
                duplicated=frozenset({"k0"}),
            ),
            Step(
                lambda t: t.sql("DELETE FROM t WHERE txt = 'newer copy'"),
                changed=1,
                deleted=0,
                embedded=0,
            ),
            Step(
                lambda t: t.write([row("x", "first"), row("x", "second")], "bulk_insert"),
                changed=1,
                deleted=0,
                embedded=1,
                duplicated=frozenset({"x"}),
            ),
        )
    ),
    "table version 6": History(
        (),
        begins=Step(six_rows, refused=TableError, why="has table version 6"),
        options={"hoodie.write.table.version": "6"},
    ),
    "archival behind the frontier": History(
        (
            Step(_archive_behind, changed=1, deleted=0, embedded=1),
            Step(_archive_then_change, changed=1, deleted=1, embedded=1),
        )
    ),
}
