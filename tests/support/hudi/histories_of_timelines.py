"""What writers and table services do to a timeline."""

from __future__ import annotations

from lakewake.errors import TableError
from lakewake.model.plan import Action
from support.hudi.playing import BUILD, COW, MOR, RECONCILE, History, Step, six_rows
from support.hudi.tables import ROLLS_CLUSTERING_BACK, WRITES_GO_ON, HudiTables, row

OCC = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
#: Hudi archives only what its metadata table has compacted; by default that takes days.
ARCHIVED = {"hoodie.metadata.compact.max.delta.commits": "1"}

#: Archive all commits but the newest two, except those with a savepoint.
BEYOND_SAVEPOINTS = {
    "hoodie__archive__automatic": "true",
    "hoodie__archive__beyond__savepoint": "true",
    "hoodie__clean__automatic": "true",
    "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2",
    "hoodie__keep__max__commits": "3",
}


def _restored(table: HudiTables) -> None:
    table.restore(table.marks["savepoint"])


def _savepoint_then_change(table: HudiTables) -> None:
    table.marks["savepoint"] = table.savepoint()
    table.write([row("k0", "to be undone", ts=2)])
    table.delete("k2")
    table.write([row("n1", "to be undone too")])


def _savepoint_then_cluster(table: HudiTables) -> None:
    _savepoint_then_change(table)
    table.cluster()


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


def _drop_partition_and_clean(table: HudiTables) -> None:
    table.delete_partition("a")
    table.clean(policy="KEEP_LATEST_FILE_VERSIONS", fileversions__retained="1")


def _archive_past(table: HudiTables) -> None:
    for n in range(4):
        table.write([row("k0", f"change {n}", ts=n + 2)])
    table.delete("k2")
    table.archive(keep=2)


def _archive_behind_a_savepoint(table: HudiTables) -> None:
    table.savepoint()
    for n in range(3):
        table.write([row(f"n{n}", part="c")])
    table.delete("k2")
    _compact_where_possible(table)
    table.write([row("k1", "newest", part="b", ts=2)], **BEYOND_SAVEPOINTS)


def _finish(table: HudiTables) -> None:
    assert table.finish_write() is None


def _finish_and_archive(table: HudiTables) -> None:
    _finish(table)
    table.write([row("k3", "newest", part="b", ts=3)])
    _compact_where_possible(table)
    # The fast writer's commit stays; by itself it would not reveal that another one is gone.
    table.archive(keep=3 if table.type == MOR else 2)


def _overlap(table: HudiTables) -> None:
    table.begin_write([row("k0", "by the slow writer", ts=2), row("n1", "slow too")])
    table.write([row("k1", "by the fast writer", part="b", ts=2)])


def _archive_behind(table: HudiTables) -> None:
    for n in range(5):
        table.write([row("k1", f"change {n}", part="b", ts=n + 2)])


def _archive_then_change(table: HudiTables) -> None:
    table.archive(keep=2)
    table.write([row("k0", "after it", ts=2)])
    table.delete("k2")


def _plan_clustering_then_change(table: HudiTables) -> None:
    table.plan_clustering()
    table.write([row("k0", "to be undone", ts=2)])
    table.delete("k2")


def _plan_clustering_then_overwrite(table: HudiTables) -> None:
    table.plan_clustering()
    table.write([row("k0", "over", ts=3)], "insert_overwrite")


def _begin_then_cluster(table: HudiTables) -> None:
    table.begin_write([row("k0", "into a group that is replaced", ts=2)])
    table.cluster()


def _begin_then_write_the_same_group(table: HudiTables) -> None:
    table.begin_write([row("k0", "by the slow writer", ts=4)])
    table.write([row("k2", "by the fast writer", ts=4)])


def _both_write_the_same_group(table: HudiTables) -> None:
    _begin_then_write_the_same_group(table)
    table.write([row("k4", "once more", ts=5)])
    _finish(table)


def _plan_compaction_then_change(table: HudiTables) -> None:
    table.write([row("k4", "in a log", ts=2)])
    table.plan_compaction()
    table.write([row("k0", "after the plan", ts=2)])
    table.delete("k2")


