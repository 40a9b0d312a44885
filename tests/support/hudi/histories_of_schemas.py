"""What a table goes through when its columns change."""

from __future__ import annotations

from lakewake.errors import ConfigError
from support.hudi.histories_of_timelines import OCC
from support.hudi.playing import BUILD, RECONCILE, History, Step, six_rows
from support.hudi.tables import COLUMNS, HudiTables, row


def _add_column(table: HudiTables) -> None:
    table.sql("ALTER TABLE t ADD COLUMNS (extra string)")
    table.sql("UPDATE t SET extra = 'x', num = 5 WHERE id = 'k0'")


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


def _slow_writer_of_the_former_schema(table: HudiTables) -> None:
    six_rows(table)
    table.begin_write([row("n1", "by the slow writer", part="c")])
    frame = table.spark.createDataFrame([(*row("k0", "x", ts=2), "m")], COLUMNS + ", more string")
    table.write_frame(frame)


def _finish(table: HudiTables) -> None:
    assert table.finish_write() is None


SCHEMAS: dict[str, History] = {
    "a column added": History((Step(_add_column, changed=1, deleted=0, embedded=0),)),
    "a column added by a write": History(
        (
            Step(_add_column_by_a_write, changed=1, deleted=0, embedded=1),
            Step(lambda t: t.delete("k1", part="b"), changed=0, deleted=1, embedded=0),
        )
    ),
    "a slow writer that knows nothing of a column": History(
        (
            Step(_finish, changed=1, deleted=0, embedded=1),
            Step(lambda t: t.delete("k1", part="b"), changed=0, deleted=1, embedded=0),
        ),
        begins=Step(_slow_writer_of_the_former_schema, BUILD, changed=6, embedded=6),
        options={**OCC, "hoodie.write.set.null.for.missing.columns": "true"},
        payload=("id", "more"),
    ),
    "an unused column widened": History(
        (Step(_widen, changed=1, deleted=0, embedded=0),), payload=("id", "ts")
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
                why=r"has no column 'txt'[\s\S]*its columns: id, num, part, sub, ts",
            ),
        ),
        options=EVOLVING,
    ),
}
