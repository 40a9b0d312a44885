"""What writes do to rows, keys and partitions."""

from __future__ import annotations

from support.hudi.playing import BUILD, MOR, History, Step
from support.hudi.tables import HudiTables, row


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


def _keyless(table: HudiTables) -> None:
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)], "insert")


ROWS: dict[str, History] = {
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
    # Hudi shows such a column as text, but the files hold a number.
    "a timestamp key generator's column in the payload": History(
        (Step(lambda t: t.write([row("n", ts=10**9)]), changed=1, deleted=0, embedded=1),),
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
                lambda t: (t.delete_partition("a"), t.write([row("k0"), row("k2", "added again")])),
                changed=1,
                deleted=1,
                embedded=1,
            ),
        )
    ),
}