def _plan_compaction_beside_a_writer(table: HudiTables) -> None:
    table.write([row("k4", "in a log again", ts=3)])
    table.begin_write([row("k0", "under way at the plan", ts=3)])
    table.plan_compaction()
    _finish(table)


TIMELINES: dict[str, History] = {
    "clustering planned before its inputs are written": History(
        (
            Step(_plan_clustering_then_change, changed=1, deleted=1, embedded=1),
            Step(lambda t: t.run_clustering(), why="cluster", changed=2, deleted=0, embedded=0),
            Step(_plan_clustering_then_overwrite, changed=1, deleted=2, embedded=1),
            Step(
                lambda t: t.run_clustering(),
                why="cluster",
                deleted=0,
                embedded=0,
                duplicated=frozenset({"k0"}),
            ),
        ),
        options=WRITES_GO_ON,
    ),
    "a slow writer into a file group that clustering replaced": History(
        (
            Step(_begin_then_cluster, changed=0, deleted=0),
            Step(_finish, changed=0, deleted=0, embedded=0),
        ),
        options=WRITES_GO_ON,
    ),
    "two writers into one file group without a lock": History(
        (
            Step(_begin_then_write_the_same_group, changed=1, deleted=0, embedded=1),
            Step(_finish, changed=0, deleted=0, embedded=0),
            Step(_both_write_the_same_group, changed=1, deleted=0, embedded=1),
        ),
        types=(COW,),
        options=WRITES_GO_ON,
    ),
    "compaction planned before its inputs are written": History(
        (
            Step(_plan_compaction_then_change, changed=2, deleted=1, embedded=2),
            Step(lambda t: t.run_compaction(), why="compact", changed=0, deleted=0, embedded=0),
            Step(_plan_compaction_beside_a_writer, RECONCILE, "planned while", changed=2),
            Step(lambda t: t.run_compaction(), RECONCILE, "planned while", changed=0, deleted=0),
            Step(lambda t: t.write([row("k1", "after", part="b", ts=9)]), changed=1, deleted=0),
        ),
        types=(MOR,),
        options=WRITES_GO_ON,
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
    "a partition dropped and cleaned": History(
        (
            Step(_drop_partition_and_clean, RECONCILE, "cleaner", changed=0, deleted=3),
            Step(lambda t: t.write([row("k0", "again", ts=2)]), changed=1, deleted=0, embedded=1),
        )
    ),
    "archival past the frontier": History(
        (Step(_archive_past, RECONCILE, "keeps history from", changed=1, deleted=1, embedded=1),),
        options=ARCHIVED,
    ),
    "commits archived behind a savepoint at the frontier": History(
        (
            # Hudi 1.2 no longer shows what the archived commits wrote.
            Step(_archive_behind_a_savepoint, RECONCILE, "behind a savepoint"),
            Step(lambda t: t.write([row("k3", "after it", part="b", ts=2)]), changed=1, deleted=0),
        ),
        options=ARCHIVED,
    ),
    "in flight at one sync, completed and archived before the next": History(
        (
            Step(_overlap, changed=1, deleted=0, embedded=1),
            Step(_finish_and_archive, RECONCILE, "in flight at the last sync, archived since"),
        ),
        options={**OCC, **ARCHIVED},
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
                "keeps no history",
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
    "the table dropped and created again at its path": History(
        (Step(_recreate, RECONCILE, "keeps history from", changed=1, deleted=5, embedded=1),)
    ),
    "a savepoint restored": History(
        (
            Step(_savepoint_then_change, changed=2, deleted=1, embedded=2),
            Step(_restored, RECONCILE, "undone", changed=2, deleted=1, embedded=0),
        )
    ),
    "a savepoint before a clustering restored": History(
        (
            Step(_savepoint_then_cluster, changed=2, deleted=1, embedded=2),
            Step(_restored, RECONCILE, "undone", changed=2, deleted=1, embedded=0),
            Step(lambda t: t.write([row("k0", "after", ts=3)]), changed=1, deleted=0, embedded=1),
        ),
        options=ROLLS_CLUSTERING_BACK,
    ),
    "the last commit rolled back": History(
        (
            Step(lambda t: t.write([row("k0", "undone", ts=2)]), changed=1),
            Step(lambda t: t.undo_last_commit(), RECONCILE, "undone", changed=1, deleted=0),
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
