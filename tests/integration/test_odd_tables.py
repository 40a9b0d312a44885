"""Real tables with odd content."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal

import lance
import pytest

import lakewake
from lakewake.errors import HistoryLost, TableError
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking, TextField
from lakewake.model.rows import RowId
from lakewake.source.hudi import HudiTable
from lakewake.sync import SyncOptions, plan_next, sync
from lakewake.verify import repair, verify
from lakewake.verify.vectors import Vectors
from support.hudi.tables import HudiTables, row
from support.oracle import HASHING, built_from_nothing, following, following_vectors, indexed

pytestmark = pytest.mark.spark

ODD = {
    "quotes": 'it\'s "quoted" and `ticked`',
    "new\nline": "two\nlines\r\nand a\ttab",
    "emoji 🍷": "smoky 🍷 with 日本語 and ünïcödé",
    "sql'; DROP TABLE x; --": "'; DROP TABLE x; --",
    "nul\\x00 like": "a \\x00 and a \u2400 and a \u0001",
    "braces": "{txt} {{not}} a template",
}


def test_odd_keys_and_texts_are_followed_and_found(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(key, text) for key, text in ODD.items()])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    assert {c["_text"] for c, _ in indexed(parts).values()} == set(ODD.values())
    table.write([row(key, text + " changed", ts=2) for key, text in ODD.items()])
    assert sync(parts).rows_changed == len(ODD)
    assert indexed(parts) == built_from_nothing(parts)
    table.delete(*list(ODD)[:3])
    assert sync(parts).rows_deleted == 3
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_a_text_of_a_megabyte_is_indexed(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    long = "All work and no play. " * 50_000
    table.write([row("long", long), row("short", "x")])
    parts = following(spark, table.path, tmp_path / "index")
    assert sync(parts).embedded == 2
    assert verify(parts).agrees


PAYLOAD = (
    "id string, part string, ts long, txt string, price double, points smallint, "
    "cost decimal(10,2), day date, seen timestamp, organic boolean, tags array<string>"
)


def _typed(key: str, **changed: object) -> tuple:
    values = {
        "id": key,
        "part": "a",
        "ts": 1,
        "txt": f"text of {key}",
        "price": 1.5,
        "points": 90,
        "cost": Decimal("12.30"),
        "day": datetime.date(2024, 2, 29),
        "seen": datetime.datetime(2024, 2, 29, 12, 0, 0, 123456),
        "organic": True,
        "tags": ["a", "b"],
        **changed,
    }
    return tuple(values.values())


def _write_typed(table: HudiTables, *rows: tuple) -> None:
    frame = table.spark.createDataFrame(list(rows), PAYLOAD).coalesce(1)
    frame.write.format("hudi").options(**table._options()).mode("append").save(str(table.path))


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_payload_columns_keep_their_types_and_every_change_is_seen(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    _write_typed(table, *(_typed(k) for k in "abcdefg"), _typed("none", price=None, tags=None))
    payload = ("price", "points", "cost", "day", "seen", "organic", "tags")
    parts = following(spark, table.path, tmp_path / "index", payload=payload)
    sync(parts)
    parts.embedder.received.clear()
    _write_typed(
        table,
        _typed("a", ts=2, price=2.5),
        _typed("b", ts=2, points=91),
        _typed("c", ts=2, cost=Decimal("12.31")),
        _typed("d", ts=2, day=datetime.date(2024, 3, 1)),
        _typed("e", ts=2, seen=datetime.datetime(2024, 2, 29, 12, 0, 0, 123457)),
        _typed("f", ts=2, organic=None),
        _typed("g", ts=2, tags=["a"]),
    )
    report = sync(parts)
    assert (report.rows_changed, parts.embedder.received) == (7, [])
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_the_sessions_time_zone_changes_nothing(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    _write_typed(table, _typed("a"), _typed("b"))
    fields = (TextField("text", "{txt} seen {seen}"),)
    parts = following(spark, table.path, tmp_path / "i", payload=("seen",), fields=fields)
    sync(parts)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
        assert verify(parts).agrees
        assert indexed(parts) == built_from_nothing(parts)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_existing_vector_column_is_followed_without_a_model(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    columns = "id string, part string, ts long, vec array<float>"

    def write(*rows: tuple) -> None:
        table.write_frame(spark.createDataFrame(list(rows), columns).coalesce(1))

    write(("a", "p", 1, [1.0, 0.0]), ("b", "p", 1, [0.0, 1.0]), ("none", "p", 1, None))
    parts = following_vectors(spark, table.path, tmp_path / "index", "vec", 2)
    assert sync(parts).rows_changed == 2
    write(("a", "p", 2, [0.6, 0.8]), ("none", "p", 2, [1.0, 1.0]), ("b", "p", 2, None))
    report = sync(parts)
    assert (report.rows_changed, report.embedded) == (3, 0)
    said = {c["_key"]: v for c, v in indexed(parts).values()}
    assert said == {"a": [0.6, 0.8], "none": [1.0, 1.0]}
    assert verify(parts).agrees


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_with_unusable_vectors_are_quarantined_and_hold_nothing_up(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    columns = "id string, part string, ts long, vec array<double>"

    def write(*rows: tuple) -> None:
        table.write_frame(spark.createDataFrame(list(rows), columns).coalesce(1))

    write(("a", "p", 1, [1.0, 0.0]), ("b", "p", 1, [0.0, 1.0]), ("short", "p", 1, [1.0]))
    parts = following_vectors(spark, table.path, tmp_path / "index", "vec", 2)
    assert sync(parts).quarantined == 1
    write(
        ("a", "p", 2, [float("nan"), 0.8]), ("c", "p", 2, [1.0, 1.0]), ("d", "p", 2, [1e300, 1.0])
    )
    report = sync(parts, SyncOptions(reconcile=False))
    assert (report.action, report.quarantined) == (Action.FOLLOW, 2)
    assert {c["_key"] for c, _ in indexed(parts).values()} == {"b", "c"}
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    assert sync(parts, SyncOptions(reconcile=True)).quarantined == 3
    write(("a", "p", 3, [0.6, 0.8]), ("short", "p", 3, [1.0, 2.0]))
    assert sync(parts).rows_changed == 2
    assert [row.key for row in parts.store.open().frontier().quarantine] == ["d"]
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_a_vector_column_of_another_dimension_is_refused_and_nothing_is_written(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    frame = spark.createDataFrame(
        [("a", "p", 1, [1.0, 0.0])], "id string, part string, ts long, vec array<float>"
    )
    frame.write.format("hudi").options(**table._options()).mode("append").save(str(table.path))
    parts = following_vectors(spark, table.path, tmp_path / "index", "vec", 3)
    with pytest.raises(TableError, match="not 3"):
        sync(parts)
    assert parts.store.open() is None


def test_a_table_that_lost_all_rows_makes_an_empty_index_and_fills_again(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    table.delete("a", "b")
    parts = following(spark, table.path, tmp_path / "index")
    assert sync(parts).action is Action.BUILD
    assert indexed(parts) == {}
    table.write([row("c", "back again", ts=10**7)])
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)
    assert len(indexed(parts)) == 1


def test_a_table_without_a_commit_makes_an_empty_index(spark, small_tables, tmp_path):
    path = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE lakewake_empty (id string, txt string, num int, ts long, part string) "
        f"USING hudi TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts') "
        f"PARTITIONED BY (part) LOCATION '{path}'"
    )
    try:
        parts = following(spark, path, tmp_path / "index")
        assert sync(parts).action is Action.BUILD
        assert sync(parts).action is Action.NOTHING
        spark.sql("INSERT INTO lakewake_empty VALUES ('a', 'first text', 1, 1, 'p')")
        assert sync(parts).rows_changed == 1
        assert indexed(parts) == built_from_nothing(parts)
    finally:
        spark.sql("DROP TABLE lakewake_empty")


def test_cleaned_files_are_reconciled_and_nothing_is_lost(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a"), row("b")])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    (old,) = [f for f in table.path.rglob("*.parquet") if ".hoodie" not in f.parts]
    table.delete("a")
    table.write([row("c", "a new one")])
    old.unlink()
    with pytest.raises(HistoryLost, match="the cleaner removed"):
        sync(parts, SyncOptions(reconcile=False))
    parts.embedder.received.clear()
    report = sync(parts)
    assert report.action is Action.RECONCILE
    assert "the cleaner removed" in report.why
    assert parts.embedder.received == ["a new one"]
    assert (report.rows_changed, report.rows_deleted) == (1, 1)
    assert indexed(parts) == built_from_nothing(parts)


def test_verify_finds_what_was_done_to_the_index_behind_its_back(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(6)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    assert verify(parts).agrees
    data = lance.dataset(str(tmp_path / "index" / "sample.g1.lance"))
    data.delete("_key = 'k0'")
    data.update({"_text": "'forged'"}, where="_key = 'k1'")
    data.update({"num": "99"}, where="_key = 'k2'")
    data.update({"_key": "'ghost'"}, where="_key = 'k3'")
    report = verify(parts, Vectors.NONE)
    part = "part=a"
    assert not report.agrees
    assert report.missing == (RowId(part, "k0"), RowId(part, "k3"))
    assert report.stale == (RowId(part, "k1"), RowId(part, "k2"))
    assert report.orphaned == (RowId(part, "ghost"),)
    mended = repair(parts, Vectors.ALL)
    assert (mended.agrees, mended.repaired) == (True, 5)
    assert indexed(parts) == built_from_nothing(parts)


@pytest.mark.parametrize("lost", ["_field = 'id'", "_field = 'text' AND _chunk = 1"])
@pytest.mark.parametrize("mend", [repair, lambda parts: sync(parts, SyncOptions(reconcile=True))])
def test_a_lost_text_field_and_a_lost_chunk_are_noticed(mend, lost, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    long = "This is the first sentence of it. Here is another one. And this is the last. \u3000 "
    table.write([row("k0", long), row("k1", "\u00a0"), row("k2", " short "), row("k3", "")])
    table.write([row("k4", "This is the first sentence of it, a long one. The end.")])
    fields = (TextField("text", "{txt}"), TextField("id", "{id}"))
    parts = following(spark, table.path, tmp_path / "index", fields=fields)
    recipe = replace(parts.recipe, chunking=Chunking(tokens=10))
    hudi = HudiTable(str(table.path), recipe, lambda: spark)
    parts = replace(parts, recipe=recipe, table=hudi)
    sync(parts)
    assert verify(parts).agrees
    data = lance.dataset(str(tmp_path / "index" / "sample.g1.lance"))
    data.delete(f"_key = 'k0' AND {lost}")
    assert verify(parts).stale == (RowId("part=a", "k0"),)
    mend(parts)
    assert verify(parts).agrees
    assert indexed(parts) == built_from_nothing(parts)


def test_verify_counts_what_is_not_synced_yet_as_pending(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(6)])
    parts = following(spark, table.path, tmp_path / "index")
    sync(parts)
    table.write([row("k0", "changed", ts=2), row("new")])
    table.delete("k1")
    report = verify(parts)
    assert report.agrees
    assert report.pending == 3


def test_a_plan_counts_the_work_of_the_next_sync_and_writes_nothing(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(6)])
    parts = following(spark, table.path, tmp_path / "index")
    assert plan_next(parts).to_embed == 6
    assert parts.store.open() is None
    sync(parts)
    table.write([row("k0", "changed", ts=2), row("k1", ts=2, num=4)])
    plan = plan_next(parts)
    assert (plan.action, plan.rows_changed, plan.to_embed) == (Action.FOLLOW, 2, 1)


CONFIG = """
[[index]]
name = "sample"
table = "table"
text = "{txt}"
payload = ["num"]
model = { provider = "hashing", dimension = 32 }
"""


def test_the_python_api_works_in_a_session_of_the_callers_and_leaves_it_running(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row("a", "smoky red", num=3), row("b", "crisp white", num=4)])
    config = tmp_path / "lakewake.toml"
    config.write_text(CONFIG)
    with lakewake.open(config, spark=spark) as lake:
        index = lake["sample"]
        assert not index.status().built
        assert index.sync().rows_changed == 2
        assert index.search("smoky red", k=1, where="num < 4").hits[0].key == "a"
        assert index.search("smoky red", where="num > 3").hits[0].key == "b"
        assert index.verify().agrees
        table.write([row("a", "smoky red again", ts=2, num=3)])
        status = index.status()
        assert (status.lag_commits, status.in_step) == (1, False)
        assert 0 < status.lag_seconds < 600
        assert index.sync().embedded == 1
        assert index.status().in_step
    assert spark.range(1).count() == 1
    assert HASHING.provider == "hashing"


def test_a_commit_while_the_snapshot_is_read_is_not_half_seen(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}") for n in range(6)])
    parts = following(spark, table.path, tmp_path / "index")
    look = parts.table.look(None)
    changes = parts.table.snapshot(look)
    table.write([row("k0", "later", ts=2), row("later too")])
    read = {i.key: t for b in changes.rows for i, t in zip(b.ids, b.texts["text"], strict=True)}
    assert read == {f"k{n}": f"text of k{n}" for n in range(6)}


@pytest.mark.parametrize("hive", ["true", "false"])
@pytest.mark.parametrize("partition", ["part", "part,sub"])
def test_an_empty_partition_value_in_the_payload_is_followed_as_in_a_build(
    partition, hive, spark, small_tables, tmp_path
):
    options = {**small_tables, "hoodie.datasource.write.hive_style_partitioning": hive}
    if "," in partition:
        options["hoodie.datasource.write.keygenerator.class"] = (
            "org.apache.hudi.keygen.ComplexKeyGenerator"
        )
    table = HudiTables(spark, tmp_path / "table", partition=partition, options=options)
    table.write([row("k0"), row("k1", part="")])
    parts = following(spark, table.path, tmp_path / "index", payload=("id", "part", "sub"))
    sync(parts)
    table.write([row("k1", "changed", part="", ts=2), row("k2", part="", sub="")])
    table.write([row("k3", part=None), row("k4", part=" a b"), row("k5", sub="")])
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


@pytest.mark.parametrize("type_", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_invalid_utf8_in_keys_and_partitions_is_replaced_and_followed(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    table.write([row("fine")])
    parts = following(spark, table.path, tmp_path / "index", payload=("id", "part"))
    sync(parts)
    broken = "cast(unhex('61FF62') AS string)"
    frame = spark.sql(
        f"SELECT id, 's' AS sub, part, 1L AS ts, 'x' AS txt, 0 AS num FROM VALUES "
        f"({broken}, 'a'), ('k', {broken}) AS v(id, part)"
    )
    table.write_frame(frame.coalesce(1), "bulk_insert")
    sync(parts)
    assert {c["_key"] for c, _ in indexed(parts).values()} == {"fine", "a\ufffdb", "k"}
    assert indexed(parts) == built_from_nothing(parts)
    table.delete("fine")
    sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
