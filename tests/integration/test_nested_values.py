"""Arrays, maps and structs in text and payload."""

from __future__ import annotations

import pytest

from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.sync import SyncOptions, sync
from lakewake.verify import verify
from support.hudi.tables import COLUMNS, HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
NESTED = ("tags", "attrs", "box", "seen")
#: A row as Spark makes it: nothing in it can be null.
SELECT = (
    "SELECT '{key}' AS id, 'a' AS part, {ts}L AS ts, '{txt}' AS txt, {tags} AS tags, "
    "map('k', 'v', {attr}, 'w') AS attrs, "
    "named_struct('name', {name}, 'sizes', array(1, {ts}), 'at', {at}) AS box, "
    "array({at}) AS seen"
)
NOON = "timestamp'2024-03-10 02:30:00 UTC'"


def _write(table: HudiTables, *rows: dict[str, object], operation: str = "upsert") -> None:
    given_ = {"ts": 1, "tags": "array('a', 'b')", "attr": "'l'", "name": "'n'", "at": NOON}
    asked = [SELECT.format_map({**given_, "txt": f"text of {r['key']}", **r}) for r in rows]
    frame = table.spark.sql(" UNION ALL ".join(asked)).coalesce(1)
    table.write_frame(frame, operation)


@pytest.mark.parametrize("type_", [COW, MOR])
def test_nested_values_that_cannot_be_null_are_followed(type_, spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    _write(table, {"key": "a"}, {"key": "b"}, {"key": "c"})
    parts = following(spark, table.path, tmp_path / "index", payload=NESTED)
    sync(parts)
    parts.embedder.received.clear()
    _write(
        table,
        {"key": "a", "ts": 2, "tags": "array('a')"},
        {"key": "b", "ts": 2, "name": "'m'"},
        {"key": "d", "ts": 2, "attr": "'z'"},
    )
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 3), report.why
    assert parts.embedder.received == ["text of d"]
    assert indexed(parts) == built_from_nothing(parts)
    assert sync(parts, SyncOptions(reconcile=True)).chunks_upserted == 0


BROKEN = "cast(unhex('61FF62') AS string)"
BROKEN_TOO = "cast(unhex('61FE62') AS string)"


@pytest.mark.parametrize("type_", [COW, MOR])
def test_invalid_utf8_in_a_nested_payload_is_replaced_and_the_index_stays_readable(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    # Other operations replace broken bytes themselves, when they pass through Java's strings.
    raw = "bulk_insert"
    _write(table, {"key": "a", "tags": f"array({BROKEN}, 'b')"}, {"key": "c"}, operation=raw)
    parts = following(spark, table.path, tmp_path / "index", payload=NESTED)
    sync(parts)
    _write(table, {"key": "b", "ts": 2, "name": BROKEN, "attr": BROKEN}, operation=raw)
    assert sync(parts).action is Action.FOLLOW
    chunks = {c["_key"]: c for c, _ in indexed(parts).values()}
    assert chunks["a"]["tags"] == ["a\ufffdb", "b"]
    assert chunks["b"]["box"]["name"] == "a\ufffdb"
    assert chunks["b"]["attrs"] == [("a\ufffdb", "w"), ("k", "v")]
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    assert sync(parts, SyncOptions(reconcile=True)).chunks_upserted == 0


def test_map_keys_that_become_equal_after_replacement_are_merged(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    frame = spark.sql(
        f"SELECT 'a' AS id, 'p' AS part, 1L AS ts, 'text' AS txt, "
        f"map({BROKEN}, 1, 'x', 2, {BROKEN_TOO}, 3) AS attrs"
    )
    table.write_frame(frame, "bulk_insert")
    parts = following(spark, table.path, tmp_path / "index", payload=("attrs",))
    sync(parts)
    assert [c["attrs"] for c, _ in indexed(parts).values()] == [[("a\ufffdb", 1), ("x", 2)]]
    assert verify(parts).agrees


def test_nested_timestamps_in_a_template_do_not_depend_on_the_sessions_time_zone(
    spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    _write(table, {"key": "a"})
    fields = (TextField("text", "{txt} {box} {seen}"),)
    parts = following(spark, table.path, tmp_path / "index", payload=NESTED, fields=fields)
    sync(parts)
    (text,) = [c["_text"] for c, _ in indexed(parts).values()]
    assert text == "text of a {n, [1, 1], 2024-03-10 02:30:00} [2024-03-10 02:30:00]"
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert verify(parts).agrees
        assert indexed(parts) == built_from_nothing(parts)
        parts.embedder.received.clear()
        assert sync(parts, SyncOptions(reconcile=True)).chunks_upserted == 0
        assert parts.embedder.received == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_an_unused_column_that_widens_within_a_window_is_followed(spark, small_tables, tmp_path):
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(4)])
    parts = following(spark, table.path, tmp_path / "index", payload=("id",))
    sync(parts)
    table.write([row("k0", "first", ts=2)])
    wide = spark.createDataFrame(
        [row("k1", "second", part="b", ts=2, num=2**40)], COLUMNS.replace("num int", "num long")
    )
    table.write_frame(wide)
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 2), report.why
    assert indexed(parts) == built_from_nothing(parts)


