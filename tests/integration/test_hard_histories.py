"""Histories that broke earlier versions of the code, each compared with a build from nothing."""

from __future__ import annotations

import fastavro
import pytest

from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.sync import sync
from lakewake.verify import verify
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"


def test_a_file_id_that_is_a_prefix_of_another_is_not_confused_with_it(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", MOR, options=small_tables)
    parts_ = [f"p{n:02}" for n in range(12)]
    table.write([row(f"k{p}", part=p) for p in parts_], "bulk_insert")
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("kp01", "changed", part="p01", ts=2)])
    spark.sql(
        f"CALL run_clustering(path => '{table.path}', predicate => \"part = 'p10'\", "
        "op => 'scheduleAndExecute', options => 'hoodie.metadata.enable=false')"
    ).collect()
    report = sync(parts)
    assert (report.rows_changed, report.rows_deleted) == (1, 0)
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("type_", [COW, MOR])
def test_a_partial_update_by_merge_into_that_comes_late_is_followed(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("a", ts=1, num=1), row("b", ts=1, num=1)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    name = f"partial_{type_[:4].lower()}"
    spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{table.path}'")
    try:
        merge = (
            f"MERGE INTO {name} t USING (SELECT 'a' AS id, 'a' AS part, {{ts}} AS ts, {{value}} "
            "AS v) s ON t.id = s.id AND t.part = s.part WHEN MATCHED THEN UPDATE SET "
            "t.{column} = s.v, t.ts = s.ts"
        )
        spark.sql(merge.format(ts="30L", value="'newer text'", column="txt"))
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
        spark.sql(merge.format(ts="20L", value="77", column="num"))
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
        assert verify(parts).agrees
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_an_older_copy_by_a_slow_writer_does_not_replace_the_newer_one(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("other")])
    table.write([row("k", "OLD")], "bulk_insert")
    slow = max((table.path / ".hoodie" / "timeline").glob("*_*.commit"))
    kept = slow.read_bytes()
    slow.unlink()
    table.write(
        [row("k", "NEW", ts=2)], "bulk_insert", hoodie__clean__failed__writes__policy="LAZY"
    )
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    newest = max((table.path / ".hoodie" / "timeline").glob("*_*.commit"))
    later = str(int(newest.name.split("_")[1].split(".")[0]) + 1)
    slow.with_name(f"{slow.name.split('_')[0]}_{later}.commit").write_bytes(kept)
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)
    assert {d.key for d in parts.store.open().frontier().duplicates} == {"k"}


def _name_no_base_file(table: HudiTables) -> None:
    """Rewrite the newest commit as Flink writes it: with the previous commit, but not its file."""
    file = max((table.path / ".hoodie" / "timeline").glob("*_*.commit"))
    with file.open("rb") as opened:
        reader = fastavro.reader(opened)
        (commit,), schema = list(reader), reader.writer_schema
    for stats in commit["partitionToWriteStats"].values():
        for stat in stats:
            assert stat.pop("prevBaseFile")
            assert stat["prevCommit"] != "null"
    with file.open("wb") as opened:
        fastavro.writer(opened, schema, [commit])
    file.with_name(f".{file.name}.crc").unlink()


def test_a_delete_whose_previous_base_file_is_not_named_is_followed(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b"), row("c")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.delete("b")
    _name_no_base_file(table)
    report = sync(parts)
    assert (report.action, report.rows_deleted) == (Action.FOLLOW, 1), report.why
    assert indexed(parts) == built_from_nothing(parts)


def test_a_column_added_after_a_file_was_written_is_null_in_it(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)

    def write(columns: str, *rows: tuple, operation: str = "upsert") -> None:
        options = {**table._options(), "hoodie.datasource.write.operation": operation}
        frame = spark.createDataFrame(list(rows), columns).coalesce(1)
        frame.write.format("hudi").options(**options).mode("append").save(str(table.path))

    old, new = "id string, part string, ts long, txt string", ", num int"
    write(old, ("a", "p1", 1, "one"), ("b", "p2", 1, "two"), ("c", "p2", 1, "three"))
    write(old + new, ("a", "p1", 2, "one", 5))
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    write(old + new, ("b", "p2", 3, "two", None), operation="delete")
    report = sync(parts)
    assert (report.action, report.rows_deleted) == (Action.FOLLOW, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_partition_values_that_look_like_patterns_are_followed(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    odd = ["a{b", "a[1]", "a b", "ä"]
    table.write([row(f"k{n}", part=p) for n, p in enumerate(odd)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row(f"k{n}", "changed", part=p, ts=2) for n, p in enumerate(odd)])
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 4)
    table.delete("k0", part="a{b")
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)


def test_a_build_starts_again_if_files_vanish_while_it_reads_them(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    table.write([row("a", "changed", ts=2)])
    parts = following(spark, table.path, tmp_path / "index")
    taken = parts.table.snapshot

    def snapshot_then_clean(look):
        parts.table.snapshot = taken
        changes = taken(look)
        table.write([row("b", "newer", ts=2)])
        for file in table.path.rglob("*.parquet"):
            if ".hoodie" not in file.parts and look.newest in file.name:
                file.unlink()
        return changes

    parts.table.snapshot = snapshot_then_clean
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)


def test_a_text_that_is_not_utf8_is_quarantined_and_the_rest_is_indexed(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("fine"), row("broken")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    frame = spark.sql(
        "SELECT 'broken' AS id, 's' AS sub, 'a' AS part, 2L AS ts, "
        "cast(unhex('61FF62') AS string) AS txt, 1 AS num"
    )
    frame.write.format("hudi").options(**table._options()).mode("append").save(str(table.path))
    report = sync(parts)
    assert report.quarantined == 1
    assert [c["_key"] for c, _ in indexed(parts).values()] == ["fine"]
    assert verify(parts).agrees
    table.write([row("broken", "mended", ts=3)])
    assert sync(parts).quarantined == 0
    assert indexed(parts) == built_from_nothing(parts)


def test_a_timestamp_in_a_template_does_not_depend_on_summer_time(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    frame = spark.sql(
        "SELECT 'a' AS id, 'p' AS part, 1L AS ts, "
        "timestamp'2024-03-10 02:30:00 UTC' AS seen, 'x' AS txt, 1 AS num"
    )
    frame.write.format("hudi").options(**table._options()).mode("append").save(str(table.path))
    fields = (TextField("text", "{txt} {seen}"),)
    parts = following(spark, table.path, tmp_path / "index", fields=fields)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        sync(parts)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [c["_text"] for c, _ in indexed(parts).values()] == ["x 2024-03-10 02:30:00"]
    assert verify(parts).agrees
