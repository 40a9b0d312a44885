"""Indexes of selected rows hold exactly what SQL selects, as tables change and days pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakewake.errors import ConfigError, TableError
from lakewake.model.plan import Action
from lakewake.model.selection import FUNCTIONS, parse_selection
from lakewake.source import follow
from lakewake.source.hudi import HudiTable
from lakewake.source.session import reading_session
from lakewake.source.view import hudi_reader
from lakewake.spark.own import active
from lakewake.store.hudi.store import HudiStore
from lakewake.store.lance.store import LanceStore
from lakewake.sync import SyncOptions, sync
from lakewake.sync.together import Round
from lakewake.verify import repair, verify
from support.hudi.playing import COW, MOR
from support.hudi.real_history import hostile_session
from support.hudi.tables import HudiTables, row
from support.oracle import HASHING, HudiParts, built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

DAYS = {"day": "date_add(DATE'2026-01-01', num)"}
WHERE = "day >= date_sub(current_date(), 2) AND id <> 'k5'"


class Calendar:
    """The day on which rows are selected."""

    def __init__(self, day: int) -> None:
        self.day = day

    def __call__(self) -> str:
        return f"2026-01-{self.day:02}"


@pytest.fixture
def today() -> Calendar:
    return Calendar(4)


@pytest.fixture(params=[COW, MOR])
def table(request, spark, small_tables, tmp_path) -> HudiTables:
    """Rows k0 to k5, partitioned by day: k0 is of the first of January, k1 of the second."""
    made = HudiTables(
        spark, tmp_path / "table", request.param, partition="day", options=small_tables, also=DAYS
    )
    made.write([row(f"k{n}", num=n) for n in range(6)])
    return made


def selecting(
    table: HudiTables,
    folder: Path,
    where: str,
    today: Calendar,
    spark: Any = None,
    distributed: int | None = None,
    **more: Any,
) -> HudiParts:
    """An index in Lance of the rows that a condition selects."""
    spark = spark or table.spark
    made = following(spark, table.path, folder, payload=("id", "num"), **more)
    recipe = replace(made.recipe, where=where and parse_selection(where).text)
    source = HudiTable(str(table.path), recipe, lambda: spark, distributed, today=today)
    return replace(made, recipe=recipe, table=source)


def keys_where(table: HudiTables, condition: str) -> set[str]:
    """The keys that SQL selects. The rows are copied first: Hudi skips nothing."""
    spark = reading_session(table.spark)
    with active(spark):
        shown = hudi_reader(spark).load(str(table.path))
        copied = spark.createDataFrame(shown.rdd, shown.schema)
        return {r["id"] for r in copied.where(condition).select("id").collect()}


def keys_of(parts: Any) -> set[str]:
    return {chunk["_key"] for chunk, _ in indexed(parts).values()}


def assert_right(parts: HudiParts, table: HudiTables, today: Calendar) -> None:
    """It holds what SQL selects today, as a build does; nothing is left to do; verify agrees."""
    assert indexed(parts) == built_from_nothing(parts)
    assert keys_of(parts) == keys_where(table, parts.recipe.on(today()).where or "true")
    assert sync(parts).action is Action.NOTHING
    assert verify(parts).agrees


def test_rows_enter_and_leave_as_they_change_and_as_days_pass(table, tmp_path, today) -> None:
    parts = selecting(table, tmp_path / "index", WHERE, today)
    built = sync(parts)
    assert (built.action, built.embedded) == (Action.BUILD, 4)
    assert keys_of(parts) == {"k1", "k2", "k3", "k4"}
    assert_right(parts, table, today)
    # One leaves though its text stays, one enters, one was never selected.
    table.write([row("k3", num=3, ts=2), row("k9", num=8, ts=2), row("k0", "other", num=0, ts=2)])
    report = sync(parts)
    assert (report.action, report.embedded, report.rows_deleted) == (Action.FOLLOW, 1, 0)
    table.write([row("k0", num=0), row("k4", num=4)], "delete")
    report = sync(parts)
    assert (report.embedded, report.rows_deleted) == (0, 1)
    assert_right(parts, table, today)
    # A day passes: only the partition of that day is read.
    today.day = 5
    report = sync(parts)
    assert (report.action, report.rows_deleted, report.embedded) == (Action.FOLLOW, 1, 0)
    assert (report.reads.groups, report.instants) == (1, {})
    assert report.reads.groups < report.reads.groups_in_table
    assert_right(parts, table, today)
    # The clock was wrong: the row comes back, and is embedded once more at most.
    today.day = 4
    assert sync(parts).rows_changed == 1
    assert_right(parts, table, today)
    # Commits and days at once.
    today.day = 6
    table.write([row("k2", "red", num=2, ts=3), row("k7", "white", num=6, ts=3)])
    report = sync(parts)
    assert "1 new commit" in report.why
    assert "2026-01-06" in report.why
    assert_right(parts, table, today)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_a_column_that_no_text_is_made_of_moves_rows(table, tmp_path, today, spark) -> None:
    parts = selecting(table, tmp_path / "index", "sub = 's' AND ts < 10", today)
    assert sync(parts).embedded == 6
    table.write([row("k0", num=0, sub="t", ts=2), row("k1", num=1, ts=20)])
    report = sync(parts)
    assert (report.rows_deleted, report.embedded) == (2, 0)
    table.write([row("k0", num=0, sub="s", ts=3)])
    assert sync(parts).embedded == 0  # its vector is in the cache
    assert_right(parts, table, today)
    table.write([row("k2", num=2, sub="t", ts=3)], "delete")
    table.write([row("k1", num=1, ts=30)], "delete")
    assert sync(parts).rows_deleted == 1
    assert_right(parts, table, today)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_another_condition_rebuilds_the_index_and_embeds_nothing_known(
    table, tmp_path, today
) -> None:
    parts = selecting(table, tmp_path / "index", "", today)
    plain = parts.recipe.fingerprint
    assert sync(parts).embedded == 6
    narrow = selecting(table, tmp_path / "index", "num < 3", today, vector_cache=parts.vector_cache)
    assert narrow.recipe.fingerprint != plain
    report = sync(narrow)
    assert (report.action, report.embedded, report.reused) == (Action.BUILD, 0, 3)
    assert "num < 3" in report.why
    assert_right(narrow, table, today)
    table.write([row("k8", num=8)])
    assert sync(narrow).embedded == 0
    wide = selecting(table, tmp_path / "index", WHERE, today)
    report = sync(wide)
    assert report.embedded == len(keys_of(wide) - {"k1", "k2"}), "others are known to the index"
    assert_right(wide, table, today)


@pytest.mark.parametrize("distributed", [None, 1])
def test_verify_repair_and_reconcile_see_the_selected_rows(
    distributed, table, tmp_path, today
) -> None:
    parts = selecting(table, tmp_path / "index", WHERE, today, distributed=distributed)
    parts = replace(parts, model=HASHING if distributed else None)
    sync(parts)
    today.day = 6
    found = verify(parts)
    assert (found.agrees, found.date, found.rows) == (True, "2026-01-04", 4)
    # Half of it is replaced by the rows of another condition.
    other = selecting(table, tmp_path / "index", "num IN (0, 4)", today)
    sync(other)
    stolen = parts.store.open()
    assert stolen is not None
    report = sync(parts, SyncOptions(reconcile=True))
    assert report.action is Action.BUILD
    assert_right(parts, table, today)
    table.write([row("k4", "red", num=4, ts=2)])
    report = sync(parts, SyncOptions(reconcile=True))
    assert (report.action, report.rows_changed) == (Action.RECONCILE, 1)
    assert_right(parts, table, today)
    assert repair(parts).repaired == 0


TIMED = "hoodie.keygen.timebased."
TYPE = f"{TIMED}timestamp.type"
#: How a table is partitioned by a value that a key generator formats, and conditions on it.
FORMATTED = {
    "ts": ("ts", {TYPE: "EPOCHMILLISECONDS"}, ["ts = 100000000", "ts > 0", "ts % 2 = 0"]),
    "at": ("at", {TYPE: "EPOCHMILLISECONDS"}, ["at > timestamp'2026-01-02 00:00:00'"]),
    "day": (
        "day",
        {TYPE: "SCALAR", f"{TIMED}timestamp.scalar.time.unit": "DAYS"},
        ["day >= date_sub(current_date(), 2)", "day = '2026-01-03'"],
    ),
}


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        *((kind, COW) for kind in FORMATTED),
        ("day", MOR),
        pytest.param("ts", MOR, marks=pytest.mark.matrix),
        pytest.param("at", MOR, marks=pytest.mark.matrix),
    ],
)
def test_partitions_by_a_formatted_value_are_not_skipped(
    kind, type_, spark, small_tables, tmp_path, today
) -> None:
    column, settings, conditions = FORMATTED[kind]
    options = {
        **small_tables,
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
        ),
        f"{TIMED}output.dateformat": "yyyy-MM-dd",
        f"{TIMED}timezone": "GMT",
        **settings,
    }
    also = {**DAYS, "at": "timestamp(day)"} if kind == "at" else DAYS
    table = HudiTables(
        spark, tmp_path / "table", type_, partition=column, options=options, also=also
    )
    table.write([row(f"k{n}", num=n, ts=n * 10**8) for n in range(6)])
    indexes = [
        selecting(table, tmp_path / f"index{n}", where, today) for n, where in enumerate(conditions)
    ]
    for parts in indexes:
        sync(parts)
        assert keys_of(parts), "the condition selects rows"
        assert_right(parts, table, today)
    table.write([row("k2", "red", num=2, ts=2 * 10**8), row("k9", num=3, ts=3 * 10**8)])
    today.day = 5
    for parts in indexes:
        sync(parts)
        assert_right(parts, table, today)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_the_callers_session_does_not_matter(table, tmp_path, today, spark) -> None:
    hostile = hostile_session(spark)
    hostile.conf.set("spark.sql.ansi.enabled", "true")
    hostile.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    where = (
        "timestamp_seconds(num * 86400 + 3600) < timestamp'1970-01-04 00:30:00'"
        " OR CAST(id AS INT) = 1 OR 10 / (num - 4) > 8"
    )
    parts = selecting(table, tmp_path / "index", where, today, spark=hostile)
    sync(parts)
    assert keys_of(parts) == {"k0", "k1", "k2", "k5"}
    table.write([row("k6", num=2), row("k0", num=0, ts=5)])
    sync(parts)
    assert keys_of(parts) == {"k0", "k1", "k2", "k5", "k6"}
    assert_right(parts, table, today)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_an_older_copy_that_enters_does_not_hide_a_newer_one(table, tmp_path, today, spark) -> None:
    """A plain insert stores the row twice in one partition, and only one copy is selected."""
    made = HudiTables(spark, tmp_path / "twice", options=table.options, also=DAYS)
    made.write([row("k", "older", num=5), row("other", num=4)], "insert")
    made.write([row("k", "newer", num=3, ts=2)], "bulk_insert")
    today.day = 4
    parts = selecting(made, tmp_path / "index", "day <= current_date()", today)
    sync(parts)
    assert [chunk["_text"] for chunk, _ in indexed(parts).values()] == ["newer"]
    today.day = 7
    report = sync(parts)
    assert (report.action, "twice" in report.why) == (Action.RECONCILE, True)
    assert indexed(parts) == built_from_nothing(parts)
    assert sorted(chunk["_text"] for chunk, _ in indexed(parts).values()) == [
        "newer",
        "text of other",
    ]
    assert sync(parts).action is Action.NOTHING


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_a_condition_that_spark_refuses_is_an_error_before_anything_is_written(
    table, tmp_path, today
) -> None:
    for where in (
        "num + 1",
        "num.inner = 1",
        "lower(num, 1) = 'a'",
        "num = ",
        "day > 5",
        "num AS n",
    ):
        parts = selecting(table, tmp_path / "index", where, today)
        with pytest.raises(ConfigError, match="Spark cannot select rows"):
            sync(parts)
        assert parts.store.open() is None
    with pytest.raises(ConfigError, match="no column 'nun'"):
        sync(selecting(table, tmp_path / "index", "nun = 1", today))
    parts = selecting(table, tmp_path / "index", "num = 1", today)
    look = parts.table.look(None)
    with pytest.raises(TableError, match="only Spark evaluates"):
        parts.table.scan(look, spark=False)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_indexes_of_one_table_with_other_conditions_are_each_right(
    table, tmp_path, today, monkeypatch
) -> None:
    wheres = {"all": "", "days": WHERE, "same": WHERE, "few": "num < 2", "late": WHERE}
    parts = {
        name: replace(
            selecting(table, tmp_path / "index", where, today),
            name=name,
            store=LanceStore(str(tmp_path / "index"), name),
        )
        for name, where in wheres.items()
    }
    for one in parts.values():
        sync(one)
    today.day = 5
    sync(parts["late"])
    table.write([row("k0", "red", num=0, ts=2), row("k4", num=9, ts=2), row("k8", num=3)])
    table.write([row("k1", num=1), row("k3", num=3)], "delete")
    reads: list[object] = []
    read = follow._read
    monkeypatch.setattr(follow, "_read", lambda *given: reads.append(given) or read(*given))
    around = Round({n: (str(table.path), lambda p=p: p) for n, p in parts.items()})
    for one in parts.values():
        with around.taking_part(one) as mine:
            sync(mine)
    around.close()
    # `days` and `same` select the same rows, on the same day.
    assert len(reads) == 4
    for one in parts.values():
        assert_right(one, table, today)


@pytest.mark.parametrize("table", [COW], indirect=True)
def test_a_first_try_of_some_rows_is_completed_later(table, tmp_path, today) -> None:
    parts = selecting(table, tmp_path / "index", WHERE, today)
    report = sync(parts, SyncOptions(limit=2))
    assert (report.action, report.embedded) == (Action.BUILD, 2)
    assert keys_of(parts) == {"k1", "k2"}
    assert sync(parts, SyncOptions(limit=2)).action is Action.NOTHING
    found = verify(parts)
    assert (found.agrees, found.limit, found.missing) == (True, 2, ())
    assert sync(parts, SyncOptions(limit=3)).embedded == 1
    report = sync(parts)
    assert (report.action, report.embedded, report.reused) == (Action.BUILD, 1, 3)
    assert_right(parts, table, today)
    with pytest.raises(ConfigError, match="holds all its rows"):
        sync(parts, SyncOptions(limit=2))


@pytest.fixture
def lake(spark, tmp_path) -> HudiStore:
    return HudiStore(str(tmp_path / "lake"), "sample", lambda: spark)


@pytest.mark.matrix
@pytest.mark.parametrize("table", [COW], indirect=True)
def test_an_index_in_the_lake_is_searched_as_it_was_on_an_earlier_day(
    table, tmp_path, today, lake
) -> None:
    parts = selecting(table, tmp_path / "index", WHERE, today, store=lake)
    sync(parts)
    before = keys_of(parts)
    first = parts.table.look(None).newest
    today.day = 6
    table.write([row("k8", num=8)])
    sync(parts)
    assert_right(parts, table, today)
    reader = lake.as_of(first)
    assert reader is not None
    assert {k for b in reader.scan(["_key"]) for k in b["_key"].to_pylist()} == before
    assert reader.frontier().date == "2026-01-04"


def test_spark_has_every_function_and_none_looks_beyond_its_row(spark) -> None:
    registry = spark._jsparkSession.sessionState().functionRegistry()
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in sorted(FUNCTIONS - {"cast", "try_cast"}):
        found = registry.lookupFunction(identifier(name))
        assert found.isDefined(), name
        group = found.get().getGroup()
        assert group not in ("agg_funcs", "window_funcs", "generator_funcs", "table_funcs"), name