FIELDS = (TextField("text", "{txt}. {customer.name} in {customer.home.city} ({tags})"),)
PARTS_OF_IT = ("customer.country", "tags", "customer.home.city", "id")


def _customers(table: HudiTables, *rows: tuple[str, int, str, str]) -> None:
    """Write rows: key, time, customer and tags, each as SQL."""
    asked = (
        f"SELECT '{key}' AS id, 'a' AS part, {ts}L AS ts, 'text of {key}' AS txt, "
        f"{customer} AS customer, {tags} AS tags"
        for key, ts, customer, tags in rows
    )
    table.write_frame(table.spark.sql(" UNION ALL ".join(asked)).coalesce(1))


def _customer(name: str, country: str, city: str, more: str = "") -> str:
    home = f"named_struct('city', cast({city} AS string), 'zip', 'x')"
    return (
        f"named_struct('name', cast({name} AS string), 'country', cast({country} AS string), "
        f"'home', {home}{more})"
    )


@pytest.mark.parametrize("type_", [COW, MOR])
def test_fields_of_structs_are_followed_while_a_struct_gains_a_field(
    type_, spark, small_tables, tmp_path
):
    table = HudiTables(spark, tmp_path / "table", type_, options=small_tables)
    anna = _customer("'Anna'", "'DE'", "'Köln'")
    _customers(
        table,
        ("a", 1, anna, "array('dry', '', 'oak')"),
        ("b", 1, _customer("null", "'FR'", "null"), "cast(array() AS array<string>)"),
        ("c", 1, anna, "null"),
    )
    parts = following(
        spark, table.path, tmp_path / "index", payload=PARTS_OF_IT, fields=FIELDS, rendering=2
    )
    sync(parts)
    held = {c["_key"]: c for c, _ in indexed(parts).values()}
    assert {key: c["_text"] for key, c in held.items()} == {
        "a": "text of a. Anna in Köln (dry, oak)",
        "b": "text of b",
        "c": "text of c. Anna in Köln",
    }
    assert held["a"]["customer"] == {"country": "DE", "home": {"city": "Köln"}}
    assert held["b"]["customer"] == {"country": "FR", "home": None}
    known = len(parts.embedder.received)
    none = f"if(true, null, {anna})"
    _customers(table, ("a", 2, _customer("'Anna'", "'IT'", "'Köln'"), "array('dry', '', 'oak')"))
    _customers(table, ("c", 2, none, "array(' ')"))
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 2), report.why
    assert parts.embedder.received[known:] == ["text of c"]
    assert indexed(parts) == built_from_nothing(parts)
    vip = _customer("'Bo'", "'SE'", "null", more=", 'vip', cast('true' AS boolean)")
    _customers(table, ("b", 3, vip, "null"), ("d", 3, vip, "array('new')"))
    report = sync(parts)
    assert (report.action, report.rows_changed) == (Action.FOLLOW, 2), report.why
    assert indexed(parts) == built_from_nothing(parts)
    assert sync(parts, SyncOptions(reconcile=True)).chunks_upserted == 0
    assert verify(parts).agrees
